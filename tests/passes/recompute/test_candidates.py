"""What the backward part takes, and what may run again."""

from __future__ import annotations

import pytest
from boost_compile.ir.core.graph import Node
from boost_compile.ir.core.primitives import ASCEND, CPU, facts
from boost_compile.ir.text import parse_program
from boost_compile.passes.recompute.candidates import forward_of, prepare
from boost_compile.passes.recompute.plans import kept_bytes

from tests.graphs import graph, node
from tests.material import material
from tests.passes.recompute.chain import WIDTH, chain


def test_the_values_of_a_chain() -> None:
    """The backward part takes each layer's result; the products before it are forgotten."""
    forward = forward_of(chain(5).graphs["step"], CPU)
    assert [node.name for node in forward.nodes if node in forward.wanted] == ["t0", "t1", "t2", "t3", "t4"]
    assert not any(forward.obstacles.values())
    # Weights are no forward nodes, and users in the backward part none of its users.
    named = {node.name: node for node in forward.nodes}
    assert [node.name for node in forward.operands(named["m1"])] == ["t0"]
    assert [node.name for node in forward.users(named["t0"])] == ["m1"]
    assert kept_bytes(forward) == 5 * 4 * WIDTH


def test_a_view_that_is_taken_is_no_bytes_of_its_own() -> None:
    forward = forward_of(
        graph("""graph @step(%x: float32[4]) {
  %a = Exp(%x) @f
  %v = Reshape(%a, (2, 2)) : float32[2,2] @f
  %g = Mul(%v, %v) @b
  %h = Neg(%a) @b
  %all = MakeTuple(%g, %h)
  return %all
}"""),
        CPU,
    )
    assert {node.name for node in forward.wanted} == {"a", "v"}
    assert kept_bytes(forward) == 16


def test_a_normalisation_at_rest_needs_no_other_node() -> None:
    graph = material("lenet_bn").graphs["step"]
    for norm in [n for n in graph if n.op.name == "BatchNorm"]:
        norm.set_operand(facts(norm.op).training or 0, graph.constant(False))
    assert not forward_of(graph, CPU).replaced


def test_what_another_node_stands_in_for() -> None:
    """A normalisation in training runs again at rest, on CPU: elsewhere its results are not known to hold the
    variance."""
    graph = material("lenet_bn").graphs["step"]
    assert {node.op.name for node in forward_of(graph, CPU).replaced} == {"BatchNorm"}
    elsewhere = forward_of(graph, ASCEND)
    found = {node.op.name: why for node, why in elsewhere.obstacles.items() if why}
    assert found["BatchNorm"] == "it changes state"
    assert not elsewhere.replaced


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ("%n = Neg(%x) : float32[2] @f", ""),
        ('%n = Neg(%x) : float32[2] marks {duplicated = true} primal {unique_id = "9"}', "it is a copy that runs"),
        ('%n = AllReduce(%x) {group = "hccl_world_group"} : float32[2] @f', "it exchanges values with other ranks"),
        ("%n = StandardNormal((2,), 1, 2) : float32[2] @f", "it draws random numbers"),
        ("%n = call(@same, %x) : float32[2] @f", "it calls a function"),
        ("%n = AssignAdd(%w, %x, umonad) : float32[2] @f", "it changes state"),
    ],
)
def test_what_cannot_run_again_says_why(line: str, why: str) -> None:
    g = graph(f"""
state %w: float32[2]
graph @step(%x: float32[2]) {{
  {line}
  %g = Mul(%n, %n) @b
  return %g
  func @same(%a: float32[2]) {{
    return %a
  }}
}}""")
    found = forward_of(g, CPU).obstacles[node(g, "n")]
    assert found.startswith(why)
    assert bool(found) == bool(why)


def test_what_holds_no_tensor_is_no_candidate() -> None:
    """A token, a function, a number of the graph itself."""
    g = graph("""
state %w: float32[2]
graph @step(%x: float32[2]) {
  %w0 = Load(%w, umonad) @f
  %y = Mul(%w0, %x) @f
  %u = UpdateState(umonad, %y) @f
  %p = Partial(@same, %x) @f
  %n = ScalarAdd(2, 3) : int64 @f
  %t = MakeTuple(%y, %x) @f
  %g = Mul(%y, %x) @b
  %s = MakeTuple(%g, %n, %t, %p)
  %r = Depend(%s, %u)
  return %r
  func @same(%a: float32[2]) {
    return %a
  }
}""")
    assert [n.name for n in forward_of(g, CPU).nodes] == ["y", "t"]


