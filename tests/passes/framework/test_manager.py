"""The pass manager: order, verification, and what it says when something goes wrong."""

from __future__ import annotations

import gc
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from boost_compile.ir.core.errors import AnatomyError, Error, NotApplicable, OptionError, PassError, VerifyError
from boost_compile.ir.core.program import Program
from boost_compile.ir.core.report import PassResult
from boost_compile.ir.core.walk import result_value
from boost_compile.ir.text import parse_program, print_program
from boost_compile.ir.verify import verifier
from boost_compile.ir.verify.verifier import verify
from boost_compile.passes import REGISTRY, STAGES, InternalError, NoMatchWarning, Pass, compile_program, option
from boost_compile.passes.framework.instrumentation import Instrumentation
from boost_compile.passes.framework.manager import VERIFY, BrokenProgram, canonical_order

from tests.passes.framework.examples import TEXT, Idle, Negate, shown


class Placeless(Pass):
    """Fits no network."""

    name = "placeless"

    def run(self, program: Program) -> PassResult:
        raise NotApplicable("there is no place")


class Nothing(Pass):
    """Looks for what is not there."""

    name = "nothing"

    def run(self, program: Program) -> PassResult:
        result = self.result()
        for i in range(5):
            result.miss(f"site {i}", "too small")
        return result


class Uncollected(Pass):
    """Matches while the cyclic collector pauses."""

    name = "uncollected"

    def run(self, program: Program) -> PassResult:
        result = self.result()
        result.matched = not gc.isenabled()
        return result


class Crash(Pass):
    """Has a bug."""

    name = "crash"
    depth: int = option(1, help="unused")

    def run(self, program: Program) -> PassResult:
        for graph in program.graphs.values():
            graph.erase(next(n for n in graph if not n.uses and n.op.name == "nonsense"))
        return self.result()


class Break(Pass):
    """Leaves a use in front of its definition."""

    name = "break"

    def run(self, program: Program) -> PassResult:
        result = self.result()
        (graph,) = program.graphs.values()
        graph.reorder(reversed(list(graph)))
        result.matched = 1
        return result


class Lose(Pass):
    """Returns what the graph returned without waiting for its write."""

    name = "lose"

    def run(self, program: Program) -> PassResult:
        result = self.result()
        (graph,) = program.graphs.values()
        graph.result = result_value(graph)
        result.matched = 1
        return result


class Undate(Pass):
    """Takes its token away from a write."""

    name = "undate"

    def run(self, program: Program) -> PassResult:
        result = self.result()
        (graph,) = program.graphs.values()
        for node in [n for n in graph if n.op.name == "AssignAdd"]:
            node.set_operands(node.operands[:-1])
            result.matched += 1
        return result


class Refuse(Pass):
    """Cannot handle the program."""

    name = "refuse"

    def run(self, program: Program) -> PassResult:
        raise AnatomyError("weight 'w' has no gradient")


class Wrong(Pass):
    """Returns something else."""

    name = "wrong"

    def run(self, program: Program) -> PassResult:
        return None  # type: ignore[return-value]


def staged(stage_name: str) -> type[Pass]:
    class Staged(Pass):
        """Belongs to a stage."""

        name = f"at-{stage_name}"
        at_stage = stage_name
        may_match_nothing = True

        def run(self, program: Program) -> PassResult:
            return self.result()

    return Staged


STAGED = {name: staged(name) for name in STAGES}


@pytest.fixture(autouse=True)
def registered(monkeypatch: pytest.MonkeyPatch) -> None:
    for cls in (Nothing, Placeless, Crash, Break, Lose, Undate, Refuse, Wrong, *STAGED.values()):
        monkeypatch.setitem(REGISTRY, cls.name, cls)


# -- running ---------------------------------------------------------------------------------------------------


def test_the_argument_is_not_changed(program: Program) -> None:
    before = print_program(program)
    after = compile_program(program, "negate,dead-code-elimination")
    assert print_program(program) == before
    assert "Neg" in shown(after)
    assert program.reports == []
    assert program.pipeline == ""


def test_the_argument_is_not_changed_by_a_failure(program: Program, tmp_path: Path) -> None:
    before = print_program(program)
    for pipeline in ("negate,break", "negate,crash", "negate,refuse"):
        with pytest.raises((Error, InternalError)):
            compile_program(program, pipeline, reproducer_directory=tmp_path)
        assert print_program(program) == before


