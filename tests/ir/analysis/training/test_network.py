"""What is forward and what is backward, beyond the exporter's marks."""

from __future__ import annotations

import pytest
from boost_compile.ir.analysis.training.anatomy import anatomy
from boost_compile.ir.analysis.training.interpretation import interpret
from boost_compile.ir.analysis.training.network import BACKWARD, FORWARD, mark, network_parts
from boost_compile.ir.text import parse_program

from tests.graphs import graph, node

CLOSURES = """
state %w: float32[2]
state %rate: float32[]
graph @step(%x: float32[2], %go: bool[]) {
  %w0 = Load(%w, umonad)
  %p = Partial(@forward, %w0, %x)
  %q = Partial(@other, %x)
  %f = Switch(%go, %p, %q) : union<@forward, @other>
  %pair = call(%f) : (float32[2], fn<@backward>)
  %y = TupleGetItem(%pair, 0) : float32[2]
  %back = TupleGetItem(%pair, 1) : fn<@backward>
  %loss = ReduceSum(%y, (), false) @f
  %seed = OnesLike(%y) @b
  %g = call(%back, %seed) : float32[2]
  %half = Mul(%g, float32[]<0.5>)
  %u = UpdateState(umonad, %half)
  %up = ApplyGradientDescent(%w, %rate, %half, %u) : float32[2]
  %end = UpdateState(%u, %up)
  %r = Depend(%loss, %end)
  return %r
  func @forward(%a: float32[2], %b: float32[2]) {
    %m = Mul(%a, %b) @f
    %k = Partial(@backward, %b)
    %t = MakeTuple(%m, %k)
    return %t
  }
  func @other(%b: float32[2]) {
    %n = Neg(%b) @f
    %k2 = Partial(@backward, %b)
    %t2 = MakeTuple(%n, %k2)
    return %t2
  }
  func @backward(%b: float32[2], %d: float32[2]) {
    %z = Mul(%b, %d)
    return %z
  }
}"""


def test_calls_of_branches_and_closures_follow_from_what_is_marked() -> None:
    g = graph(CLOSURES)
    parts = {n.name: p for n, p in network_parts(g).items()}
    for name in ("w0", "p", "q", "f", "pair", "y", "loss", "m", "n", "t", "t2"):
        assert parts[name] == FORWARD, name
    for name in ("seed", "g"):
        assert parts[name] == BACKWARD, name
    for name in ("half", "up", "u", "end", "r"):
        assert name not in parts


def test_marks() -> None:
    g = graph('%a = Neg(%x) @f\n%b = Neg(%a) @b\n%c = Neg(%b)\n%d = Neg(%c) scope("Gradients/Default/x")\n'
              '%e = Neg(%d) scope("Default/Gradients/x")\nreturn %e')  # fmt: skip
    assert [mark(node(g, name)) for name in "abcde"] == [FORWARD, BACKWARD, None, BACKWARD, None]


def test_what_a_marked_node_needs_is_network() -> None:
    """Backward if it takes a backward value."""
    g = graph(
        "%a = Neg(%x)\n%b = Exp(%a) @f\n%c = Neg(%b) @b\n%d = Neg(%c)\n%e = Mul(%d, %b) @b\n%f = Neg(%e)\nreturn %f"
    )
    parts = {n.name: p for n, p in network_parts(g).items()}
    assert parts == {"a": FORWARD, "b": FORWARD, "c": BACKWARD, "d": BACKWARD, "e": BACKWARD}


def test_a_gradient_that_the_loss_is_computed_from_is_forward() -> None:
    """But not one that a forward node only waits for, as that of a second network behind the update of the first."""
    g = graph(
        "%a = Neg(%x) @f\n%b = Exp(%a) @b\n%pair = MakeTuple(%b)\n%c = TupleGetItem(%pair, 0)\n%d = Mul(%c, %a) @f\n"
        "%e = Exp(%d) @b\n%after = MakeTuple(%e)\n%y = Depend(%x, %after)\n%f = Neg(%y) @f\n%g = Mul(%e, %f) @b\n"
        "return %g"
    )
    parts = {n.name: p for n, p in network_parts(g).items()}
    assert {name for name, part in parts.items() if part == FORWARD} >= {*"abcdf", "pair"}
    assert parts["e"] == parts["g"] == parts["after"] == BACKWARD


def test_an_update_that_the_network_waits_for_is_no_part_of_it() -> None:
    """As that of a discriminator, whose step comes first, or the move of weights that are only tried."""
    g = graph("""
state %w: float32[2]
graph @step(%x: float32[2]) {
  %w0 = Load(%w, umonad) : float32[2] @f
  %a = Mul(%w0, %x) : float32[2] @f
  %b = Neg(%a) : float32[2] @b
  %half = Mul(%b, float32[]<0.5>) : float32[2]
  %new = AssignSub(%w, %half, umonad)
  %all = MakeTuple(%new)
  %y = Depend(%x, %all)
  %t = UpdateState(umonad, %new)
  %w1 = Load(%w, %t) : float32[2] @f
  %c = Mul(%w1, %y) : float32[2] @f
  %d = Neg(%c) : float32[2] @b
  return %d
}""")
    parts = network_parts(g)
    named = {n.name: part for n, part in parts.items()}
    assert not named.keys() & {"half", "new", "all"}
    assert named["c"] == FORWARD
    assert named["d"] == BACKWARD
    assert [write.node.name for write in interpret(g, parts).writes] == ["new"]


