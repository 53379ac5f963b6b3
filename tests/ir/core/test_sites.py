"""Names of places in messages."""

from __future__ import annotations

from boost_compile.ir.core.sites import site
from boost_compile.ir.text import parse_graph

GRAPH = """graph @g(%x: float32[2]) {
  %scoped = Neg(%x) scope("Default/net-Net/Neg-op0")
  %chosen = Mul(%scoped, float32[2]<1.0, 2.0>)
  return %chosen
}"""


def test_a_place_is_named_in_the_words_of_its_author() -> None:
    graph = parse_graph(GRAPH)
    scoped, chosen = graph
    assert site(scoped) == "Neg in Default/net-Net/Neg-op0 (%scoped)"
    assert site(chosen) == "%chosen (Mul)"
    assert site(graph.inputs[0]) == "input 'x'"
    assert site(chosen.operand(1)) == "a constant of type float32[2]"
