"""Which functions a call reaches, with which arguments, and what their inputs and tuples stand for."""

from __future__ import annotations

import pytest
from boost_compile.ir.analysis.functions.calls import (
    bindings,
    called_functions,
    callees_first,
    picked,
    reachable_functions,
    recursive_functions,
    targets,
    without_tokens,
)
from boost_compile.ir.core.graph import Graph

from tests.graphs import graph, node

CHOICE = """
graph @step(%x: float32[2], %y: float32[2], %go: bool[]) {
  %p = Partial(@one, %x, umonad)
  %q = Partial(@two)
  %u = UpdateState(umonad, %x)
  %f = Switch(%go, %p, %q) : union<@one, @two>
  %waiting = Depend(%f, %u) : union<@one, @two>
  %r = call(%waiting) : float32[2]
  %s = call(@three, %y, %x) : float32[2]
  %t = Partial(@three, %y)
  %v = call(%t, %s) : float32[2]
  %w = Add(%v, %r)
  return %w
  func @one(%a: float32[2], %u: umonad) {
    return %a
  }
  func @two() {
    return float32[2]<1.0, 2.0>
  }
  func @three(%b: float32[2], %c: float32[2]) {
    %n = call(@two) : float32[2]
    %m = Mul(%b, %n)
    return %m
  }
  func @idle() {
    return float32[2]<1.0, 2.0>
  }
}"""


def reached(g: Graph, call: str) -> list[tuple[str, list[str], str]] | None:
    found = targets(node(g, call))
    return None if found is None else [(t.function.name, [v.name for v in t.arguments], t.binder.name) for t in found]


def test_targets_and_who_holds_their_token() -> None:
    g = graph(CHOICE)
    found = reached(g, "r")
    assert found is not None
    assert [(name, arguments[:1], binder) for name, arguments, binder in found] == [
        ("one", ["x"], "p"),
        ("two", [], "q"),
    ]
    assert reached(g, "s") == [("three", ["y", "x"], "s")]
    assert reached(g, "v") == [("three", ["y", "s"], "v")]
    assert [f.name for f in called_functions(node(g, "r"))] == ["one", "two"]


def test_a_branch_that_is_chosen_either_way_is_one_target() -> None:
    g = graph(CHOICE.replace("Switch(%go, %p, %q)", "Switch(%go, %p, %p)"))
    assert [name for name, _, _ in reached(g, "r") or ()] == ["one"]


def test_a_closure_from_outside_reaches_nothing_that_is_known() -> None:
    g = graph("""
graph @step(%x: float32[2], %f: fn<@body>) {
  %p = Partial(%f, %x) : fn<@body>
  %r = call(%f, %x) : float32[2]
  %s = call(%p) : float32[2]
  %t = Add(%r, %s)
  return %t
  func @body(%a: float32[2]) {
    return %a
  }
}""")
    assert targets(node(g, "r")) is None
    assert targets(node(g, "s")) is None
    assert called_functions(node(g, "r")) == []


def test_inputs_and_all_that_they_stand_for() -> None:
    g = graph(CHOICE)
    bound = {formal.name: [v.name for v in values] for formal, values in bindings(g).items() if formal.name in "abc"}
    assert bound == {"a": ["x"], "b": ["y"], "c": ["x", "s"]}


def test_a_call_with_an_argument_too_many_binds_the_others() -> None:
    """The verifier says what is wrong with it."""
    g = graph(CHOICE)
    node(g, "s").set_operands([*node(g, "s").operands, g.inputs[2]])
    assert {formal.name for formal in bindings(g)} == {"a", "b", "c", "u"}


def test_functions_in_the_order_of_their_needs() -> None:
    g = graph(CHOICE)
    assert reachable_functions(g) == {"one", "two", "three"}
    order = [f.name for f in callees_first(g)]
    assert sorted(order) == ["idle", "one", "three", "two"]
    assert order.index("two") < order.index("three")


def test_a_function_that_is_a_result_is_needed() -> None:
    g = graph("%f = call(@give) : fn<@body>\n%r = call(%f, %x) : float32[2]\nreturn %r\n"
              "func @give() {\nreturn @body\n}\nfunc @body(%a: float32[2]) {\nreturn %a\n}")  # fmt: skip
    assert reachable_functions(g) == {"give", "body"}
    assert [f.name for f in callees_first(g)] == ["body", "give"]


def test_a_loop_calls_itself_through_another() -> None:
    assert recursive_functions(graph(CHOICE)) == set()
    g = graph("%r = call(@enter, %x) : float32[2]\nreturn %r\n"
              "func @enter(%a: float32[2]) {\n%i = call(@head, %a) : float32[2]\nreturn %i\n}\n"
              "func @head(%b: float32[2]) {\n%h = call(@body, %b) : float32[2]\nreturn %h\n}\n"
              "func @body(%c: float32[2]) {\n%l = call(@head, %c) : float32[2]\nreturn %l\n}")  # fmt: skip
    assert recursive_functions(g) == {"head", "body"}


PICK = """
  %y = Neg(%x)
  %t = MakeTuple(%x, %y)
  %u = UpdateState(umonad, %y)
  %d = Depend(%t, %u)
  %c = call(@give, %d) : (float32[2], float32[2])
  %i = TupleGetItem(%c, INDEX) : float32[2]
  return %i
  func @give(%pair: (float32[2], float32[2])) {
    %a = TupleGetItem(%pair, 1) : float32[2]
    %b = MakeTuple(%a, %pair)
    return %pair
  }"""


@pytest.mark.parametrize(("index", "wanted"), [("0", "x"), ("1", "y"), ("-1", "y"), ("-2", "x")])
def test_an_item_through_calls_and_depends(index: str, wanted: str) -> None:
    g = graph(PICK.replace("INDEX", index))
    found = picked(node(g, "i"), bindings(g))
    assert found is not None
    assert [v.name for v in found] == [wanted]


def test_what_is_no_item() -> None:
    g = graph(PICK.replace("INDEX", "0"))
    bound = bindings(g)
    assert picked(node(g, "y"), bound) is None
    for beyond in ("2", "-3"):
        other = graph(PICK.replace("INDEX", beyond))
        assert picked(node(other, "i"), bindings(other)) is None
    unknown = graph(PICK.replace("INDEX", "0").replace("MakeTuple(%x, %y)", "Pair(%x, %y) : (float32[2], float32[2])"))
    assert picked(node(unknown, "i"), bindings(unknown)) is None


def test_tokens_are_left_out() -> None:
    g = graph("%u = UpdateState(umonad, %x)\n%r = Depend(%x, %u)\nreturn %r")
    assert without_tokens(node(g, "r").operands) == [g.inputs[0]]
