"""Which updates can be made on a piece of a weight, and why others cannot."""

from __future__ import annotations

import pytest
from boost_compile.ir.core.graph import Graph
from boost_compile.ir.rewrite.ranks.pieces import Pieces
from boost_compile.ir.text import parse_graph


def graph_of(body: str, slot: str = "4,8", functions: str = "") -> Graph:
    return parse_graph(f"""graph @step(%g: float32[4,8], %row: float32[8]) {{
  state %w: float32[4,8]
  state %m: float32[{slot}]
  state %x: float32[4,8]
  state %y: float32[4,8]
{body}
  %d = Depend(%g, %end)
  return %d
{functions}
}}""")


MOMENTUM = """
  %s = ApplyMomentum(%w, %m, 0.1, %g, 0.9, umonad) : float32[4,8]@w
  %end = UpdateState(umonad, %s)"""
SHARED = """
  %s = call(@update, %w, %m, %g, umonad) : float32[4,8]
  %u = UpdateState(umonad, %s)
  %t = call(@update, %x, %y, %g, %u) : float32[4,8]
  %end = UpdateState(%u, %t)"""
UPDATE = """
  func @update(%w: float32[4,8], %m: float32[4,8], %g: float32[4,8], %u: umonad) {
    %s = ApplyMomentum(%w, %m, 0.1, %g, 0.9, %u) : float32[4,8]@w
    %v = UpdateState(%u, %s)
    %d = Depend(%g, %v)
    return %d
  }"""


@pytest.mark.parametrize(
    ("body", "functions", "slot", "obstacle"),
    [
        (MOMENTUM, "", "4,8", ""),
        (SHARED.replace("@update, %x, %y", "@other, %x, %y"), UPDATE + UPDATE.replace("@update", "@other"), "4,8", ""),
        (SHARED, UPDATE, "4,8", "a function that updates it, with %s (ApplyMomentum), updates other weights too"),
        (MOMENTUM, "", "8,4", "'m' has another shape than the weight"),
        (MOMENTUM.replace("%g, 0.9", "%row, 0.9"), "", "4,8", "%s (ApplyMomentum) takes input 'row', which has"),
        (MOMENTUM.replace("%g, 0.9", "%x, 0.9"), "", "4,8", "%s (ApplyMomentum) takes 'x' whole"),
        (MOMENTUM.replace("ApplyMomentum", "LARSUpdate"), "", "4,8", "%s (LARSUpdate) does not work element by"),
        (
            "  %l = Load(%m, umonad)\n  %n = ReduceSum(%l, (), false, false) : float32[]\n"
            "  %a = Assign(%w, %g, umonad) : float32[4,8]@w\n  %u = UpdateState(umonad, %a, %n)\n"
            "  %end = UpdateState(%u, %l)",
            "", "4,8", "%n (ReduceSum) does not work element by element",
        ),
    ],
)  # fmt: skip
def test_what_works_element_by_element(body: str, functions: str, slot: str, obstacle: str) -> None:
    found = Pieces(graph_of(body, slot, functions)).region("w", ["m"], []).obstacle
    assert found.startswith(obstacle) if obstacle else found == ""


def test_what_only_an_update_takes_works_on_the_piece_too() -> None:
    graph = graph_of("  %h = Mul(%g, 0.5)\n  %n = Square(%h)\n" + MOMENTUM.replace("%g, 0.9", "%h, 0.9"))
    alone = graph_of("  %h = Mul(%g, 0.5)\n" + MOMENTUM.replace("%g, 0.9", "%h, 0.9"))
    kinds = [{node.op.name for node in Pieces(g).region("w", ["m"], []).nodes} for g in (graph, alone)]
    assert kinds == [{"ApplyMomentum"}, {"ApplyMomentum", "Mul"}]


def test_norms_take_the_sum_of_a_cycle_whole() -> None:
    graph = graph_of(
        "  %l = Load(%m, umonad)\n  %n = ReduceSum(%l, (), false, false) : float32[]\n"
        "  %h = Mul(%l, %n)\n  %s = Assign(%w, %h, umonad) : float32[4,8]@w\n  %u = UpdateState(umonad, %s)\n"
        "  %a = Assign(%m, %g, %u) : float32[4,8]@m\n  %end = UpdateState(%u, %a)"
    )
    region = Pieces(graph).region("w", [], ["m"])
    assert region.obstacle == ""
    assert {node.name for node, _ in region.whole} == {"n"}
    assert {node.name for node in region.nodes} == {"h", "s", "a"}
