"""What a result needs."""

from __future__ import annotations

from boost_compile.ir.analysis.effects.liveness import live_nodes, result_value, without_order

from tests.graphs import graph, node


def test_the_result_without_what_it_waits_for() -> None:
    g = graph(
        "%y = Neg(%x)\n%u = UpdateState(umonad, %x)\n%d = Depend(%y, %u)\n%e = Depend(%d, %u)\n%n = Exp(%d)\nreturn %e"
    )
    assert result_value(g) is node(g, "y")
    assert without_order(node(g, "n")) is node(g, "n")
    assert without_order(g.inputs[0]) is g.inputs[0]
    assert {n.name for n in live_nodes([g.result])} == {"y", "u", "d", "e"}
    assert {n.name for n in live_nodes([node(g, "n"), g.inputs[0]])} == {"y", "u", "d", "n"}
