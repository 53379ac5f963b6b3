"""The list of lowerings: one copy of a graph, verified after each; the same text from both commands and a session."""

from __future__ import annotations

import re
from pathlib import Path
from types import SimpleNamespace

import pytest
from boost_compile.ir.core.errors import VerifyError
from boost_compile.ir.core.graph import Graph
from boost_compile.ir.text import parse_program, print_program
from boost_compile.runtime.lowering import cropping
from boost_compile.runtime.lowering.context import Context, name_of
from boost_compile.runtime.lowering.lower import LOWERINGS, lower
from boost_compile.tools import compile as compile_command
from boost_compile.tools import run as run_command

import boost_compile as bc
from tests.tools.support import assert_one_error, shell

HERE = Path(__file__).parent
CROPPING = (HERE / "cropping.ir").read_text()
TRAINS = """
state %w: float32[4] role=weight
graph @step(%x: float32[4]) -> (loss) {
  %both = Dropout(%x, 0.5, 0, 0) : (float32[4], float32[4])
  %y = TupleGetItem(%both, 0)
  %sum = AllReduce(%y) {group = "nccl_world_group", op = "sum"} : float32[4]
  %s = AssignSub(%w, %sum, umonad)
  %u = UpdateState(umonad, %s)
  %d = Depend(%sum, %u)
  return %d
}
"""


def test_the_page_of_the_architecture_lists_them_in_their_order() -> None:
    page = (HERE.parents[2] / "docs" / "architecture.md").read_text()
    section = page.partition("## Lowering")[2].partition("\n## ")[0]
    assert re.findall(r"^\| `(.*?)` \|", section, re.MULTILINE) == [name_of(lowering) for lowering in LOWERINGS]


@pytest.mark.parametrize("lowering", LOWERINGS, ids=name_of)
def test_each_has_its_words_and_its_text(lowering: object) -> None:
    assert lowering.__doc__
    assert (HERE / f"{lowering.__name__.rpartition('.')[2]}.ir").exists()  # type: ignore[attr-defined]


def test_the_source_stays_and_is_copied_once(monkeypatch: pytest.MonkeyPatch) -> None:
    program = parse_program(TRAINS)
    before = print_program(program)
    clones: list[Graph] = []
    clone = Graph.clone

    def counting(graph: Graph, name: str | None = None) -> object:
        clones.append(graph)
        return clone(graph, name)

    monkeypatch.setattr(Graph, "clone", counting)
    lowered = lower(program.graphs["step"], Context(program, "cpu", seed=1))
    assert [name for name, _ in lowered.steps] == ["alone", "draws"]
    assert clones == [program.graphs["step"]]
    assert print_program(program) == before


def test_where_nothing_applies_nothing_is_copied() -> None:
    program = parse_program("graph @g(%x: float32[4]) {\n  %y = Neg(%x)\n  return %y\n}\n")
    lowered = lower(program.graphs["g"], Context(program, "ascend", seed=1))
    assert (lowered.graph is program.graphs["g"], lowered.steps) == (True, ())


def test_what_breaks_a_graph_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def run(graph: Graph, context: Context) -> str:
        next(iter(graph)).type = graph.inputs[0].type
        return "wrong"

    program = parse_program(CROPPING)
    wrong = SimpleNamespace(__name__="lowering.wrong_types", applies=lambda graph, context: True, run=run)
    graph = program.graphs["step"]
    graph.inputs[0].type = parse_program("graph @g(%x: int32[3]) {\n  return %x\n}\n").graphs["g"].inputs[0].type
    monkeypatch.setenv("BOOST_COMPILE_VERIFY_LOWERED", "1")
    with pytest.raises(VerifyError, match="lowering 'wrong-types' broke the graph"):
        lower(graph, Context(program, "cpu"), [wrong, cropping])
    monkeypatch.delenv("BOOST_COMPILE_VERIFY_LOWERED")
    assert dict(lower(graph, Context(program, "cpu"), [wrong]).steps) == {"wrong-types": "wrong"}


def test_commands_and_sessions_print_the_same(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source = tmp_path / "net.ir"
    source.write_text(TRAINS)
    shown = shell(capsys, run_command.command, source, "--print-lowered", "--seed", "7")
    assert (shown.code, shown.out) == (0, "")
    assert "for cpu, rank 0 of 1, seed 7" in shown.err
    assert "AllReduce" not in shown.err
    assert bc.Session(str(source), seed=7).lowered() == shown.err
    other = shell(
        capsys, compile_command.command, source, "--passes", "", "-q", "-o", tmp_path / "x.txt", "--print-lowered",
        "--no-annotations", "--target", "ascend",
    )  # fmt: skip
    assert "for ascend, rank 0 of 1, no seed" in other.err
    assert "alone: 1 collective removed" in other.err


def test_printing_alone_needs_no_data_and_trains_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source = tmp_path / "net.ir"
    source.write_text(TRAINS)
    both = shell(capsys, run_command.command, source, "--print-lowered", "--eval", "f.py:g")
    assert_one_error(both, "boost-run", "--data is missing")
    saving = shell(capsys, run_command.command, source, "--print-lowered", "--save", tmp_path / "x.ckpt")
    assert_one_error(saving, "boost-run", "--save is for training")
