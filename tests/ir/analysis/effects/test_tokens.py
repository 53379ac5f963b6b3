"""Where tokens stand, and which uses merely wait."""

from __future__ import annotations

from boost_compile.ir.analysis.effects.tokens import orders_only, token_slots

from tests.graphs import graph, node


def test_the_last_operands_that_are_tokens() -> None:
    g = graph("""
state %a: float32[2]
  %w = Assign(%a, %x, umonad)
  %u = UpdateState(umonad, %w)
  %both = call(@f, %x, %u, iomonad) : float32[2]
  %r = Depend(%both, %u)
  return %r
  func @f(%v: float32[2], %u: umonad, %io: iomonad) {
    return %v
  }""")
    w, both, r = (node(g, name) for name in ("w", "both", "r"))
    assert token_slots(w) == [(w, 2)]
    assert set(token_slots(both)) == {(both, 2), (both, 3)}
    assert token_slots(r) == [(r, 1)]


def test_a_call_of_a_choice_has_its_tokens_in_what_is_bound() -> None:
    g = graph("""
graph @step(%x: float32[2], %go: bool[]) {
  %p = Partial(@f, %x, umonad)
  %q = Partial(@h, %x)
  %s = Switch(%go, %p, %q) : union<@f, @h>
  %c = call(%s) : float32[2]
  return %c
  func @f(%v: float32[2], %u: umonad) {
    return %v
  }
  func @h(%v: float32[2]) {
    return %v
  }
}""")
    p = node(g, "p")
    assert token_slots(node(g, "c")) == [(p, 2)]


def test_a_primitive_of_nothing_but_a_token() -> None:
    g = graph("%d = Draw(umonad) : float32[2]\nreturn %d")
    d = node(g, "d")
    assert token_slots(d) == [(d, 0)]


def test_what_merely_waits() -> None:
    g = graph("""
  %y = Neg(%x)
  %u = UpdateState(umonad, %y)
  %d = Depend(%y, %y)
  %pair = MakeTuple(%y, %x)
  %v = UpdateState(%u, %pair)
  %taken = MakeTuple(%y, %x)
  %item = TupleGetItem(%taken, 0)
  %w = UpdateState(%v, %taken)
  %e = Exp(%y)
  %r0 = Mul(%e, %item)
  %r1 = Mul(%r0, %d)
  %r = Depend(%r1, %w)
  return %r""")
    u, d, pair, taken, e = (node(g, name) for name in ("u", "d", "pair", "taken", "e"))
    assert orders_only(u, 1)
    assert not orders_only(d, 0)
    assert orders_only(d, 1)
    assert orders_only(pair, 0)
    assert not orders_only(taken, 0)  # one of its users takes an element, though another waits
    assert not orders_only(e, 0)


def test_a_call_of_a_closure_that_cannot_be_told_takes_its_token_itself() -> None:
    g = graph("""
state %a: float32[2]
  %made = call(@forth, %a) : fn<@back>
  %out = call(%made, umonad) : float32[2]
  return %out
  func @back(%p: float32[2], %u: umonad) {
    %v = Load(%p, %u)
    return %v
  }
  func @forth(%q: float32[2]) {
    %closure = Partial(@back, %q)
    return %closure
  }""")
    out = node(g, "out")
    assert token_slots(out) == [(out, 1)]
