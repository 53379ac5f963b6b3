"""boost-reduce: what is left still fails, is small, and the file that it came from is as it was."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest
from boost_compile.ir.core.program import Program
from boost_compile.ir.core.report import PassResult
from boost_compile.ir.formats.mindir.reader import read_mindir
from boost_compile.ir.text import parse_program
from boost_compile.ir.verify.verifier import verify
from boost_compile.passes.framework.base import Pass
from boost_compile.passes.framework.registry import REGISTRY, register
from boost_compile.tools.compile import command as compile_command
from boost_compile.tools.reduce import command
from boost_compile.tools.reduction.minimize import minimize
from hypothesis import given
from hypothesis import strategies as st

from .support import Shell, assert_one_error, shell

Exported = Callable[[str], Path]
Reduce = Callable[..., Shell]


# -- delta debugging ---------------------------------------------------------------------------------------------------


@given(st.integers(0, 60), st.data())
def test_the_items_that_matter_are_found(n: int, data: st.DataObject) -> None:
    needed = data.draw(st.sets(st.integers(0, n - 1)) if n else st.just(set()))
    tests = 0

    def fails(items: Sequence[int]) -> bool:
        nonlocal tests
        tests += 1
        return needed <= set(items)

    assert minimize(range(n), fails) == sorted(needed)
    assert tests <= 2 * (len(needed) + 1) * (n.bit_length() + 1) + 1


@given(st.lists(st.integers(0, 9), max_size=12), st.integers())
def test_whatever_the_test_says_no_single_item_is_too_many(items: list[int], seed: int) -> None:
    def fails(some: Sequence[int]) -> bool:
        coin = hashlib.sha256(repr((tuple(some), seed)).encode()).digest()[0]
        return list(some) == items or coin < 100

    left = minimize(items, fails)
    assert fails(left)
    assert not any(fails(left[:i] + left[i + 1 :]) for i in range(len(left)))


# -- programs ----------------------------------------------------------------------------------------------------------


@pytest.fixture
def reduce_(capsys: pytest.CaptureFixture[str]) -> Reduce:
    return lambda *arguments: shell(capsys, command, *arguments)


@pytest.fixture
def faulty() -> Iterator[None]:
    """Two passes with bugs, each in the presence of two primitives at once."""

    def both(program: Program) -> bool:
        return all(
            any(n.op.name == name for g in program.graphs.values() for n in g) for name in ("BiasAdd", "ApplyMomentum")
        )

    class Crashing(Pass):
        """Crashes where a bias is added and momentum applied."""

        name = "crashing"
        may_match_nothing = True

        def run(self, program: Program) -> PassResult:
            if both(program):
                raise KeyError("no such thing")
            return self.result()

    class Breaking(Pass):
        """Leaves the result without a type there."""

        name = "breaking"
        may_match_nothing = True

        def run(self, program: Program) -> PassResult:
            if both(program):
                for graph in program.graphs.values():
                    graph.outputs = (*graph.outputs, "one too many")
            return self.result()

    register(Crashing)
    register(Breaking)
    yield
    del REGISTRY["crashing"], REGISTRY["breaking"]


@pytest.mark.parametrize("name", ["crashing", "breaking"])
@pytest.mark.usefixtures("faulty")
def test_a_pass_with_a_bug(name: str, reduce_: Reduce, exported: Exported, tmp_path: Path) -> None:
    source, target = exported("lenet_bn"), tmp_path / "small.ir"
    before = source.read_bytes()
    pipeline = f"dead-code-elimination,{name},gradient-accumulation{{steps=4}},common-subexpression-elimination"
    done = reduce_(source, "--passes", pipeline, "-o", target, "-q")
    assert (done.code, done.err) == (0, "")
    assert source.read_bytes() == before
    text = target.read_text()
    assert f"// rerun with: boost-compile {target} --passes {name}\n" in text
    program = parse_program(text)
    verify(program)
    ops = [n.op.name for n in program.graphs["step"]]
    # A bias, an update, what it needs of tokens, and a result.
    assert {"BiasAdd", "ApplyMomentum"} <= set(ops)
    assert len(ops) <= 6
    assert max((v.type.size for v in program.state.values()), default=0) <= 2, "shapes are shrunk too"
    assert set(program.state) == program.used_state(), "state that nothing uses is dropped"
    again = reduce_(target, "--passes", name, "-o", tmp_path / "again.ir", "-q")
    assert again.code == 0, "what was written fails too"
    assert len(parse_program((tmp_path / "again.ir").read_text()).graphs["step"]) == len(ops)


@pytest.mark.usefixtures("faulty")
def test_the_same_every_time_and_bounded(reduce_: Reduce, exported: Exported, tmp_path: Path) -> None:
    texts = []
    for i in range(2):
        done = reduce_(exported("mlp"), "--passes", "crashing", "--max-tests", "5", "-o", tmp_path / f"{i}.ir")
        assert done.code == 0
        assert "5 tests; stopped" in done.out
        texts.append((tmp_path / f"{i}.ir").read_text().partition("program ")[2])
    assert texts[0] == texts[1]
    assert len(parse_program("program " + texts[0]).graphs["step"]) < len(read_mindir(exported("mlp")).graphs["step"])


@pytest.mark.usefixtures("faulty")
def test_a_crash_file_says_itself_which_passes_fail(
    reduce_: Reduce,
    exported: Exported,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    crashed = shell(capsys, compile_command, exported("mlp"), "--passes", "crashing", "-o", tmp_path / "out.boost")
    assert crashed.code == 1
    (file,) = tmp_path.glob("boost-compile-crash-*.ir")
    assert reduce_(file, "-q").code == 0
    assert (tmp_path / f"{file.stem}-reduced.ir").exists()


def test_a_command_of_the_user(reduce_: Reduce, exported: Exported, tmp_path: Path) -> None:
    """Its exit status for the original is what is looked for, be it 0 or not."""
    target = tmp_path / "small.ir"
    done = reduce_(exported("mlp"), "--check", "! grep -q 'MatMul(.*float32' {}", "-o", target, "-q", "--timeout", "60")
    assert done.code == 0, done.err
    ops = [n.op.name for n in parse_program(target.read_text()).graphs["step"]]
    assert "MatMul" in ops
    assert len(ops) <= 3


def test_an_error_with_a_given_message(reduce_: Reduce, exported: Exported, tmp_path: Path) -> None:
    target = tmp_path / "small.ir"
    pipeline = "gradient-accumulation{steps=2},overflow-check{policy=skip-micro}"
    arguments = (exported("mlp_loss_scale_dynamic"), "--passes", pipeline, "-o", target, "-q")
    assert reduce_(*arguments, "--match", "skips its update by itself").code == 0
    assert "IsFinite" in target.read_text() or "FloatStatus" in target.read_text()
    assert_one_error(reduce_(*arguments, "--match", "something else"), "boost-reduce", "nothing to reduce")


def test_errors(reduce_: Reduce, exported: Exported, tmp_path: Path) -> None:
    source, target = exported("mlp"), tmp_path / "small.ir"
    for arguments, fragment in (
        ((source, "--passes", "dead-code-elimination", "-o", target), "nothing to reduce"),
        ((source, "-o", target), "--passes PIPELINE"),
        ((source, "--passes", "dead-code-elimination", "-o", source), "is the input"),
        ((source, "--check", "false", "-o", target), "{}"),
        ((source, "--check", "false {}", "--verify", "-o", target), "leave out"),
        ((source, "--passes", "no-such-pass", "-o", target), "no-such-pass"),
        ((source, "--passes", "dead-code-elimination", "-o", tmp_path / "none" / "x.ir"), "no directory"),
    ):
        assert_one_error(reduce_(*arguments), "boost-reduce", fragment)
        assert not target.exists()


@pytest.mark.slow
def test_a_program_that_trains_wrong(
    reduce_: Reduce, exported: Exported, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A pass of another distribution, wrong by a factor; judged by boost-verify in processes of their own."""
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "doubling.py").write_text(DOUBLING)
    info = tmp_path / "doubling-1.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: doubling\nVersion: 1\n")
    (info / "entry_points.txt").write_text("[boost_compile.passes]\ndoubling = doubling:Doubling\n")
    target = tmp_path / "small.ir"
    try:
        done = reduce_(
            exported("mlp"), "--passes", "dead-code-elimination,doubling", "--verify", "--max-tests", "8", "-o", target
        )
    finally:
        REGISTRY.pop("doubling", None)
    assert done.code == 0, done.err
    assert "property '" in done.out
    assert f"rerun with: boost-compile {target} --verify --passes doubling" in done.out
    assert len(parse_program(target.read_text()).graphs["step"]) < len(read_mindir(exported("mlp")).graphs["step"])


DOUBLING = """
from boost_compile.passes.framework.base import Pass


class Doubling(Pass):
    'Claims to preserve training, and doubles every gradient.'

    name = "doubling"

    def run(self, program):
        result = self.result()
        for graph in program.graphs.values():
            for node in list(graph):
                if node.op.name == "ApplyMomentum":
                    with graph.inserting_before(node):
                        node.set_operand(3, graph.create("Add", [node.operand(3), node.operand(3)]))
                    result.matched += 1
        return result
"""


def test_a_failure_is_told_in_the_words_of_the_commands(reduce_: Reduce, exported: Exported, tmp_path: Path) -> None:
    done = reduce_(exported("mlp"), "--passes", "less-bn", "-o", tmp_path / "small.ir")
    assert done.code == 0
    assert "allow it with boost-compile" in done.out
    assert "allow_no_match" not in done.out + (tmp_path / "small.ir").read_text()
