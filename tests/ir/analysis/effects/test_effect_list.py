"""The list of effects: its order, and that of a clone."""

from __future__ import annotations

import pytest
from boost_compile.ir.analysis.effects.effect_list import list_effects
from boost_compile.ir.core.errors import VerifyError
from boost_compile.ir.core.graph import Graph, Node
from boost_compile.ir.rewrite.effects.editing import Effects
from boost_compile.ir.text import parse_program

REREAD = """
state %w: float32[2]
graph @step(%x: float32[2]) -> (loss) {
  %old = Load(%w, umonad) : float32[2]
  %dead = Assign(%w, %old, umonad) : float32[2]
  %new = Assign(%w, %x, umonad) : float32[2]
  %t = UpdateState(umonad, %new)
  %shown = Load(%w, %t) : float32[2]
  %held = Depend(%old, %shown) : float32[2]
  %result = Depend(%held, %t) : float32[2]
  return %result
}
"""
CALLS = """
state %w: float32[2]
state %v: float32[2]
graph @step(%x: float32[2]) -> (loss) {
  %after = call(@update, %w, %x, umonad) : float32[2]
  %t = UpdateState(umonad, %after)
  %early = Load(%v, umonad) : float32[2]
  %late = Load(%w, %t) : float32[2]
  %sum = Add(%early, %late) : float32[2]
  %result = Depend(%sum, %t) : float32[2]
  return %result

  func @update(%s: float32[2], %y: float32[2], %u: umonad) {
    %written = AssignAdd(%s, %y, %u) : float32[2]
    %t = UpdateState(%u, %written)
    %result = Depend(%y, %t) : float32[2]
    return %result
  }
}
"""


def step(text: str) -> Graph:
    return parse_program(text).graphs["step"]


def names(graph: Graph) -> list[str]:
    return [effect.node.name for effect in list_effects(graph).effects]


def test_effects_stand_in_the_order_of_their_tokens() -> None:
    assert names(step(REREAD)) == ["old", "new", "shown"]


def test_a_node_may_stand_behind_what_its_token_comes_before() -> None:
    text = REREAD.replace("state %w", "state %v: float32[2]\nstate %w")
    body = "  %first = Assign(%w, %x, umonad)\n  %t1 = UpdateState(umonad, %first)\n  %second = Assign(%v, %x, %t1)\n"
    body += "  %t = UpdateState(%t1, %second)\n  %early = Load(%v, umonad)\n  %result = Depend(%early, %t)\n"
    start, end = text.index("  %old"), text.index("  return")
    assert names(step(text[:start] + body + text[end:])) == ["first", "early", "second"]


def test_what_the_result_waits_for_is_no_effect() -> None:
    """A Depend on a token waits for all before it, but for those at the end, which are made anew."""
    waiting = REREAD.replace("Depend(%old, %shown)", "Depend(%old, %t)")
    assert names(step(waiting)) == ["old", "new"]
    inside = waiting.replace(
        "%result = Depend(%held, %t)", "%twice = Add(%held, %held)\n  %result = Depend(%twice, %t)"
    )
    assert names(step(inside)) == ["old", "new", "held"]


def test_a_call_writes_what_its_function_writes() -> None:
    listed = list_effects(step(CALLS))
    assert [e.node.name for e in listed.effects] == ["after", "early", "late"]
    assert [(e.node.name, {v.name for v in e.writes}) for e in listed.writes()] == [("after", {"w"})]


@pytest.mark.parametrize("text", [REREAD, CALLS])
def test_the_list_of_a_clone_is_the_same_in_its_own_nodes(text: str) -> None:
    graph = step(text)
    clone, twin = graph.clone()
    carried, made = list_effects(graph).of_clone(clone, twin), list_effects(clone)
    assert len(made.effects) == 3
    for a, b in zip(carried.effects, made.effects, strict=True):
        assert (a.node, a.reads, a.writes, a.everything, a.io, a.passive) == (
            b.node, b.reads, b.writes, b.everything, b.io, b.passive,
        )  # fmt: skip
    assert carried.place == made.place
    assert all(isinstance(n, Node) and n.graph is clone for n in carried.place)


def test_an_editor_refuses_the_list_of_another_graph() -> None:
    graph = step(REREAD)
    with pytest.raises(VerifyError, match="not that of 'copy'"):
        Effects(graph.clone("copy")[0], listed=list_effects(graph))
