"""Which functions calls reach, and what their inputs stand for, through closures that travel."""

from __future__ import annotations

import pytest
from boost_compile.ir.analysis.functions.closures import Closures, element
from boost_compile.ir.core.graph import Graph, Input, Node

from tests.graphs import graph, node


def bound(closures: Closures, of: Graph, function: str, i: int) -> set[str]:
    """The names of the values that input `i` of a function stands for."""
    formal = next(g for g in of.all_graphs() if g.name == function).inputs[i]
    return {user.operand(at).name for user, at in closures.bound[formal]}


def reached(closures: Closures, call: Node) -> set[str]:
    return {function.name for function in closures.targets[call]}


def test_a_partial_binds_the_first_inputs_and_the_call_the_rest() -> None:
    g = graph("""
  %y = Neg(%x)
  %z = Exp(%x)
  %f = Partial(@body, %x, %y)
  %r = call(%f, %z) : float32[2]
  return %r
  func @body(%a: float32[2], %b: float32[2], %c: float32[2]) {
    %s = Mul(%a, %b)
    %t = Sub(%s, %c)
    return %t
  }""")
    found = Closures(g)
    assert [bound(found, g, "body", i) for i in range(3)] == [{"x"}, {"y"}, {"z"}]
    assert reached(found, node(g, "r")) == {"body"}
    assert found.open == set()
    body = next(f for f in g.all_graphs() if f.name == "body")
    assert list(found.callers[body]) == [node(g, "r")]


def test_a_partial_of_a_partial_adds_up() -> None:
    g = graph("""
  %y = Neg(%x)
  %f = Partial(@body, %x)
  %h = call(@give, %f) : fn<@body>
  %r = call(%h, %y) : float32[2]
  return %r
  func @give(%f: fn<@body>) {
    return %f
  }
  func @body(%a: float32[2], %b: float32[2]) {
    %s = Mul(%a, %b)
    return %s
  }""")
    found = Closures(g)
    assert reached(found, node(g, "r")) == {"body"}
    assert [bound(found, g, "body", i) for i in range(2)] == [{"x"}, {"y"}]
    assert bound(found, g, "give", 0) == {"f"}


SWITCH = """
graph @step(%x: float32[2], %go: bool[]) {
  %y = Neg(%x)
  %p = Partial(@one, %x)
  %q = Partial(@two, %y)
  %f = Switch(%go, %p, %q) : union<@one, @two>
  %r = call(%f) : float32[2]
  return %r
  func @one(%a: float32[2]) {
    %s = Exp(%a)
    return %s
  }
  func @two(%b: float32[2]) {
    %t = Neg(%b)
    return %t
  }
}"""


def test_a_switch_reaches_both_branches_and_its_condition_none() -> None:
    g = graph(SWITCH)
    found = Closures(g)
    assert reached(found, node(g, "r")) == {"one", "two"}
    assert bound(found, g, "one", 0) == {"x"}
    assert bound(found, g, "two", 0) == {"y"}
    assert found.open == set()
    results = found.step(node(g, "r"), ())
    assert results is not None
    assert {value.name for value, _ in results} == {"s", "t"}


def test_a_closure_comes_out_of_the_tuple_that_a_function_returns() -> None:
    """As forward returns its result and its backward: the second of the two, also counted from the end."""
    for index in ("1", "-1"):
        g = graph(f"""
  %pair = call(@forward, %x) : (float32[2], fn<@backward>)
  %f = TupleGetItem(%pair, {index}) : fn<@backward>
  %d = Neg(%x)
  %r = call(%f, %d) : float32[2]
  return %r
  func @forward(%v: float32[2]) {{
    %a = Exp(%v)
    %b = Partial(@backward, %a)
    %c = MakeTuple(%v, %b)
    return %c
  }}
  func @backward(%a: float32[2], %d: float32[2]) {{
    %m = Mul(%a, %d)
    return %m
  }}""")
        found = Closures(g)
        assert reached(found, node(g, "r")) == {"backward"}
        assert bound(found, g, "backward", 0) == {"a"}
        assert bound(found, g, "backward", 1) == {"d"}
        assert found.open == set()


