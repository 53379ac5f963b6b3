"""Patterns: what they find, what they decline and why, and what a rewrite leaves behind."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from boost_compile.ir.analysis.training.anatomy import anatomy
from boost_compile.ir.core.attributes import scalar_tensor
from boost_compile.ir.core.errors import VerifyError
from boost_compile.ir.core.graph import Graph, Node
from boost_compile.ir.core.program import Entry, Program, Schedule
from boost_compile.ir.core.report import PassResult
from boost_compile.ir.core.types import tensor
from boost_compile.ir.formats.mindir.reader import read_mindir
from boost_compile.ir.text import parse_graph
from boost_compile.ir.verify.verifier import verify
from boost_compile.passes.framework.pattern import Declined, Match, OpPattern, Rewrite, any_value, constant, op

TEXT = """
graph @step(%x: float32[2], %y: float32[2]) {{
{body}
}}
"""


def graph_of(*lines: str) -> Graph:
    return parse_graph(TEXT.format(body="\n".join(f"  {line}" for line in lines)))


def found(pattern: OpPattern, graph: Graph) -> list[dict[str, str]]:
    """The names of what each name of the pattern stands for, for each node where it matches."""
    matches = [m for node in graph if (m := pattern.match(node))]
    return [{name: v.name for name, v in m.values.items()} for m in matches]


@pytest.mark.parametrize(
    ("pattern", "expected"),
    [
        (op("Neg", any_value("a")), [{"a": "x"}, {"a": "n"}]),
        (op("Neg", op("Neg", any_value("a"))), [{"a": "x"}]),
        (op({"Neg", "Abs"}, any_value("a")), [{"a": "x"}, {"a": "n"}, {"a": "nn"}]),
        (op("Mul", any_value("a"), any_value("b")), [{"a": "x", "b": "y"}, {"a": "y", "b": "n"}]),
        (op("Mul", op("Neg", any_value("a")), any_value("b")), []),
        (op("Mul", op("Neg", any_value("a")), any_value("b"), commutative=True), [{"a": "x", "b": "y"}]),
        (op("Mul", op("Neg", name="n"), any_value("b"), commutative=True), []),
        (op("Mul", op("Neg", ..., name="n"), any_value("b"), commutative=True), [{"n": "n", "b": "y"}]),
        (op("Add", any_value("a"), any_value("a")), [{"a": "m"}]),
        (op("Sub", any_value("a"), constant("c")), [{"a": "x", "c": "two"}]),
        (op("Sub", any_value("a"), constant(equal=scalar_tensor("float32", 2.0))), [{"a": "x"}]),
        (op("Sub", any_value("a"), constant(equal=scalar_tensor("float32", 3.0))), []),
        (op("Gelu", any_value("a"), attributes={"approximate": True}), [{"a": "x"}]),
        (op("Gelu", any_value("a"), attributes={"approximate": False}), []),
        (op("Gelu", any_value("a"), attributes={"other": True}), []),
        (op("Sub", ..., name="s"), [{"s": "s"}]),
    ],
)  # fmt: skip
def test_what_is_found(pattern: OpPattern, expected: list[dict[str, str]]) -> None:
    graph = graph_of(
        "const %two = float32[]<2.0>",
        "%n = Neg(%x) : float32[2]",
        "%nn = Neg(%n) : float32[2]",
        "%a = Abs(%nn) : float32[2]",
        "%m = Mul(%x, %y) : float32[2]",
        "%m2 = Mul(%y, %n) : float32[2]",
        "%d = Add(%m, %m) : float32[2]",
        "%e = Add(%m, %m2) : float32[2]",
        "%s = Sub(%x, %two) : float32[2]",
        "%g = Gelu(%x) {approximate = true} : float32[2]",
        "%t = MakeTuple(%a, %d, %e, %s, %g)",
        "return %t",
    )
    assert found(pattern, graph) == expected


def test_an_order_inside_is_chosen_by_what_stands_outside() -> None:
    """x*y + y: which factor is the summand only the sum tells."""
    pattern = op("Add", op("Mul", any_value("a"), any_value("b"), commutative=True), any_value("a"), commutative=True)
    graph = graph_of("%m = Mul(%x, %y) : float32[2]", "%s = Add(%y, %m) : float32[2]", "return %s")
    assert found(pattern, graph) == [{"a": "y", "b": "x"}]


def test_a_condition_that_does_not_hold_is_a_reason() -> None:
    graph = graph_of("%n = Neg(%x) : float32[2]", "%m = Neg(%n) : float32[2]", "%t = MakeTuple(%n, %m)", "return %t")
    outer = next(n for n in graph if n.name == "m")
    with pytest.raises(Declined, match=r"^%n \(Neg\) has other uses$"):
        op("Neg", op("Neg", any_value(), single_use=True)).match(outer)
    with pytest.raises(Declined, match=r"^too small; %n"):
        op("Neg", op("Neg", any_value(), single_use=True), where=lambda n: "too small").match(outer)
    with pytest.raises(Declined, match=r"^not x$"):
        op("Neg", op("Neg", any_value(where=lambda v: "not x"))).match(outer)
    # Where the primitives do not match, there is nothing to give reasons for.
    assert op("Neg", op("Abs", any_value()), where=lambda n: "too small").match(outer) is None


def test_the_root_may_have_many_uses() -> None:
    """Nothing is left behind where the root is replaced, whoever takes it."""
    pattern = op("Neg", op("Abs", any_value("x")), single_use=True)
    graph = graph_of("%a = Abs(%x) : float32[2]", "%n = Neg(%a) : float32[2]", "%t = MakeTuple(%n, %n)", "return %t")
    assert found(pattern, graph) == [{"x": "x"}]


def test_the_order_that_meets_all_conditions_is_taken() -> None:
    pattern = op(
        "Mul", any_value("a", where=lambda v: None if v.name == "y" else "not y"), any_value("b"), commutative=True
    )
    graph = graph_of("%m = Mul(%x, %y) : float32[2]", "return %m")
    assert found(pattern, graph) == [{"a": "y", "b": "x"}]


@pytest.mark.parametrize("operands", [(..., any_value()), (any_value(),)])
def test_patterns_that_make_no_sense(operands: tuple[object, ...]) -> None:
    with pytest.raises(ValueError, match=r"stands last"):
        op("Mul", *operands, commutative=True)  # type: ignore[arg-type]


# -- rewriting ---------------------------------------------------------------------------------------------------------

DOUBLE_NEGATION = Rewrite(op("Neg", op("Neg", any_value("x"))), lambda graph, m: m["x"])


def swept(rewrite: Rewrite, graph: Graph) -> PassResult:
    result = PassResult("test")
    graph.editor = "test"
    rewrite.sweep(graph, result)
    verify(graph)
    return result


def test_nodes_that_nothing_uses_go_and_others_stay() -> None:
    graph = graph_of(
        "%a = Neg(%x) : float32[2]", "%b = Neg(%a) : float32[2]", "%c = Neg(%b) : float32[2]",
        "%t = MakeTuple(%b, %c)", "return %t",
    )  # fmt: skip
    result = swept(DOUBLE_NEGATION, graph)
    # b is x; c, which negated b, negates x now, as a did.
    assert [(n.name, [v.name for v in n.operands]) for n in graph] == [("c", ["x"]), ("t", ["x", "c"])]
    assert (result.matched, result.changed, result.misses) == (1, 1, [])


def test_a_node_that_stands_in_two_places_of_a_pattern_goes_once() -> None:
    rewrite = Rewrite(op("Mul", op("Neg", any_value("x")), op("Neg", any_value("x"))), lambda graph, m: m["x"])
    graph = graph_of(
        "%n = Neg(%x) : float32[2]", "%m = Mul(%n, %n) : float32[2]", "%a = Abs(%m) : float32[2]", "return %a"
    )
    assert swept(rewrite, graph).changed == 1
    assert [(n.name, [v.name for v in n.operands]) for n in graph] == [("a", ["x"])]


def test_new_nodes_know_where_they_come_from() -> None:
    graph = graph_of(
        '%a = Neg(%x) : float32[2] scope("net/one/Neg-op0")',
        '%b = Mul(%a, %y) : float32[2] scope("net/two/Mul-op0")',
        "return %b",
    )
    root = graph.result
    assert isinstance(root, Node)
    root.primal = {"unique_id": "7"}

    def build(graph: Graph, m: Match) -> Node:
        product = graph.create("Mul", [m["a"], m["b"]])
        return graph.create("Neg", [product], scope="my own")

    rewrite = Rewrite(op("Mul", op("Neg", any_value("a"), single_use=True), any_value("b"), commutative=True), build)
    swept(rewrite, graph)
    mul, neg = graph
    assert [(n.op.name, n.scope, dict(n.primal)) for n in graph] == [
        ("Mul", "net/two/Mul-op0", {"unique_id": "7"}), ("Neg", "my own", {"unique_id": "7"}),
    ]  # fmt: skip
    for node in (mul, neg):
        assert node.origin is not None
        assert (node.origin.sources, node.origin.passes) == (("b", "a"), ("test",))


def test_misses_are_reported() -> None:
    graph = graph_of("%a = Neg(%x) : float32[2]", "%b = Neg(%a) : float32[2]", "%t = MakeTuple(%a, %b)", "return %t")
    rewrite = Rewrite(op("Neg", op("Neg", any_value("x"), single_use=True)), lambda graph, m: m["x"])
    result = swept(rewrite, graph)
    assert (result.matched, result.changed) == (1, 0)
    assert [(m.site, m.reason) for m in result.misses] == [("%b", "%a (Neg) has other uses")]
    assert len(graph) == 3


def test_a_replacement_may_be_made_of_what_it_replaces() -> None:
    graph = graph_of("%a = Neg(%x) : float32[2]", "%b = Abs(%a) : float32[2]", "return %b")
    swept(Rewrite(op("Neg", ..., name="n"), lambda graph, m: graph.create("Exp", [m["n"]])), graph)
    assert [n.op.name for n in graph] == ["Neg", "Exp", "Abs"]


def test_a_replacement_of_another_type_is_refused() -> None:
    graph = graph_of("%a = Neg(%x) : float32[2]", "return %a")
    wrong = Rewrite(op("Neg", any_value()), lambda graph, m: graph.constant(scalar_tensor("float32", 0.0)))
    with pytest.raises(VerifyError, match="another type"):
        wrong.sweep(graph, PassResult("test"))


def test_effects_are_left_to_effects() -> None:
    graph = Graph("step")
    state = graph.state("w", tensor("float32", 2))
    effect = graph.create("Print", [state], tensor("int32"), attributes={"side_effect_io": True})
    graph.result = effect
    result = PassResult("test")
    Rewrite(op("Print", any_value()), lambda graph, m: m.root).sweep(graph, result)
    assert result.changed == 0
    assert "has an effect" in result.misses[0].reason


def test_functions_are_rewritten_too_and_the_parts_of_training_stay(exported: Callable[[str], Path]) -> None:
    """On a network: nodes of forward stay in forward, and the anatomy is found as before."""
    program = read_mindir(exported("branch"))
    before = {name: [w.name for w in anatomy(g).weights] for name, g in program.graphs.items()}
    bodies = [b for g in program.graphs.values() for b in g.all_graphs()]
    count = sum(n.op.name == "MatMul" for b in bodies for n in b)

    def twice(graph: Graph, m: Match) -> Node:
        return graph.create("Neg", [graph.create("Neg", [m["product"]])])

    result = Rewrite(op("MatMul", ..., name="product"), twice).run(program, PassResult("test"))
    assert result.changed == count > 0
    verify(program)
    assert {name: [w.name for w in anatomy(g).weights] for name, g in program.graphs.items()} == before
    result = DOUBLE_NEGATION.run(program, PassResult("test"))
    assert result.changed == count


def test_matching_costs_the_nodes_of_the_graph() -> None:
    """One look at each node of the root's primitive, also where one value has all the uses."""
    graph = Graph("step")
    x = graph.add_input("x", tensor("float32", 2))
    shared = graph.create("Neg", [x])
    graph.result = graph.create("MakeTuple", [graph.create("Neg", [shared]) for _ in range(3000)])
    looks = 0

    def look(node: object) -> str | None:
        nonlocal looks
        looks += 1
        return None

    rewrite = Rewrite(op("Neg", op("Neg", any_value("x"), single_use=True), where=look), lambda graph, m: m["x"])
    program = Program({"step": graph}, {}, Schedule((Entry("step"),)))
    result = rewrite.run(program, PassResult("test"))
    assert (looks, result.changed, len(result.misses)) == (3000, 0, 3000)