GRADIENTS_ADDED = """
state %w: float32[]
graph @step(%x: float32[]) {
  %w0 = Load(%w, umonad) : float32[] @f
  %a = Mul(%w0, %x) : float32[] @f
  %loss = Add(%a, %x) : float32[] @f
  %g = Mul(%a, %x) : float32[] @b
  %twice = Mul(%g, %g) : float32[]
  %one = Add(%x, %twice) : float32[] @f
  %all = Add(%one, %g) : float32[] @f
  %used = Mul(USED) : float32[]
  %new = AssignSub(%w, %used, umonad)
  %t = UpdateState(umonad, %new)
  %r = Depend(%loss, %t)
  return %r
}"""


def test_an_addition_of_gradients_is_no_part_of_the_loss() -> None:
    """MindSpore hands the mark of an addition in the loss on to one in the cell: ``sum`` over squares of gradients."""
    parts = {n.name: part for n, part in network_parts(graph(GRADIENTS_ADDED.replace("USED", "%g, %all"))).items()}
    assert not parts.keys() & {"twice", "one", "all", "used"}
    assert parts["g"] == BACKWARD


def test_an_addition_of_gradients_that_is_differentiated_is_part_of_the_loss() -> None:
    """As in a loss at inputs that the cell moves by their gradients, of which the first node has no mark."""
    source = GRADIENTS_ADDED.replace("%used = Mul(USED) : float32[]", "%used = Mul(%one, %x) : float32[] @b")
    parts = {n.name: part for n, part in network_parts(graph(source)).items()}
    assert parts["twice"] == parts["one"] == parts["all"] == FORWARD


def test_a_branch_beside_one_that_holds_no_network_makes_none_of_a_call() -> None:
    g = graph("""
graph @step(%x: float32[2], %go: bool[]) {
  %p = Partial(@forward, %x)
  %q = Partial(@nothing, %x)
  %f = Switch(%go, %p, %q) : union<@forward, @nothing>
  %r = call(%f) : float32[2]
  return %r
  func @forward(%a: float32[2]) {
    %m = Neg(%a) @f
    return %m
  }
  func @nothing(%a: float32[2]) {
    %m = Exp(%a)
    return %m
  }
}""")
    assert {n.name for n in network_parts(g)} == {"m"}


def test_a_call_that_is_marked_backward_stays_so_whatever_it_calls() -> None:
    """As a forward function that the backward part computes again."""
    g = graph(
        '%r = call(@forward, %x) : float32[2] scope("Gradients/a")\nreturn %r\n'
        "func @forward(%a: float32[2]) {\n%m = Neg(%a) @f\nreturn %m\n}"
    )
    assert network_parts(g)[node(g, "r")] == BACKWARD


BRANCHES = """
state %w: float32[2]
graph @step(%x: float32[2], %here: bool[]) -> (loss) {
  %one = Partial(@plain, %w, %x, umonad)
  %other = Partial(@negated, %w, %x, umonad)
  %which = Switch(%here, %one, %other)
  %both = call(%which) : (float32[2], float32[])
  %g = TupleGetItem(%both, 0) : float32[2]
  %loss = TupleGetItem(%both, 1) : float32[]
  %u = UpdateState(umonad, %both)
  %new = AssignSub(%w, %g, %u) : float32[2]
  %t = UpdateState(%u, %new)
  %r = Depend(%loss, %t)
  return %r
  func @plain(%p: float32[2], %y: float32[2], %t: umonad) {
    %v = Load(%p, %t) : float32[2] primal {unique_id = "1"}
    %m = Mul(%v, %y) primal {unique_id = "2"}
    %l = ReduceSum(%m, (), false, false) : float32[] primal {unique_id = "3"}
    %d = Mul(%y, %m) primal {forward_unique_id = "2"}
    MORE
    %pair = MakeTuple(GIVEN, %l)
    return %pair
  }
  func @negated(%p: float32[2], %y: float32[2], %t: umonad) {
    %no = Neg(%y)
    %v = Load(%p, %t) : float32[2] primal {unique_id = "1"}
    %m = Mul(%v, %no) primal {unique_id = "2"}
    %l = ReduceSum(%m, (), false, false) : float32[] primal {unique_id = "3"}
    %d = Mul(%no, %m) primal {forward_unique_id = "2"}
    %pair = MakeTuple(%d, %l)
    return %pair
  }
}"""


@pytest.mark.parametrize(
    ("more", "given", "gradient"),
    [("", "%d", ["g"]), ("%h = Mul(%d, float32[]<0.5>)", "%h", ["d", "d"])],
    ids=["of a branch each", "changed inside"],
)
def test_a_derivative_that_functions_take(more: str, given: str, gradient: list[str]) -> None:
    """What the call returns is the gradient, where the functions do nothing to it."""
    (step,) = parse_program(BRANCHES.replace("MORE", more).replace("GIVEN", given)).graphs.values()
    found = anatomy(step)
    (weight,) = found.weights
    assert [node.name for node in weight.gradient] == gradient
    named = {node.name: found.part(node) for node in step}
    if gradient == ["g"]:
        assert (named["both"], named["g"], named["loss"], named["which"]) == (BACKWARD, BACKWARD, FORWARD, FORWARD)
