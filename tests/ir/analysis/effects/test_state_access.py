"""What nodes and functions read and write."""

from __future__ import annotations

import pytest
from boost_compile.ir.analysis.effects.state_access import (
    Effect,
    describe,
    location,
    place,
    state_behind,
    states_behind,
    summarize,
)
from boost_compile.ir.analysis.functions.calls import bindings
from boost_compile.ir.core.graph import Graph

from tests.graphs import graph, node

TEXT = """
state %a: float32[2]
state %b: float32[2]
graph @step(%x: float32[2], %go: bool[]) {
  %l = Load(%a, umonad)
  %w = AssignAdd(%a, %x, umonad) : float32[2]@a
  %kept = Depend(%w, %l)
  %again = AssignAdd(%kept, %x, umonad) : float32[2]@a
  %act = Exp(%x)
  %inplace = AssignAdd(%act, %x, umonad) : float32[2]@act
  %moved = TensorMove(%l)
  %print = Print(%x, iomonad) : bool[]
  %pure = Neg(%l)
  %mid = Depend(%pure, umonad)
  %reads = call(@read, %b, umonad) : float32[2]
  %writes = call(@write, %a, %x, umonad) : float32[2]
  %nothing = call(@pure, %x) : float32[2]
  %p = Partial(@write, %b, %x, umonad)
  %q = Partial(@read, %a, umonad)
  %f = Switch(%go, %p, %q) : union<@write, @read>
  %either = call(%f) : float32[2]
  %shows = call(@show, %x, iomonad) : float32[2]
  %r = MakeTuple(%again, %inplace, %moved, %print, %mid, %reads, %writes, %nothing, %either, %shows)
  return %r
  func @read(%s: float32[2]@b, %u: umonad) {
    %k = Load(%s, %u)
    %n = Neg(%k)
    return %n
  }
  func @write(%s: float32[2], %v: float32[2], %u: umonad) {
    %w = Assign(%s, %v, %u)
    %t = UpdateState(%u, %w)
    %r = Depend(%v, %t)
    return %r
  }
  func @pure(%v: float32[2]) {
    %n = Neg(%v)
    return %n
  }
  func @show(%v: float32[2], %u: iomonad) {
    %w = Print(%v, %u) : bool[]
    %t = UpdateState(%u, %w)
    %r = Depend(%v, %t)
    return %r
  }
}"""


@pytest.fixture(scope="module")
def g() -> Graph:
    return graph(TEXT)


def effect(g: Graph, name: str) -> Effect | None:
    return describe(node(g, name), summarize(g))


@pytest.mark.parametrize(
    ("name", "reads", "writes", "passive"),
    [
        ("l", {"a"}, set(), True),
        ("w", {"a", "x"}, {"a"}, False),
        ("again", {"a", "x"}, {"a"}, False),
        ("inplace", {"x"}, {"act"}, False),
        ("reads", {"b"}, set(), True),
        ("writes", {"a", "x"}, {"a"}, False),
        ("either", {"a", "b", "x"}, {"b"}, False),
    ],
)
def test_what_is_read_and_written(g: Graph, name: str, reads: set[str], writes: set[str], passive: bool) -> None:
    """An input that is taken counts too: in a function it may stand for a state."""
    found = effect(g, name)
    assert found is not None
    assert {v.name for v in found.writes} == writes
    assert {v.name for v in found.reads} >= reads - writes
    assert {v.name for v in found.touched} == reads | writes
    assert found.passive is passive
    assert not found.everything
    assert not found.io


@pytest.mark.parametrize("name", ["act", "pure", "moved", "nothing", "f", "p"])
def test_what_is_no_effect(g: Graph, name: str) -> None:
    assert effect(g, name) is None


def test_output_is_an_effect_of_its_own_kind(g: Graph) -> None:
    for name in ("print", "shows"):
        found = effect(g, name)
        assert found is not None
        assert found.io
        assert not found.passive
        assert found.writes == frozenset()


def test_a_wait_in_mid_graph_stands_for_everything_before(g: Graph) -> None:
    found = effect(g, "mid")
    assert found is not None
    assert (found.everything, found.passive) == (True, True)
    assert effect(g, "kept") is None  # it waits for a value, not for a token


