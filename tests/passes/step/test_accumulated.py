"""What accumulators are given, and the gradients in it."""

from __future__ import annotations

from boost_compile.passes.step.accumulated import added_terms, adding_nodes, gradients_in

from tests.graphs import graph, node

TEXT = """
state %acc: float32[2]
state %other: float32[2]
state %count: float32[]
graph @accumulate(%x: float32[2], %bad: bool[]) {
  %g = Neg(%x) @b
  %h = Exp(%x) @b
  %z = ZerosLike(%g)
  %kept = Select(%bad, %z, %g)
  %weighted = Mul(%kept, %k)
  %a = AssignAdd(%acc, %weighted, umonad) marks {stage = "accumulate"}
  %u = UpdateState(umonad, %a)
  %o = Load(%other, %u)
  %wide = Cast(%h, 43) : float32[2]
  %sum = Add(%o, %wide) marks {stage = "accumulate"}
  %c = AssignAdd(%count, float32[]<1.0>, %u)
  %v = UpdateState(%u, %c)
  %r = Depend(%sum, %v)
  return %r
}""".replace("%weighted = Mul(%kept, %k)", "%k = ReduceSum(%h, (), false) @f\n  %weighted = Mul(%kept, %k)")


def test_terms_and_their_gradients() -> None:
    g = graph(TEXT)
    terms = dict(added_terms(g))
    assert {name: term.name for name, term in terms.items()} == {"acc": "weighted", "other": "wide"}
    parts = {node(g, "g"): "backward", node(g, "h"): "backward"}
    assert gradients_in(terms["acc"], parts) == [node(g, "g")]
    assert gradients_in(terms["other"], parts) == [node(g, "h")]
    assert gradients_in(g.inputs[0], parts) == []


def test_a_gradient_on_either_side_of_a_choice() -> None:
    g = graph(TEXT.replace("Select(%bad, %z, %g)", "Select(%bad, %g, %z)"))
    assert gradients_in(node(g, "weighted"), {node(g, "g"): "backward"}) == [node(g, "g")]


def test_what_only_reads_a_sum_adds_nothing() -> None:
    text = TEXT.replace("%o = Load(%other, %u)", '%o = Load(%other, %u) marks {stage = "accumulate"}')
    assert [n.name for n in adding_nodes(graph(text))] == ["a", "sum"]


def test_marks_stand_for_gradients_after_a_cut() -> None:
    g = graph(TEXT.replace("%kept = Select(%bad, %z, %g)", '%kept = Select(%bad, %z, %g) marks {gradient = "w"}'))
    assert gradients_in(node(g, "weighted"), {}) == [node(g, "kept")]