def test_what_is_written_in_place_and_read_before() -> None:
    """A tensor that a node takes itself, and not by a Load, before it is added to: neither may run again."""
    scope = 'scope("Default/a") primal {unique_id = "1"}'
    text = f"""
        state %w: float32[4] role=weight
        graph @step(%x: float32[4]) {{
          %y = Exp(%x) : float32[4] {scope}
          %a = Tanh(%y) : float32[4] {scope}
          %b = InplaceAddExt(%y, %a, 1, umonad) : float32[4] {scope}
          %u = UpdateState(umonad, %b)
          %g = TanhGrad(%a, %x) : float32[4] scope("Gradients/Default/a") primal {{forward_unique_id = "1"}}
          %n = AssignSub(%w, %g, %u) : float32[4]@w
          %v = UpdateState(%u, %n)
          %r = Depend(%a, %v)
          return %r
        }}"""
    program = parse_program(text)
    graph = program.graphs["step"]
    prepare(graph)
    found = {node.name: why for node, why in forward_of(graph, CPU).obstacles.items() if why}
    assert found["y"] == found["a"] == "its memory, or what it takes, is written in place"


def test_what_the_forward_part_adds_in_place_gets_a_result_of_its_own() -> None:
    """Where all who take it say when."""
    made = graph("""
state %w: float32[4] role=weight
graph @step(%x: float32[4]) {
  %y = Exp(%x) : float32[4]@y @f
  %b = InplaceAddExt(%y, %x, 1, umonad) : float32[4]@y @f
  %u = UpdateState(umonad, %b)
  %l = Load(%y, %u) : float32[4] @f
  %a = Tanh(%l) : float32[4] @f
  %g = TanhGrad(%a, %x) : float32[4] @b
  %n = AssignSub(%w, %g, %u) : float32[4]@w
  %v = UpdateState(%u, %n)
  %r = Depend(%a, %v)
  return %r
}""")
    prepare(made)
    assert "InplaceAddExt" not in [n.op.name for n in made]
    added = node(made, "a").operand(0)
    assert (added.op.name, added.operands[:2]) == ("AddExt", (node(made, "y"), made.inputs[0]))  # type: ignore[attr-defined]
    assert not any(forward_of(made, CPU).obstacles.values())


def test_a_view_is_in_memory_as_what_it_shows() -> None:
    """The elements of a tuple that a kernel made are memory of their own."""
    made = graph("""graph @step(%x: float32[4]) {
  %a = Exp(%x) @f
  %v = Reshape(%a, (2, 2)) : float32[2,2] @f
  %w = Reshape(%v, (4,)) : float32[4] @f
  %t = Split(%w, 0, 2) : (float32[2], float32[2]) @f
  %e = TupleGetItem(%t, 1) @f
  %g = Mul(%w, %w) @b
  %h = Mul(%e, %e) @b
  %all = MakeTuple(%g, %h)
  return %all
}""")
    forward = forward_of(made, CPU)
    assert forward.memory([node(made, "w")]) == {node(made, "a")}
    assert forward.memory(forward.wanted) == {node(made, "a"), node(made, "e")}


def test_what_the_backward_part_computes_of_the_forward_part_alone_waits_for_a_gradient() -> None:
    """%m could run as soon as %a is there, and so could %k behind it; a constant need not wait."""
    value = "float32[32768]"
    made = graph(f"""
graph @step(%x: {value}) {{
  %a = Exp(%x) : {value} @f
  %b = Square(%a) : {value} @f
  %m = Neg(%a) : {value} @b
  %k = Mul(%m, %a) : {value} @b
  %c = Neg(1.0) : float32[] @b
  %g = OnesLike(%b) : {value} @b
  %h = Neg(%g) : {value} @b
  %i = Mul(%k, %h) : {value} @b
  %j = Mul(%i, %c) : {value} @b
  return %j
}}""")
    assert prepare(made) == 2
    guard = node(made, "m").operand(0)
    assert (guard.op.name, guard.operand(0)) == ("Depend", node(made, "a"))  # type: ignore[attr-defined]
    assert guard.operand(1).operands == (node(made, "h"),)  # type: ignore[attr-defined]
    assert node(made, "k").operands == (node(made, "m"), node(made, "a")), "it waits behind %m"
    assert not isinstance(node(made, "c").operand(0), Node)


def test_what_is_smaller_than_the_nodes_by_which_it_would_wait_does_not() -> None:
    small, large = (
        graph(f"""
graph @step(%x: float32[{size}]) {{
  %a = Exp(%x) : float32[{size}] @f
  %b = Square(%a) : float32[{size}] @f
  %m = Neg(%a) : float32[{size}] @b
  %g = OnesLike(%b) : float32[{size}] @b
  %h = Mul(%m, %g) : float32[{size}] @b
  return %h
}}""")
        for size in (15_871, 15_872)
    )
    assert (prepare(small), prepare(large)) == (0, 1)
    assert len(large) == len(small) + 2