def test_summaries_are_by_position(g: Graph) -> None:
    known = summarize(g)
    assert (known["read"].reads, known["read"].writes) == ({0}, set())
    assert known["write"].writes == {0}
    assert known["pure"].reads == known["pure"].writes == set()
    assert known["show"].io
    assert not known["write"].io
    assert not known["write"].everything


def test_an_unknown_closure_may_touch_everything() -> None:
    g = graph("""
graph @step(%x: float32[2], %f: fn<@body>, %h: fn<@body>) {
  %r = call(%f, %x, umonad) : float32[2]
  %s = call(%h, %x) : float32[2]
  %o = call(@outer, %f, umonad) : float32[2]
  %t = MakeTuple(%r, %s, %o)
  return %t
  func @body(%a: float32[2]) {
    return %a
  }
  func @outer(%k: fn<@body>, %u: umonad) {
    %z = call(%k, %u) : float32[2]
    return %z
  }
}""")
    found = effect(g, "r")
    assert found is not None
    assert (found.everything, found.passive) == (True, False)
    assert effect(g, "s") is None  # without a token it is pure
    assert summarize(g)["outer"].everything
    outer = effect(g, "o")
    assert outer is not None
    assert outer.everything


def test_a_loop_writes_what_its_body_writes() -> None:
    """The least fixed point: recursion adds nothing that is not there."""
    g = graph("""
state %a: float32[2]
state %b: float32[2]
graph @step(%x: float32[2], %go: bool[]) {
  %r = call(@loop, %a, %b, %x, %go, umonad) : float32[2]
  return %r
  func @loop(%s: float32[2], %t: float32[2], %v: float32[2], %more: bool[], %u: umonad) {
    %p = Partial(@body, %s, %t, %v, %more, %u)
    %q = Partial(@end, %v)
    %f = Switch(%more, %p, %q) : union<@body, @end>
    %c = call(%f) : float32[2]
    return %c
  }
  func @body(%s: float32[2], %t: float32[2], %v: float32[2], %more: bool[], %u: umonad) {
    %l = Load(%t, %u)
    %w = Assign(%s, %l, %u)
    %z = UpdateState(%u, %w)
    %c = call(@loop, %s, %t, %v, %more, %z) : float32[2]
    return %c
  }
  func @end(%v: float32[2]) {
    return %v
  }
}""")
    known = summarize(g)
    assert known["loop"].writes == known["body"].writes == {0}
    assert known["loop"].reads | {0} == {0, 1}
    found = effect(g, "r")
    assert found is not None
    assert {v.name for v in found.writes} == {"a"}
    assert {v.name for v in found.touched} == {"a", "b"}


def test_places_and_locations(g: Graph) -> None:
    a = g.states["a"]
    for name in ("w", "kept", "again"):
        assert place(node(g, name)) is a
        assert location(node(g, name)) is a
    assert place(node(g, "inplace")) is node(g, "act")
    assert location(node(g, "inplace")) is None  # a computed tensor is no state
    assert place(node(g, "pure")) is node(g, "pure")
    assert location(node(g, "pure")) is None
    assert state_behind(node(g, "moved")) is a
    assert state_behind(node(g, "kept")) is a
    assert state_behind(node(g, "pure")) is None
    assert place(g.inputs[0]) is g.inputs[0]


def test_states_through_inputs_of_functions(g: Graph) -> None:
    bound = bindings(g)
    written = next(f for f in g.all_graphs() if f.name == "write").inputs[0]
    assert {s.name for s in states_behind(written, bound)} == {"a", "b"}
    assert states_behind(node(g, "pure"), bound) == []


def test_an_effect_in_a_clone(g: Graph) -> None:
    found = effect(g, "w")
    assert found is not None
    copy, twin = g.clone()
    moved = found.moved(twin)
    assert moved.node is twin[found.node]
    assert moved.writes == {copy.states["a"]}
    assert moved.reads == {copy.states["a"], copy.inputs[0]}


def test_a_function_that_writes_its_own_tensor_writes_no_input() -> None:
    g = graph("""
  %r = call(@own, %x, umonad) : float32[2]
  return %r
  func @own(%v: float32[2], %u: umonad) {
    %n = Neg(%v)
    %w = InplaceAddExt(%n, %v, 1, %u) : float32[2]
    %t = UpdateState(%u, %w)
    %d = Depend(%n, %t)
    return %d
  }""")
    assert summarize(g)["own"].writes == set()