def test_a_closure_that_cannot_be_followed_leaves_its_call_open() -> None:
    g = graph("""
graph @step(%x: float32[2], %f: fn<@body>) {
  %r = call(%f, %x) : float32[2]
  return %r
  func @body(%a: float32[2]) {
    %s = Exp(%a)
    return %s
  }
}""")
    found = Closures(g)
    assert found.open == {node(g, "r")}
    assert reached(found, node(g, "r")) == set()


def test_steps_up_through_tuples_and_what_passes_on() -> None:
    g = graph("""
  %y = Neg(%x)
  %inner = MakeTuple(%x, %y)
  %outer = MakeTuple(%y, %inner)
  %u = UpdateState(umonad, %y)
  %kept = Depend(%outer, %u)
  %item = TupleGetItem(%kept, 1) : (float32[2], float32[2])
  return %item""")
    found = Closures(g)
    item, kept, outer, inner = (node(g, name) for name in ("item", "kept", "outer", "inner"))
    assert found.step(item, (0,)) == [(kept, (1, 0))]
    assert found.step(kept, (1, 0)) == [(outer, (1, 0))]
    assert found.step(outer, (1, 0)) == [(inner, (0,))]
    assert found.step(inner, (0,)) == [(g.inputs[0], ())]
    assert found.step(inner, ()) is None  # the tuple as a whole is made here
    assert found.step(inner, (2,)) is None  # no such element
    assert found.step(node(g, "y"), ()) is None
    assert isinstance(g.inputs[0], Input)
    assert found.step(g.inputs[0], ()) is None  # of the main graph: nothing binds it
    assert found.step(node(g, "u").operand(0), ()) is None


@pytest.mark.parametrize(("index", "wanted"), [(0, 0), (1, 1), (2, 2), (-1, 2), (-2, 1), (-3, 0), (-4, None)])
def test_elements_are_counted_from_the_front(index: int, wanted: int | None) -> None:
    g = graph(f"""
  %y = Neg(%x)
  %t = MakeTuple(%x, %y, %x)
  %i = TupleGetItem(%t, {str(index).lower()}) : float32[2]
  return %i""")
    assert element(node(g, "i")) == wanted


def test_an_index_that_is_computed_is_no_element() -> None:
    g = graph("""
graph @step(%x: float32[2], %k: int64) {
  %t = MakeTuple(%x, %x)
  %i = TupleGetItem(%t, %k) : float32[2]
  return %i
}""")
    assert element(node(g, "i")) is None


def test_a_loop_calls_itself_and_ends() -> None:
    """What the body passes on joins what the loop began with."""
    g = graph("""
graph @step(%x: float32[2], %go: bool[]) {
  %r = call(@loop, %x, %go) : float32[2]
  return %r
  func @loop(%v: float32[2], %more: bool[]) {
    %p = Partial(@body, %v, %more)
    %q = Partial(@end, %v)
    %f = Switch(%more, %p, %q) : union<@body, @end>
    %s = call(%f) : float32[2]
    return %s
  }
  func @body(%b: float32[2], %again: bool[]) {
    %n = Neg(%b)
    %t = call(@loop, %n, %again) : float32[2]
    return %t
  }
  func @end(%e: float32[2]) {
    return %e
  }
}""")
    found = Closures(g)
    assert bound(found, g, "loop", 0) == {"x", "n"}
    assert bound(found, g, "loop", 1) == {"go", "again"}
    assert reached(found, node(g, "s")) == {"body", "end"}
    loop = next(f for f in g.all_graphs() if f.name == "loop")
    assert set(found.callers[loop]) == {node(g, "r"), node(g, "t")}


def test_what_is_bound_later_in_the_file_is_followed_too() -> None:
    """The call in @apply stands before the one that tells what its closure is."""
    g = graph("""
  %k = NPUAllocFloatStatus() : float32[8]
  %r = call(@outer, %x) : float32[2]
  return %r
  func @apply(%f: fn<@body>, %v: float32[2]) {
    %s = call(%f, %v) : float32[2]
    return %s
  }
  func @outer(%o: float32[2]) {
    %t = call(@apply, @body, %o) : float32[2]
    return %t
  }
  func @body(%a: float32[2]) {
    %n = Neg(%a)
    return %n
  }""")
    found = Closures(g)
    assert reached(found, node(g, "s")) == {"body"}
    assert bound(found, g, "body", 0) == {"v"}
    assert found.open == set()