def test_reports_and_pipeline_add_up(program: Program) -> None:
    once = compile_program(program, "negate{times=2},idle")
    twice = compile_program(once, [Negate()])
    assert once.pipeline == "negate{times=2},idle"
    assert twice.pipeline == "negate{times=2},idle,negate{times=1}"
    assert [r.name for r in twice.reports] == ["negate", "idle", "negate"]
    assert twice.reports[0].options == {"times": 2}
    assert twice.reports[0].matched == 2
    assert all(r.seconds > 0 for r in twice.reports)


def test_the_collector_pauses_while_passes_run(program: Program) -> None:
    before = gc.isenabled()
    gc.enable()
    try:
        compile_program(program, [Uncollected()])
        assert gc.isenabled()
        with pytest.raises(InternalError):
            compile_program(program, [Crash()], reproducer_directory=None)
        assert gc.isenabled()
    finally:
        if not before:
            gc.disable()


def test_a_pass_is_timed(program: Program) -> None:
    assert all(0 <= report.seconds < 60 for report in compile_program(program, "negate,idle").reports)


def test_an_empty_pipeline_copies(program: Program) -> None:
    result = compile_program(program, "")
    assert result is not program
    assert shown(result) == shown(program)


def test_new_nodes_say_which_pass_made_them(program: Program) -> None:
    result = compile_program(program, [Negate()])
    made = [n for body in result.graphs["step"].all_graphs() for n in body if n.op.name == "Neg"]
    assert [n.origin.passes for n in made if n.origin] == [("negate",), ("negate",)]
    assert [n.origin.sources for n in made if n.origin] == [("y",), ("sum",)]
    assert [body.editor for body in result.graphs["step"].all_graphs()] == ["", ""]


def test_only_passes_are_run(program: Program) -> None:
    wrong: Any
    for wrong in ([Negate], Negate(), ["negate"], None, 5):
        with pytest.raises(OptionError, match=r"no list of passes: .* \(give pipeline text, or"):
            compile_program(program, wrong)


# -- order -----------------------------------------------------------------------------------------------------


def test_stages_run_in_canonical_order() -> None:
    typed = [STAGED[name]() for name in reversed(STAGES)]
    assert [p.at_stage for p in canonical_order(typed)] == list(STAGES)


def test_passes_without_a_stage_keep_their_place() -> None:
    typed = [STAGED["clip"](), Idle(), STAGED["accumulate"](), Negate(), STAGED["unscale"]()]
    names = [p.name for p in canonical_order(typed)]
    assert names == ["at-accumulate", "idle", "at-unscale", "negate", "at-clip"]


def test_equal_stages_keep_their_order() -> None:
    a, b = STAGED["clip"](), STAGED["clip"]()
    ordered = canonical_order([a, STAGED["accumulate"](), b])
    assert ordered[1] is a
    assert ordered[2] is b


def test_the_manager_orders_and_records_it(program: Program) -> None:
    result = compile_program(program, "at-clip,idle,at-accumulate")
    assert result.pipeline == "at-accumulate,idle,at-clip"


def test_an_unknown_stage_is_an_error() -> None:
    with pytest.raises(OptionError, match="did you mean 'clip'"):
        canonical_order([staged("clipp")()])


# -- matches ---------------------------------------------------------------------------------------------------


def test_a_pass_that_matches_nothing_fails(program: Program) -> None:
    with pytest.raises(PassError) as caught:
        compile_program(program, "negate,nothing")
    assert str(caught.value) == (
        "pass 'nothing' matched nothing, after negate "
        "(site 0: too small; site 1: too small; site 2: too small; and 2 more). Leave it out, "
        "write 'nothing?', or allow it with allow_no_match=True"
    )


def test_matching_nothing_can_be_allowed(program: Program) -> None:
    with pytest.warns(NoMatchWarning, match="pass 'nothing' matched nothing"):
        result = compile_program(program, "nothing", allow_no_match=True)
    assert len(result.reports[0].misses) == 5


def test_an_optional_pass_may_match_nothing(program: Program) -> None:
    with pytest.warns(NoMatchWarning, match="pass 'nothing' matched nothing, after negate"):
        result = compile_program(program, "negate,nothing?,idle")
    assert [r.name for r in result.reports] == ["negate", "nothing", "idle"]
    assert result.pipeline == "negate{times=1},nothing?,idle"


