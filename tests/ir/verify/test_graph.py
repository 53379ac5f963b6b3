"""One broken graph for every rule of lists, use-lists, definitions and types."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from boost_compile.ir.core.graph import Graph, GraphRef, Input, Node, State
from boost_compile.ir.core.op import Op
from boost_compile.ir.core.types import UNKNOWN, tensor
from boost_compile.ir.text import parse_graph, parse_program
from boost_compile.ir.verify.verifier import verify

from tests.ir.broken import SWITCH, F, chain, edited, nodes, only, problems

# -- lists and use-lists ---------------------------------------------------------------------------------------


def test_use_that_a_value_does_not_list() -> None:
    g, a, _b, _ = chain()
    a.uses.clear()
    assert "node %b (scope Default/b-op): operand 0, %a (float32[2]), does not list the node as a user" in only(g)


def test_use_listed_at_the_wrong_place() -> None:
    g, a, b, _ = chain()
    a.uses[b] = 1
    assert "%b (scope Default/b-op): operand 0, %a (float32[2]), does not list the node as a user" in problems(g)
    a.uses[b] = {0, 1}
    assert "%a (float32[2]) lists operand 1 of %b as a use, which it is not" in only(g)


def test_use_by_a_node_that_is_gone() -> None:
    g, a, _b, _c = chain()
    stray = Node("stray", F, Op("Exp"))
    stray.set_operands([a])
    assert "%a (float32[2]) lists operand 0 of %stray as a use, which it is not" in only(g)


def test_operands_set_behind_the_use_lists() -> None:
    g, a, _b, c = chain()
    c._operands[0] = a
    report = problems(g)
    assert "%c (scope Default/c-op): operand 0, %a (float32[2]), does not list the node as a user" in report


def test_a_use_by_the_return_counts() -> None:
    g, _a, _b, c = chain()
    c.uses.clear()
    report = only(g)
    assert "graph 'g', its result: operand 0, %c (float32[2]), does not list the node as a user" in report
    assert report.endswith("  > return %c")


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda g, a, b, c: setattr(b, "_prev", None), "%b does not point back to the node before it"),
        (lambda g, a, b, c: setattr(g, "_count", 5), "its list holds 3 nodes, its count is 5, or its end is wrong"),
        (lambda g, a, b, c: setattr(g, "_last", b), "its end is wrong"),
        (lambda g, a, b, c: setattr(b, "graph", None), "%b stands in the list but belongs to no graph (it was erased)"),
        (lambda g, a, b, c: setattr(b, "graph", Graph("h")), "%b stands in the list but belongs to graph 'h'"),
    ],
)
def test_broken_list(damage: Callable[..., None], message: str) -> None:
    g, a, b, c = chain()
    damage(g, a, b, c)
    report = only(g)
    assert "the list of nodes is broken: " in report
    assert message in report


def test_circular_list_ends() -> None:
    g, a, _b, c = chain()
    c._next, a._prev = a, c
    g._first = a
    assert "the list of nodes is broken" in only(g)


# -- definitions -----------------------------------------------------------------------------------------------


def test_use_before_definition() -> None:
    g, a, b, c = chain()
    g.reorder([b, c, a])
    report = only(g)
    assert (
        "node %b (scope Default/b-op): operand 0, <%a = Exp(%x): float32[2]>, is used before its definition" in report
    )
    assert "call graph.sort()" in report
    g.sort()
    verify(g)


def test_a_node_that_uses_itself() -> None:
    g, a, _, _ = chain()
    a.set_operand(0, a)
    assert "operand 0, <%a = Exp(%a): float32[2]>, is used before its definition" in only(g)


def test_operand_that_was_erased() -> None:
    g, _a, b, _c = chain()
    g._unlink(b)
    report = problems(g)
    assert (
        "%c (scope Default/c-op): operand 0, <%b = Neg(%a): float32[2]>, stands in no graph (it was erased)" in report
    )


def test_operand_of_another_graph() -> None:
    _g, a, _b, _c = chain()
    h, *_ = chain()
    h.name = "h"
    next(iter(h)).set_operand(0, a)
    report = problems(h)
    assert "belongs to graph 'g'; a graph uses only its own values" in report


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (Input("q", F), "<Input %q: float32[2]>, belongs to another graph"),
        (State("q", F), "<State %q: float32[2]>, is not among the graph's states; refer to state with graph.state"),
    ],
)
def test_foreign_inputs_and_states(value: Any, message: str) -> None:
    g, a, *_ = chain()
    a.set_operand(0, value)
    assert message in problems(g)


def test_operand_that_is_no_value() -> None:
    g, a, *_ = chain()
    a._operands[0] = 3.0  # type: ignore[call-overload]
    assert "operand 0, 3.0, is no value; give it an input" in problems(g)


def test_free_variables_of_functions() -> None:
    program = parse_program(SWITCH)
    step = program.graphs["step"]
    yes = step.functions["yes"]
    nodes(yes)["a"].set_operand(1, step.inputs[0])
    assert "function 'yes', node %a: operand 1, <Input %x: float32[2]>, belongs to" in problems(program)
    program = parse_program(SWITCH)
    step = program.graphs["step"]
    nodes(step.functions["yes"])["a"].set_operand(0, step.state("w"))
    report = problems(program)
    assert "is state, which a function cannot use directly; pass it in through Partial" in report


def test_result_missing_or_foreign() -> None:
    g = Graph("g")
    assert "graph 'g': it has no result; set graph.result" in only(g)
    g.result = Graph("h").add_input("x", F)
    assert "graph 'g', its result: <Input %x: float32[2]> belongs to another graph" in problems(g)


def test_functions_are_resolvable() -> None:
    program = parse_program(SWITCH)
    step = program.graphs["step"]
    stranger = Graph("yes", step)
    nodes(step)["yes"].set_operand(0, step.reference(stranger))
    assert "is no function of graph 'step'; make it with add_function" in problems(program)
    nodes(step)["yes"].set_operand(0, GraphRef(step.functions["yes"], F))
    assert "has no function type" in problems(program)


# -- types -----------------------------------------------------------------------------------------------------


def test_unknown_types_only_on_nodes_of_the_file() -> None:
    g = Graph("g")
    x = g.add_input("x", F)
    g.result = g.create("Mystery", [x], UNKNOWN)
    verify(g)
    g.editor = "my-pass"
    g.result = g.create("Mystery", [g.result], UNKNOWN)
    assert "its type is not known, though pass 'my-pass' made it; give the type to graph.create" in only(g)
    g.result.type = None  # type: ignore[assignment]
    assert "its type is None; give it a type of ir.types" in only(g)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("%a = Add(%x, %x) : float16[2]", "its type is float16[2], but Add of these operands gives float32[2]"),
        ("%a = Add(%x, %h) : float16[2]", "Add of float32 and float16: insert a Cast"),
        ("%a = Add(%h, %f) : float16[2]", "Add of float16 and bfloat16: insert a Cast"),
        ("%a = Add(%x, %z) : float32[2]", "shapes [2] and [3] do not broadcast"),
        ("%a = Equal(%x, %x) : float32[2]", "its type is float32[2], but Equal of these operands gives bool[2]"),
        ("%a = MakeTuple(%x, %z) : (float32[2], float32[2])", "gives (float32[2], float32[3])!"),
        ("%a = TupleGetItem(%t, 2) : float32[2]", "not a tuple and a constant index inside it"),
        ("%a = TupleGetItem(%t, -3) : float32[2]", "not a tuple and a constant index inside it"),
        ("%a = TupleGetItem(%x, 0) : float32[2]", "not a tuple and a constant index inside it"),
        (
            "%a = TupleGetItem(%t, 1) : float32[3]",
            "its type is float32[3], but TupleGetItem of these operands gives float32[2]",
        ),
        ("%a = TupleGetItem(%t) : float32[2]", "TupleGetItem cannot take these operands"),
        ("%a = Neg(%x) : (float32[2])", "its type is (float32[2]), but Neg of these operands gives float32[2]"),
        (
            "%a = ReduceSum(%x, 0, true) : float32[]",
            "its type is float32[], but ReduceSum of these operands gives float32[1]",
        ),
    ],
)
def test_types_agree_with_the_rules(line: str, message: str) -> None:
    g = parse_graph(
        "graph @g(%x: float32[2], %h: float16[2], %z: float32[3], %t: (float32[3], float32[2]), %f: bfloat16[2]) {\n"
        f"  {line}\n  return %a\n}}"
    )
    assert message in only(g)


@pytest.mark.parametrize(
    "line",
    [
        "%a = Add(%x, %d) : float32[2]",
        "%a = Add(%d, %d) : float32[-2]",
        "%a = Neg(%x) : float32[2]@w",
        "%a = Neg(%s) : float32[]",
        "%a = MakeTuple(%x, %x) : (float32[2], float32[?])",
        "%a = Add(%x, %q) : float32[2]",
        "%a = TupleGetItem(%t, -1) : float32[2]",
        "%a = Foo(%x) : int8[7]",
        # Files hold arithmetic on two element types, and the engine casts: LogSigmoid's Mul by an int32 constant.
        "%a = Mul(%x, %h) : float32[2]",
        "%a = Mul(%n, %h) : float16[2]",
        "%a = Mul(%b, %n) : int32[2]",
        "%a = Greater(%x, %n) : bool[2]",
    ],
)
def test_types_that_agree(line: str) -> None:
    verify(
        parse_graph(
            "graph @g(%x: float32[2], %d: float32[?], %s: float32, %q: unknown, %t: (float32[3], float32[2]), "
            "%h: float16[2], %n: int32[], %b: bool[2]) {\n"
            f"  {line}\n  return %a\n}}"
        )
    )


def test_passes_insert_their_casts() -> None:
    """What a file may hold, a pass may not make."""
    g = Graph("g")
    x, h = g.add_input("x", F), g.add_input("h", tensor("float16", 2))
    g.editor = "my-pass"
    g.result = g.create("Mul", [x, h], F)
    assert "Mul of float32 and float16: insert a Cast" in only(g)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("%go: bool[]", "%go: bool[2]", "the condition, %go (bool[2]), is not one bool; reduce it with ReduceAll"),
        ("%go: bool[]", "%go: int32[]", "the condition, %go (int32[]), is not one bool"),
        ("Switch(%go, %yes, %no)", "Switch(%go, %x, %no) : union<@yes, @no>", "is no function"),
        ("Switch(%go, %yes, %no)", "Switch(%go, %yes, %no, %no)", "Switch takes 3 operands, not 4"),
        (
            "Switch(%go, %yes, %no)",
            "Switch(%go, %yes, %no) : bool[]",
            "its type is bool[], but Switch of these operands",
        ),
    ],
)
def test_switch(old: str, new: str, message: str) -> None:
    assert message in problems(edited(SWITCH, old, new))
