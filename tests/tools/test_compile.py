"""boost-compile on good input: what it writes, says and prints where."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from boost_compile.ir.formats.storage.load import load
from boost_compile.ir.text import parse_program
from boost_compile.ir.verify import verifier
from boost_compile.passes import REGISTRY, Pass, PassResult, parse_pipeline
from boost_compile.passes.framework.manager import VERIFY
from boost_compile.tools.compile import DEFAULT_PIPELINE, command

from .support import Shell, process, shell

TEXT = """
state %w: float32[2]<1.0, 2.0> role=weight
graph @step(%x: float32[2]) -> (loss) {
  %read = Load(%w, umonad)
  %dead = Exp(%x) : float32[2]
  %y = Add(%x, %read)
  %z = Add(%x, %read)
  %sum = Add(%y, %z)
  return %sum
}
"""

Compile = Callable[..., Shell]


@pytest.fixture
def source(here: Path) -> Path:
    path = here / "small.ir"
    path.write_text(TEXT)
    return path


@pytest.fixture
def compile_(capsys: pytest.CaptureFixture[str]) -> Compile:
    return lambda *arguments: shell(capsys, command, *arguments)


class Boom(Pass):
    """Crashes."""

    name = "boom"

    def run(self, program: Any) -> PassResult:
        raise RuntimeError("the bug")


class Blind(Pass):
    """Matches nothing, with a reason for each of many sites."""

    name = "blind"
    preserves = False

    def run(self, program: Any) -> PassResult:
        result = self.result()
        for i in range(9):
            result.miss(f"node {i}", "is not [right]")
        return result


@pytest.fixture(autouse=True)
def registered(monkeypatch: pytest.MonkeyPatch) -> None:
    for cls in (Boom, Blind):
        monkeypatch.setitem(REGISTRY, cls.name, cls)


# -- output ----------------------------------------------------------------------------------------------------


def test_the_default_is_a_program_directory_by_the_inputs_name(source: Path, here: Path, compile_: Compile) -> None:
    done = compile_(source)
    assert done.code == 0
    assert done.err == ""
    assert sorted(p.name for p in here.iterdir()) == ["small.boost", "small.ir"]
    assert f"No passes given; ran the default clean-up: {DEFAULT_PIPELINE}" in done.out
    assert "Wrote small.boost" in done.out
    assert "Next: boost-run small.boost --data" in done.out
    written = load("small.boost")
    assert written.pipeline == DEFAULT_PIPELINE
    assert [n.op.name for n in written.graphs["step"]].count("Exp") == 0
    assert [r.name for r in written.reports] == DEFAULT_PIPELINE.split(",")


def test_text_on_stdout_leaves_the_report_to_stderr(source: Path, here: Path, compile_: Compile) -> None:
    done = compile_(source, "--emit", "text", "-o", "-", "--passes", "dead-code-elimination")
    assert done.code == 0
    program = parse_program(done.out)
    assert [n.op.name for n in program.graphs["step"]] == ["Load", "Add", "Add", "Add"]
    assert "dead-code-elimination" in done.err
    assert list(here.iterdir()) == [source]


def test_quiet(source: Path, compile_: Compile) -> None:
    done = compile_(source, "-q")
    assert (done.out, done.err) == ("", "")


def test_text_from_stdin(here: Path) -> None:
    done = process("compile", "-", "--emit", "text", "-o", "-", "-q", "--no-annotations", stdin=TEXT)
    assert (done.code, done.err) == (0, "")
    assert "%sum = Add(%y, %y)" in done.out


def test_the_suffix_says_what_to_write(source: Path, here: Path, compile_: Compile) -> None:
    for name in ("out.ir", "out.txt"):
        assert compile_(source, "-o", name, "-q").code == 0
        assert parse_program((here / name).read_text()).graphs
    assert compile_(source, "-o", "out", "-q").code == 0
    assert load("out").graphs


def test_the_input_is_not_overwritten_by_default(source: Path, here: Path, compile_: Compile) -> None:
    assert compile_(source, "--emit", "text", "-q").code == 0
    assert source.read_text() == TEXT
    assert "Exp" not in (here / "small.compiled.ir").read_text()


def test_an_empty_pipeline_changes_nothing(source: Path, compile_: Compile) -> None:
    done = compile_(source, "--passes", "", "--emit", "text", "-o", "-", "-q")
    assert [n.op.name for n in parse_program(done.out).graphs["step"]] == ["Load", "Exp", "Add", "Add", "Add"]


def test_a_program_directory_is_input_too(source: Path, compile_: Compile) -> None:
    assert compile_(source, "-q", "--passes", "dead-code-elimination").code == 0
    done = compile_("small.boost", "--passes", "common-subexpression-elimination", "-o", "again.boost", "--json")
    assert [p["name"] for p in done.document["passes"]] == ["common-subexpression-elimination"]
    assert load("again.boost").pipeline == "dead-code-elimination,common-subexpression-elimination"


def test_target(source: Path, compile_: Compile) -> None:
    assert compile_(source, "--target", "ascend", "-q").code == 0
    assert load("small.boost").target == "ascend"


# -- reports ---------------------------------------------------------------------------------------------------


def test_json(source: Path, compile_: Compile) -> None:
    done = compile_(source, "--json", "--passes", "dead-code-elimination")
    assert done.err == ""
    document = done.document
    assert set(document) == {
        "input", "output", "emit", "bytes", "pipeline", "default_pipeline", "target", "passes", "graphs",
        "source_graphs", "schedule", "state", "seconds",
    }  # fmt: skip
    (report,) = document["passes"]
    assert report["changed"] == 1
    assert report["statistics"] == {"nodes": 1, "functions": 0, "state": []}
    assert document["default_pipeline"] is False
    assert (document["source_graphs"], document["graphs"]) == ({"step": 5}, {"step": 4})
    assert document["state"] == {"variables": 1, "bytes": 8}
    assert document["schedule"]["micro_batches"] == 1
    assert document["bytes"] == sum(f.stat().st_size for f in Path("small.boost").iterdir())


def test_misses_are_folded(source: Path, compile_: Compile) -> None:
    done = compile_(source, "--passes", "blind", "--allow-no-match")
    assert done.code == 0
    assert "blind left 9 sites alone:" in done.out
    assert "  node 4: is not [right]" in done.out
    assert "node 5" not in done.out
    assert "… and 4 more" in done.out
    assert "blind changes training" in done.out
    assert "Warning: blind matched nothing" in done.out
    assert done.err == ""


def test_statistics_and_times_go_to_stderr(source: Path, compile_: Compile) -> None:
    done = compile_(source, "--json", "--pass-statistics", "--time-passes")
    assert done.document["passes"]
    for word in ("Pass statistics", "constants", "Time", "read", "write", "total", "dead-code-elimination"):
        assert word in done.err


def test_dumps_go_to_stderr(source: Path, compile_: Compile) -> None:
    arguments = ("--print-ir-after", "--print-ir-diff=dead-code-elimination", "--emit", "text", "-o", "-", "-q")
    done = compile_(*arguments, source)
    assert parse_program(done.out).graphs
    for name in DEFAULT_PIPELINE.split(","):
        assert f"// -----// IR Dump After {name} //----- //" in done.err
    assert done.err.count("IR Difference After") == 1


@pytest.mark.parametrize(
    ("options", "times"), [((), 2), (("--verify-each",), 4), (("--no-verify-each",), 0), (("--print-ir-after",), 4)]
)
def test_how_often_a_program_is_verified(
    source: Path, compile_: Compile, monkeypatch: pytest.MonkeyPatch, options: tuple[str, ...], times: int
) -> None:
    """Before and behind three passes; behind each of them where somebody looks at what it leaves."""
    monkeypatch.delenv(VERIFY)
    names: list[str] = []
    monkeypatch.setattr(verifier, "verify", lambda program: names.append(program.name))
    assert compile_(source, "-q", *options).code == 0
    assert len(names) == times


def test_bisect(source: Path, compile_: Compile) -> None:
    done = compile_(source, "--opt-bisect-limit", "1", "--json")
    assert len(done.document["passes"]) == 1
    assert "BISECT: NOT running pass (2) effect-chain-minimization" in done.err


# -- listings --------------------------------------------------------------------------------------------------


def test_list_passes(compile_: Compile) -> None:
    done = compile_("--list-passes")
    assert "dead-code-elimination: Removes nodes" in done.out
    assert "  steps=4 (int, at least 1): " in done.out
    assert "blind: Matches nothing, with a reason for each of many sites. (changes training)" in done.out
    assert "`" not in done.out  # no markup of docstrings


def test_list_passes_as_json(compile_: Compile) -> None:
    document = compile_("--list-passes", "--json").document
    steps = document["gradient-accumulation"]["options"]["steps"]
    assert (steps["type"], steps["default"], steps["required"]) == ("int", 4, False)
    assert document["gradient-accumulation"]["stage"] == "accumulate"
    assert document["blind"]["preserves"] is False


def test_dump_pipeline(compile_: Compile) -> None:
    done = compile_("--dump-pipeline", "--accumulate", "8", "--split", "fused", "--passes", "dead-code-elimination")
    assert done.out == (
        "gradient-accumulation{steps=8,reduction=auto,weight=none,offset=0.0,least=0.0,split=fused,dtype=float32,carry=[]},dead-code-elimination\n"
    )


def test_flags_around_the_optimizer(compile_: Compile) -> None:
    flags = ("--data-parallel", "--centralize", "--clip-norm", "0.5", "--check-overflow", "--loss-scale", "8")
    passes = {p.name: p.options() for p in parse_pipeline(compile_("--dump-pipeline", *flags).out.strip())}
    centralization = {"tag-gradient-centralization", "lower-gradient-centralization"}
    assert passes.keys() == {"loss-scale", "overflow-check", "clip-gradients", "data-parallel"} | centralization
    assert passes["loss-scale"]["init"] == 8
    assert (passes["clip-gradients"]["by"], passes["clip-gradients"]["limit"]) == ("global-norm", 0.5)


# -- failures of ours ------------------------------------------------------------------------------------------


def test_a_crash_says_where_the_reproducer_is(source: Path, here: Path, compile_: Compile) -> None:
    done = compile_(source, "--passes", "dead-code-elimination,boom")
    assert done.code == 1
    assert done.out == ""
    (reproducer,) = here.glob("boost-compile-crash-*.ir")
    assert "internal: pass 'boom' crashed: RuntimeError: the bug" in done.err
    assert f"rerun with: boost-compile {reproducer.name} --passes 'boom'" in done.err
    assert sorted(p.name for p in here.iterdir()) == sorted([reproducer.name, "small.ir"])
    again = compile_(reproducer, "--passes", "boom")
    assert again.code == 1


def test_an_unforeseen_failure_is_one_message(source: Path, compile_: Compile, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> None:
        raise KeyError("surprise")

    monkeypatch.setattr("boost_compile.tools.cli.read_program", broken)
    done = compile_(source)
    assert done.code == 1
    assert done.err.startswith("boost-compile: error: internal: KeyError: 'surprise'")
    assert "Traceback" not in done.err


def test_interrupted(source: Path, compile_: Compile, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("boost_compile.tools.cli.read_program", interrupted)
    assert compile_(source).code == 130


def test_a_reader_that_goes_away_is_no_error(source: Path) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    arguments = [sys.executable, "-m", "boost_compile.tools.compile", str(source), "--emit", "text", "-o", "-"]
    try:
        done = subprocess.run(arguments, stdout=writing, stderr=subprocess.PIPE)
    finally:
        os.close(writing)
    assert done.stderr == b""
    assert done.returncode == 128 + signal.SIGPIPE


# -- a real file -----------------------------------------------------------------------------------------------


def test_default_pipeline_on_an_exported_file(here: Path, compile_: Compile, exported: Callable[[str], Path]) -> None:
    done = compile_(exported("lenet_bn"), "--json", "-o", "out.boost")
    assert done.code == 0, done.err
    document = done.document
    assert document["default_pipeline"] is True
    assert sum(document["graphs"].values()) <= sum(document["source_graphs"].values())
    names = {p["name"]: p for p in document["passes"]}
    assert names["effect-chain-minimization"]["changed"] > 0
    written, source = load("out.boost"), load(str(exported("lenet_bn")))
    assert set(written.state) == set(source.state)
    roles = {name: v.role for name, v in written.state.items()}
    assert (roles["conv1.weight"], roles["moments.conv1.weight"], roles["bn1.moving_mean"]) == (
        "weight",
        "slot",
        "statistic",
    )


def test_accumulate_on_an_exported_file(here: Path, compile_: Compile, exported: Callable[[str], Path]) -> None:
    done = compile_(exported("lenet_bn"), "--accumulate", "4")
    assert done.code == 0, done.err
    assert "gradients accumulated over 4 micro-batches" in done.out
    assert "a window of 4 micro-batches is one optimizer step" in done.out
    program = load(f"{exported('lenet_bn').stem}.boost")
    assert program.micro_batches() == 4
    assert any(name.startswith("accum.") for name in program.state)


def test_emit_mindir(here: Path, compile_: Compile, exported: Callable[[str], Path]) -> None:
    done = compile_(exported("lenet_bn"), "--emit", "mindir", "--json")
    assert done.code == 0, done.err
    assert done.document["output"].endswith(".mindir")
    assert load(done.document["output"]).state.keys() == load(str(exported("lenet_bn"))).state.keys()


def test_the_same_file_gives_the_same_text_in_every_process(exported: Callable[[str], Path], tmp_path: Path) -> None:
    texts = []
    for run in range(3):
        path = tmp_path / f"{run}.txt"
        done = process("compile", exported("branch"), "--passes", "gradient-accumulation,overflow-check", "-o", path)
        assert done.code == 0, done.err
        texts.append(path.read_bytes())
    assert texts[0] == texts[1] == texts[2]


LAMB = """
state %w: float32[2] role=weight
state %m: float32[2] role=slot
state %v: float32[2] role=slot
graph @step(%x: float32[2]) {
  %new = Lamb(%w, %m, %v, 1.0, 1.0, 0.1, 0.9, 0.99, 1e-06, %x, umonad) : float32[2]
  %u = UpdateState(umonad, %new)
  %r = Depend(%x, %u)
  return %r
}
"""


@pytest.mark.parametrize("passes", ["dead-code-elimination", "effect-chain-minimization,legalize"])
def test_a_named_target_without_a_kernel_is_refused(here: Path, compile_: Compile, passes: str) -> None:
    """Whatever passes were asked for; without a named target only a note says so, and legalize if it is asked for."""
    (here / "lamb.ir").write_text(LAMB)
    refused = compile_("lamb.ir", "--target", "cpu", "--passes", passes, "-o", "out.ir")
    assert refused.code == 2
    assert "MindSpore has no cpu kernel for Lamb (node %new, graph 'step')" in refused.err
    assert not (here / "out.ir").exists()
    assert compile_("lamb.ir", "--target", "gpu", "--passes", passes, "-o", "out.ir").code == 0
    noted = compile_("lamb.ir", "--passes", "dead-code-elimination", "-o", "noted.ir")
    assert noted.code == 0
    assert "Note: MindSpore has no cpu kernel for Lamb" in noted.err
    assert "A session on cpu will refuse the program" in noted.err


HALF = """
graph @net(%x: bfloat16[2,2]) {
  %y = ReLU(%x) : bfloat16[2,2]
  %r = MatMul(%y, %y, false, false) : bfloat16[2,2]
  return %r
}
"""


def test_a_named_target_with_kernels_for_other_element_types_is_refused(here: Path, compile_: Compile) -> None:
    (here / "half.ir").write_text(HALF)
    refused = compile_("half.ir", "--target", "gpu", "-o", "out.ir")
    assert refused.code == 2
    assert "MindSpore has no gpu kernel for ReLU of (bfloat16); those that it has take bool, float16" in refused.err
    assert "(node %y, graph 'net'), and no rule replaces it." in refused.err
    assert "Or compile for ascend, which has it." in refused.err
    assert not (here / "out.ir").exists()
    assert compile_("half.ir", "--target", "ascend", "-o", "out.ir").code == 0
