"""Dead-code and common-subexpression elimination: what the text-IR tests of this folder cannot show."""

from __future__ import annotations

import pytest
from boost_compile.ir.core.graph import Constant, Graph, Node, Value
from boost_compile.ir.core.op import NO_ATTRIBUTES, Op
from boost_compile.ir.core.program import Entry, Program, Schedule
from boost_compile.ir.core.types import tensor
from boost_compile.ir.text import parse_program, print_program
from boost_compile.passes import compile_program
from boost_compile.passes.common_subexpression_elimination import CommonSubexpressionElimination
from boost_compile.passes.dead_code_elimination import DeadCodeElimination

WIDTH = 64_000


def program_of(graph: Graph) -> Program:
    return Program({graph.name: graph}, {}, Schedule((Entry(graph.name),)))


class Counting:
    """Counts how often nodes hand out copies of their operands, by width."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch):
        self.copied = 0
        snapshot = Node.operands.fget  # type: ignore[attr-defined]

        def operands(node: Node) -> tuple[Value, ...]:
            self.copied += node.num_operands
            return snapshot(node)  # type: ignore[no-any-return]

        monkeypatch.setattr(Node, "operands", property(operands))


def test_dead_code_elimination_names_the_state_that_goes() -> None:
    """An accumulator that nothing reads goes; a weight that nothing reads stays, checkpoints hold it."""
    program = parse_program("""
        state %kept: float32[2] role=weight
        state %unread: float32[2] role=weight
        state %lost: float32[2] role=accumulator
        graph @step(%x: float32[2]) {
          %r = Load(%kept, umonad)
          %s = Load(%lost, umonad)
          %t = Exp(%s) : float32[2]
          return %r
        }
    """)
    result = compile_program(program, [DeadCodeElimination()])
    (report,) = result.reports
    assert list(result.state) == ["kept", "unread"]
    assert list(result.graphs["step"].states) == ["kept"]
    assert report.statistics == {"nodes": 2, "functions": 0, "state": ["lost"]}
    assert report.summary == "removed 2 nodes, 1 state variable (lost)"
    assert (report.matched, report.changed) == (3, 3)


def test_dead_code_elimination_keeps_state_that_another_graph_uses() -> None:
    program = parse_program("""
        program @two { schedule @a, @b }
        state %w: float32[2] role=weight
        graph @a(%x: float32[2]) {
          %dead = Load(%w, umonad)
          return %x
        }
        graph @b() {
          %r = Load(%w, umonad)
          return %r
        }
    """)
    result = compile_program(program, [DeadCodeElimination()])
    assert list(result.state) == ["w"]
    assert list(result.graphs["a"].states) == []


def test_dead_code_elimination_of_a_clean_graph_changes_nothing() -> None:
    program = parse_program("graph @step(%x: float32[2]) {\n  %a = Exp(%x) : float32[2]\n  return %a\n}")
    result = compile_program(program, [DeadCodeElimination()])
    assert result.reports[0].changed == 0
    assert print_program(result, annotations=False).count("=") == print_program(program, annotations=False).count("=")


def test_dead_code_elimination_removes_a_wide_node() -> None:
    graph = Graph("step")
    x = graph.add_input("x", tensor("float32", 2))
    leaves = [graph.create("Neg", [x]) for _ in range(WIDTH)]
    graph.create("MakeTuple", leaves)
    graph.create("MakeTuple", [leaves[0]] * WIDTH)
    graph.result = x
    result = compile_program(program_of(graph), [DeadCodeElimination()])
    assert len(result.graphs["step"]) == 0
    assert result.reports[0].changed == WIDTH + 2


def test_merging_copies_no_operand_list(monkeypatch: pytest.MonkeyPatch) -> None:
    graph = Graph("step")
    x = graph.add_input("x", tensor("float32", 2))
    graph.result = graph.create("MakeTuple", [graph.create("Neg", [x]) for _ in range(WIDTH)])
    program = program_of(graph)
    counting = Counting(monkeypatch)
    report = CommonSubexpressionElimination().run(program)
    assert report.changed == WIDTH - 1
    assert counting.copied == 0
    assert len(graph) == 2
    assert isinstance(graph.result, Node)
    assert len({id(v) for v in graph.result.operands}) == 1


def test_constants_merge_by_bits_whatever_their_names() -> None:
    graph = Graph("step")
    x = graph.add_input("x", tensor("float32", 2))
    one, other, minus = Constant("one", 0.0), Constant("other", 0.0), Constant("minus", -0.0)
    op = Op("Scale", NO_ATTRIBUTES)
    nodes = [graph.create(op, [x, c, c], x.type) for c in (one, other, minus)]
    graph.result = graph.create("MakeTuple", nodes)
    report = CommonSubexpressionElimination().run(program_of(graph))
    assert isinstance(graph.result, Node)
    assert graph.result.operands == (nodes[0], nodes[0], nodes[2])
    assert nodes[0].operands == (x, one, one)
    assert not other.uses
    assert report.statistics == {"nodes": 1, "constants": 1}
    assert (report.matched, report.changed) == (2, 2)


def test_the_first_stays_and_remembers_the_others() -> None:
    program = parse_program("""
        graph @step(%x: float32[2]) {
          %a = Exp(%x) : float32[2] origin("forward.exp"; "earlier")
          %b = Exp(%x) : float32[2] scope("Default/second") marks {checkpoint = true} primal {}
          %c = Add(%a, %b)
          return %c
        }
    """)
    result = compile_program(program, [CommonSubexpressionElimination()])
    a, c = result.graphs["step"]
    assert (a.name, c.name) == ("a", "c")
    assert a.origin is not None
    assert a.origin.sources == ("forward.exp", "b")
    assert a.origin.passes == ("earlier", "common-subexpression-elimination")
    assert a.marks == {"checkpoint": True}


def test_nodes_of_different_parts_are_reported_as_missed() -> None:
    program = parse_program("""
        graph @step(%x: float32[2]) {
          %a = Exp(%x) : float32[2] primal {unique_id = "1"}
          %b = Exp(%x) : float32[2] primal {forward_unique_id = "1"} scope("Gradients/Default/net")
          %c = Add(%a, %b)
          return %c
        }
    """)
    (report,) = compile_program(program, [CommonSubexpressionElimination()]).reports
    (miss,) = report.misses
    assert miss.site == "step: Exp in Gradients/Default/net (%b)"
    assert miss.reason == "equals %a, but stands for another part of the training step"
    assert (report.matched, report.changed) == (1, 0)


def test_running_twice_finds_nothing_more() -> None:
    program = parse_program("""
        graph @step(%x: float32[2]) {
          %a = Exp(%x) : float32[2]
          %b = Exp(%x) : float32[2]
          %c = Add(%b, %a)
          %d = Add(%a, %b)
          %all = MakeTuple(%c, %d)
          return %all
        }
    """)
    pipeline = "common-subexpression-elimination,dead-code-elimination"
    once = compile_program(program, pipeline)
    twice = compile_program(once, pipeline)
    assert [r.changed for r in twice.reports] == [2, 0, 0, 0]
