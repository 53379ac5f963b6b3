"""An Ascend chip's overflow flag over a cycle, by structure (no such chip was at hand): no micro-batch may clear what
another one left, and each cycle must end with a cleared flag."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from boost_compile.ir.analysis.training.network import network_parts
from boost_compile.ir.core.graph import Graph, Node, State
from boost_compile.ir.core.walk import live_nodes, without_order
from boost_compile.passes.step.device_status import clear_behind_reading

import boost_compile as bc
from tests.graphs import graph, node

CELLS = ["scaled_dynamic", "scaled_910a", "scaled_allocated", "scaled_asked_in_branch"]
READ, CLEAR = {"NPUGetFloatStatus", "NPUGetFloatStatusV2"}, {"NPUClearFloatStatus", "NPUClearFloatStatusV2"}


def nodes(main: Graph, names: set[str]) -> list[Node]:
    return [node for graph in main.all_graphs() for node in graph if node.op.name in names]


@pytest.mark.parametrize("split", ["apply", "fused"])
@pytest.mark.parametrize("name", CELLS)
def test_a_cycle_reads_the_flag_and_then_clears_it(exported: Callable[[str], Path], name: str, split: str) -> None:
    source = bc.load(str(exported(name)))
    program = bc.compile(source, f"gradient-accumulation{{steps=3,split={split}}}", target="ascend")
    assert nodes(program.graphs["accumulate"], READ | CLEAR) == []
    for updating in (g for name, g in program.graphs.items() if name != "accumulate"):
        (read,), (clear,) = nodes(updating, READ), nodes(updating, CLEAR)
        assert read in live_nodes([clear])
        assert clear.graph is not None
        assert clear in live_nodes([clear.graph.result])
        awaited = {v.name for node in live_nodes([read]) for v in node.operands if isinstance(v, State)}
        if clear.graph is updating:  # a function gets its operands from where it is called
            assert any(state.startswith("accum.") for state in awaited)
    assert [m.site for r in program.reports for m in r.misses if "FloatStatus" in m.reason] == []


def asking(text: str) -> Graph:
    g = graph(text)
    clear_behind_reading(g, network_parts(g), scope="cycle")
    g.sort()
    return g


AT_ONCE = """
state %log: int32[8]
graph @step(%x: float32[2]) {
  %y = Exp(%x) @f
  %began = Depend(int32[8]<zeros>, %y)
  %clear = NPUClearFloatStatusV2(%began) : int32[8]
  %seed = Depend(%x, %clear)
  %g = Mul(%seed, %y) @b
  %ended = Depend(%began, %g)
  %flag = NPUGetFloatStatusV2(%ended) : int32[8]
  %sum = ReduceSum(%flag, (), false) : int32[]
  %kept = Assign(%log, %flag, umonad)
  %u = UpdateState(umonad, %kept)
  %r = Depend(%sum, %u)
  return %r
}"""
"""As MindSpore's cells do it: cleared behind the forward part, read behind the backward part."""
IN_MEMORY = (
    AT_ONCE.replace("Depend(int32[8]<zeros>, %y)", "Depend(%memory, %y)")
    .replace("  %began", "  %memory = NPUAllocFloatStatus() : float32[8]\n  %began")
    .replace("%flag = NPUGetFloatStatusV2(%ended)", "%get = NPUGetFloatStatus(%ended)")
    .replace("  %sum", "  %flag = Depend(%memory, %get)\n  %sum")
    .replace("ClearFloatStatusV2", "ClearFloatStatus")
    .replace("int32", "float32")
)


@pytest.mark.parametrize("text", [AT_ONCE, IN_MEMORY], ids=["at once", "in memory"])
def test_the_flag_is_read_and_then_cleared(text: str) -> None:
    """What waited for the clearing waits no more; the flag waits for the gradient, and no more for the forward part;
    who takes it takes it when it is cleared."""
    g = asking(text)
    (read,), (clear,) = nodes(g, READ), nodes(g, CLEAR)
    assert node(g, "g").operand(0) is g.inputs[0]
    waiting = read.operand(0)
    assert isinstance(waiting, Node)
    assert (waiting.op.name, waiting.operand(1)) == ("Depend", node(g, "g"))
    assert not isinstance(waiting.operand(0), Node) or waiting.operand(0).op.name == "NPUAllocFloatStatus"  # type: ignore[attr-defined]
    assert read in live_nodes([clear])
    assert clear.scope == "cycle"
    assert node(g, "sum").operand(0) is node(g, "kept").operand(1)
    taken = node(g, "sum").operand(0)
    assert isinstance(taken, Node)
    assert (taken.op.name, taken.operand(0), taken.operand(1)) == ("Depend", node(g, "flag"), clear)
    memory = without_order(clear.operand(0))
    if text is IN_MEMORY:
        assert isinstance(memory, Node)
        assert (memory.op.name, memory is node(g, "memory")) == ("NPUAllocFloatStatus", False)


BEHIND = AT_ONCE.replace("  %clear = NPUClearFloatStatusV2(%began) : int32[8]\n  %seed = Depend(%x, %clear)\n", "")
BEHIND = BEHIND.replace("Mul(%seed, %y)", "Mul(%x, %y)").replace(
    "  %sum = ReduceSum(%flag,",
    "  %again = Depend(int32[8]<zeros>, %flag)\n  %clear = NPUClearFloatStatusV2(%again) : int32[8]\n"
    "  %cleared = Depend(%flag, %clear)\n  %sum = ReduceSum(%cleared,",
)
UNREAD = AT_ONCE.replace("NPUGetFloatStatusV2(%ended)", "Neg(%ended)")


def test_a_flag_that_is_cleared_behind_its_reading_stays_as_it_is() -> None:
    before, after = graph(BEHIND), asking(BEHIND)
    assert [n.name for n in after if n.name != "began"] == [n.name for n in before if n.name != "began"]
    assert node(after, "sum").operand(0) is node(after, "cleared")


def test_where_nothing_reads_the_flag_nothing_changes() -> None:
    assert [n.name for n in asking(UNREAD)] == [n.name for n in graph(UNREAD)]
    g = graph(UNREAD)
    assert clear_behind_reading(g, network_parts(g), scope="cycle") == 0
    g = graph(BEHIND)
    assert clear_behind_reading(g, network_parts(g), scope="cycle") == 1
