"""An Ascend chip's overflow flag over a cycle, by structure (no such chip was at hand): no micro-batch may clear what
another one left, and each cycle must end with a cleared flag."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from boost_compile.ir.core.graph import Graph, Node, State
from boost_compile.ir.core.walk import live_nodes

import boost_compile as bc

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
    for graph in (g for name, g in program.graphs.items() if name != "accumulate"):
        (read,), (clear,) = nodes(graph, READ), nodes(graph, CLEAR)
        assert read in live_nodes([clear])
        assert clear.graph is not None
        assert clear in live_nodes([clear.graph.result])
        awaited = {v.name for node in live_nodes([read]) for v in node.operands if isinstance(v, State)}
        if clear.graph is graph:  # a function gets its operands from where it is called
            assert any(state.startswith("accum.") for state in awaited)
    assert [m.site for r in program.reports for m in r.misses if "FloatStatus" in m.reason] == []
