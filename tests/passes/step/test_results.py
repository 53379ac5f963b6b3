"""Results of a graph by name."""

from __future__ import annotations

from boost_compile.ir.core.graph import Node
from boost_compile.passes.step.results import named_results, with_results

from tests.graphs import graph, node

BODY = "%y = Neg(%x)\n%t = MakeTuple(%y, %x)\n%u = UpdateState(umonad, %y)\n"


def names(text: str) -> list[tuple[str, str]]:
    return [(name, value.name) for name, value in named_results(graph(text))]


def test_named_results() -> None:
    step = "graph @step(%x: float32[2]) -> OUTPUTS {\n" + BODY
    assert names(step.replace("OUTPUTS", "(error)") + "%r = Depend(%y, %u)\nreturn %r\n}") == [("error", "y")]
    assert names(step.replace("OUTPUTS", "(a, b)") + "return %t\n}") == [("a", "y"), ("b", "x")]


def test_results_without_names() -> None:
    step = "graph @step(%x: float32[2]) {\n" + BODY
    assert names(step + "return %y\n}") == [("loss", "y")]
    assert names(step + "return %t\n}") == [("loss", "y"), ("output1", "x")]
    assert names(step + "return float32[]<0.0>\n}") == []
    apply = "state %w: float32[2]\ngraph @apply() {\n%y = Load(%w, umonad)\n%n = Neg(%y)\nreturn %n\n}"
    assert names(apply) == []  # without inputs there is no loss
    assert names(apply.replace("apply()", "apply() -> (norm)")) == [("norm", "n")]


def test_added_results_take_the_place_of_those_of_their_name() -> None:
    g = graph("graph @step(%x: float32[2]) -> (a, b) {\n" + BODY + "return %t\n}")
    y = node(g, "y")
    value = with_results(g, [("c", y), ("b", y)])
    assert g.outputs == ("a", "b", "c")
    assert isinstance(value, Node)
    assert value.op.name == "MakeTuple"
    assert value.operands == (y, y, y)


def test_one_result_is_no_tuple() -> None:
    g = graph("graph @step(%x: float32[2]) -> (a) {\n" + BODY + "return %y\n}")
    assert with_results(g, [("a", g.inputs[0])]) is g.inputs[0]
    assert g.outputs == ("a",)