def test_an_optional_pass_may_find_no_place_for_itself(program: Program) -> None:
    with pytest.raises(NotApplicable, match="no place"):
        compile_program(program, "placeless")
    for pipeline, allowed in (("placeless?", False), ("placeless", True)):
        with pytest.warns(NoMatchWarning, match=r"matched nothing \(the network: there is no place\)"):
            result = compile_program(program, pipeline, allow_no_match=allowed)
        assert result.reports[0].matched == 0


def test_cleanups_may_match_nothing(program: Program) -> None:
    assert compile_program(program, "idle").reports[0].matched == 0


# -- failures --------------------------------------------------------------------------------------------------


def test_a_broken_program_is_not_blamed_on_a_pass(program: Program) -> None:
    graph = program.graphs["step"]
    graph.reorder(reversed(list(graph)))
    with pytest.raises(VerifyError) as caught:
        compile_program(program, "idle")
    assert not isinstance(caught.value, BrokenProgram)
    assert "idle" not in str(caught.value)


def test_a_pass_that_breaks_the_program_is_named(program: Program, tmp_path: Path) -> None:
    with pytest.raises(BrokenProgram) as caught:
        compile_program(program, "negate,idle,break,idle", reproducer_directory=tmp_path)
    message = str(caught.value)
    assert "pass 'break' broke the program" in message
    assert ", after negate,idle" in message
    assert "--passes 'break,idle'" in message
    assert caught.value.reproducer in tmp_path.iterdir()


UPDATE = """state %w: float32[2]
graph @step(%x: float32[2]) {
  %y = Neg(%x)
  %new = AssignAdd(%w, %y, umonad)
  %t = UpdateState(umonad, %new)
  %result = Depend(%y, %t)
  return %result
}"""


