"""How many uses of a value matter."""

from __future__ import annotations

from boost_compile.ir.analysis.derivative import use_counts
from boost_compile.ir.analysis.derivative.components import Zeros
from boost_compile.ir.analysis.derivative.use_counts import UseCounts, count_uses
from boost_compile.ir.analysis.functions.closures import Closures
from boost_compile.ir.core.graph import Graph, Use
from boost_compile.ir.text import parse_program

from tests.ir.worked import worked

CALLED = """
graph @step(%x: float32[2]) {
  %both = call(@f, %x) : (float32[2], float32[2])
  %first = TupleGetItem(%both, 0)
  return %first

  func @f(%v: float32[2]) {
    %a = Neg(%v) : float32[2]
    %b = Exp(%v) : float32[2]
    %pair = MakeTuple(%a, %b)
    return %pair
  }
}
"""


def counts_of(graph: Graph, wanted: list[Use]) -> UseCounts:
    return count_uses(graph, Closures(graph), Zeros(graph), wanted)


def test_the_worked_graph() -> None:
    graph, nodes, comments = worked(use_counts)
    counted = counts_of(graph, []).counts
    assert {name: counted[nodes[name]][()] for name in comments} == {n: int(c) for n, c in comments.items()}


def test_a_wanted_use_matters_whatever_comes_of_it() -> None:
    graph, nodes, _ = worked(use_counts)
    found = counts_of(graph, [(nodes["unused"], 0)])
    assert nodes["unused"] in found.live
    assert found.counts[nodes["y"]][()] == 3


def test_of_a_function_only_what_some_call_takes_matters() -> None:
    graph = parse_program(CALLED).graphs["step"]
    (function,) = graph.functions.values()
    found = counts_of(graph, [])
    nodes = {node.name: node for node in function}
    assert set(found.taken[function]) == {(0,)}
    assert (found.counts[nodes["a"]][()], found.counts[nodes["b"]][()]) == (1, 0)
    assert found.counts[function.inputs[0]][()] == 1