@pytest.fixture
def verified(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of the programs that are verified as a whole, where nothing asks for more than by default."""
    monkeypatch.delenv(VERIFY)
    names: list[str] = []

    def counted(subject: Program) -> None:
        names.append(subject.name)
        verify(subject)

    monkeypatch.setattr(verifier, "verify", counted)
    return names


def test_a_program_is_verified_before_all_passes_and_after_them(program: Program, verified: list[str]) -> None:
    compile_program(program, "negate,idle,negate,idle")
    assert len(verified) == 2
    compile_program(program, "negate,idle", verify_each=True)
    assert len(verified) == 2 + 3
    compile_program(program, "negate,idle", instrumentation=Instrumentation(judge=lambda p, after: None))
    assert len(verified) == 2 + 3 + 3
    compile_program(program, "negate,idle", verify_each=False)
    assert len(verified) == 2 + 3 + 3


@pytest.mark.parametrize("behind", ["idle", "negate,idle", "crash", "refuse", "negate,nothing", "wrong"])
def test_what_broke_the_program_is_named_whatever_comes_of_it(
    program: Program, verified: list[str], behind: str, tmp_path: Path
) -> None:
    with pytest.raises(BrokenProgram, match="pass 'break' broke the program") as caught:
        compile_program(program, f"negate,idle,break,{behind}", reproducer_directory=tmp_path)
    assert ", after negate,idle" in str(caught.value)
    assert [caught.value.reproducer] == list(tmp_path.iterdir())
    again = parse_program(caught.value.reproducer.read_text())
    assert shown(again) == shown(compile_program(program, "negate,idle"))


@pytest.mark.parametrize(
    ("pipeline", "what"),
    [
        ("lose,dead-code-elimination", "its effect would silently not happen"),
        ("lose,effect-chain-minimization", "its effect would silently not happen"),
        ("undate,effect-chain-minimization", "writes in place but has no token"),
    ],
)
def test_no_clean_up_hides_a_lost_update(verified: list[str], pipeline: str, what: str) -> None:
    """It drops the write, and leaves a valid program that does not train."""
    source = parse_program(UPDATE)
    assert "AssignAdd" not in shown(compile_program(source, pipeline, verify_each=False))
    name = pipeline.partition(",")[0]
    with pytest.raises(BrokenProgram, match=rf"pass '{name}' broke the program(.|\n)*{what}"):
        compile_program(source, pipeline, reproducer_directory=None)


def test_an_error_behind_sound_passes_is_its_own(program: Program, verified: list[str], tmp_path: Path) -> None:
    with pytest.raises(AnatomyError, match="has no gradient\n  in pass 'refuse', after negate"):
        compile_program(program, "negate,refuse", reproducer_directory=tmp_path)
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(InternalError, match="pass 'crash' crashed") as caught:
        compile_program(program, "negate,crash", reproducer_directory=tmp_path)
    assert [caught.value.reproducer] == list(tmp_path.iterdir())


def test_verification_can_be_left_out(program: Program) -> None:
    result = compile_program(program, "break", verify_each=False)
    assert next(iter(result.graphs["step"])).name == "kept"


def test_an_error_of_a_pass_keeps_its_kind(program: Program, tmp_path: Path) -> None:
    with pytest.raises(AnatomyError) as caught:
        compile_program(program, "negate,refuse", reproducer_directory=tmp_path)
    assert str(caught.value) == "weight 'w' has no gradient\n  in pass 'refuse', after negate"
    assert list(tmp_path.iterdir()) == []


def test_a_wrong_result_is_a_bug_of_the_pass(program: Program, tmp_path: Path) -> None:
    with pytest.raises(InternalError, match="returned NoneType, not a PassResult"):
        compile_program(program, "wrong", reproducer_directory=tmp_path)


def test_a_crash_leaves_a_file_that_repeats_it(program: Program, tmp_path: Path) -> None:
    with pytest.raises(InternalError) as caught:
        compile_program(program, "negate,crash{depth=3},idle", reproducer_directory=tmp_path)
    path = caught.value.reproducer
    assert path is not None
    assert path.parent == tmp_path
    assert re.fullmatch(r"boost-compile-crash-[0-9a-f]{12}\.ir", path.name)
    assert f"rerun with: boost-compile {path} --passes 'crash{{depth=3}},idle'" in str(caught.value)
    text = path.read_text()
    assert "pass 'crash' crashed: StopIteration" in text
    # The file holds the program as the failing pass met it, and reading it back fails in the same way.
    again = parse_program(text)
    assert shown(again) == shown(compile_program(program, "negate"))
    with pytest.raises(InternalError, match="pass 'crash' crashed: StopIteration"):
        compile_program(again, "crash{depth=3},idle", reproducer_directory=tmp_path)


def test_a_reproducer_holds_no_weights(tmp_path: Path) -> None:
    trained = parse_program(TEXT).with_values({"big": np.full(1000, 0.125, "float32")})
    with pytest.raises(InternalError) as caught:
        compile_program(trained, "crash", reproducer_directory=tmp_path)
    assert caught.value.reproducer is not None
    again = parse_program(caught.value.reproducer.read_text())
    assert not again.state["big"].initial.any()
    assert again.state["w"].initial.tolist() == [1.0, 2.0]


def test_small_state_stays_in_a_reproducer(tmp_path: Path) -> None:
    """A kilobyte: hyperparameters and counters, which may matter."""
    sizes = {"small": 1024, "large": 1025}
    states = "".join(f"state %{name}: int8[{n}]<zeros>\n" for name, n in sizes.items())
    source = parse_program(f"{states}graph @g(%x: float32[2]) {{\n  %y = Neg(%x)\n  return %y\n}}")
    full = source.with_values({name: np.ones(n, "int8") for name, n in sizes.items()})
    with pytest.raises(InternalError) as caught:
        compile_program(full, "crash", reproducer_directory=tmp_path)
    assert caught.value.reproducer is not None
    again = parse_program(caught.value.reproducer.read_text())
    assert {name: again.state[name].initial.any() for name in sizes} == {"small": True, "large": False}


def test_a_reproducer_goes_elsewhere_if_it_must(program: Program, tmp_path: Path) -> None:
    with pytest.raises(InternalError) as caught:
        compile_program(program, "crash", reproducer_directory=tmp_path / "missing")
    path = caught.value.reproducer
    assert path is not None
    assert path.exists()
    path.unlink()


@pytest.mark.parametrize("name", [name for name, kind in REGISTRY.items() if kind.redone])
def test_what_is_put_in_last_is_asked_for_once(program: Program, name: str) -> None:
    with pytest.raises(PassError, match=f"'{name}' is asked for twice: ask for it once"):
        compile_program(program, f"{name},{name}")


def test_no_reproducer_is_written_unasked(program: Program, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InternalError) as caught:
        compile_program(program, "crash", reproducer_directory=None)
    assert caught.value.reproducer is None
    assert list(tmp_path.iterdir()) == []
