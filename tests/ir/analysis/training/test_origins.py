"""Where results come from, through branches, calls and tuples."""

from __future__ import annotations

import pytest
from boost_compile.ir.analysis.training.interpretation import interpret
from boost_compile.ir.analysis.training.network import network_parts
from boost_compile.ir.analysis.training.origins import Computed, Origins, image, passed_on

from tests.graphs import graph, node

STEP = """
state %w: float32[2]
state %scale: float32[]
state %rate: float32[]
graph @step(%x: float32[2], %no: bool[]) {
  %w0 = Load(%w, umonad) @f
  %y = Mul(%w0, %x) @f
  %loss = ReduceSum(%y, (), false) @f
  %g = Mul(%x, %x) @b
  %u = UpdateState(umonad, %y, %g)
  %p = Partial(@update, %w, %rate, %g, %loss, %scale, %x, %u)
  %q = Partial(@skip, %loss, %scale, %x, %w)
  %s = Switch(%no, %q, %p) : union<@update, @skip>
  %c = call(%s) : (float32[], float32[], float32[2])
  %v = UpdateState(%u, %c)
  %r = Depend(%c, %v)
  return %r
  func @update(%weight: float32[2], %lr: float32[], %gr: float32[2], %l: float32[], %sc: float32[], %i: float32[2],
               %t: umonad) {
    %up = ApplyGradientDescent(%weight, %lr, %gr, %t) : float32[2]
    %t2 = UpdateState(%t, %up)
    %k = Load(%sc, %t)
    UPDATE
    %pack = MakeTuple(%l, %a, %b)
    %z = Depend(%pack, %t2)
    return %z
  }
  func @skip(%l: float32[], %sc: float32[], %i: float32[2], %weight: float32[2]) {
    %k = Load(%sc, umonad)
    SKIP
    %pack = MakeTuple(%l, %a, %b)
    return %pack
  }
}"""
ALIKE = "%a = RealDiv(%l, %k)\n%b = Neg(%i)"


def origins(update: str, skip: str) -> tuple[Origins, list[object]]:
    g = graph(STEP.replace("UPDATE", update).replace("SKIP", skip))
    found = Origins(g, network_parts(g))
    return found, [r.origin for r in found.results()]


def shown(origin: object) -> object:
    if isinstance(origin, Computed):
        return (origin.node.op.name, *(shown(o) for o in origin.operands))
    return getattr(origin, "name", None)


def test_what_both_branches_pass_on_or_compute_alike() -> None:
    found, (passed, divided, negated) = origins(ALIKE, ALIKE)
    assert shown(passed) == "loss"
    assert shown(divided) == ("RealDiv", "loss", ("Load", "scale"))
    assert shown(negated) == ("Neg", "x")
    assert [r.path for r in found.results()] == [(0,), (1,), (2,)]
    assert [str(r.type) for r in found.results()] == ["float32[]", "float32[]", "float32[2]"]
    assert found.is_forward(passed)
    assert found.is_forward(divided)
    assert found.is_forward(negated)


@pytest.mark.parametrize(
    ("update", "skip"),
    [
        (ALIKE, ALIKE.replace("RealDiv", "Mul")),
        (ALIKE, ALIKE.replace("RealDiv(%l, %k)", "RealDiv(%k, %l)")),
        (ALIKE.replace("RealDiv(%l, %k)", "RealDiv(%l, %n)") + "\n%n2 = Neg(%k)", ALIKE),
    ],
)  # fmt: skip
def test_branches_that_differ(update: str, skip: str) -> None:
    update = update.replace("%a = RealDiv(%l, %n)", "%n = Neg(%l)\n%a = RealDiv(%l, %n)")
    found, (passed, differs, same) = origins(update, skip)
    assert shown(passed) == "loss"
    assert differs is None
    assert not found.is_forward(differs)
    assert shown(same) == ("Neg", "x")


def test_what_each_branch_draws_is_not_alike() -> None:
    drawn = "%a = RealDiv(%l, %k)\n%b = StandardNormal((2,), 1, 2) : float32[2]"
    _, (_, _, third) = origins(drawn, drawn)
    assert third is None


def test_state_that_the_graph_writes_is_no_origin() -> None:
    """Whether the Load of the weight sees the update depends on the branch."""
    text = "%m = Load(%weight, TOKEN)\n%a = RealDiv(%l, %k)\n%b = Neg(%m)"
    _, (_, _, moved) = origins(text.replace("TOKEN", "%t2"), text.replace("TOKEN", "umonad"))
    assert moved is None


def test_a_gradient_is_not_forward() -> None:
    found, (_, _, third) = origins("%a = RealDiv(%l, %k)\n%b = Neg(%gr)", ALIKE)
    assert third is None
    assert not found.is_forward(third)


def test_values_of_the_main_graph() -> None:
    g = graph("""
graph @step(%x: float32[2], %k: float32[]) {
  %y = Neg(%x) @f
  %d = Exp(%y) @b
  %n = Mul(%y, %k)
  %m = Mul(%d, %k)
  %c = Neg(float32[2]<1.0, 2.0>)
  %inner = MakeTuple(%n, %m)
  %t = MakeTuple(%y, %inner, %c, %x, float32[2]<1.0, 2.0>)
  %u = UpdateState(umonad, %y)
  %r = Depend(%t, %u)
  return %r
}""")
    found = Origins(g, network_parts(g))
    results = found.results()
    assert [r.path for r in results] == [(0,), (1, 0), (1, 1), (2,), (3,), (4,)]
    assert [shown(r.origin) for r in results][:5] == ["y", "n", "m", "c", "x"]
    assert [found.is_forward(r.origin) for r in results] == [True, True, False, False, True, False]


def test_what_every_micro_batch_has() -> None:
    """Forward values and what is computed from these, inputs, constants and state that nothing writes."""
    g = graph("""
state %w: float32[2]
state %scale: float32[2]
graph @step(%x: float32[2]) {
  %y = Neg(%x)
  %called = call(@make, %x) : float32[2]
  %d = Exp(%y)
  %k = Load(%scale, umonad)
  %scaled = Mul(%y, %k)
  %alone = Neg(%k)
  %behind = Mul(%y, %d)
  %own = call(@make, %y) : float32[2]
  %after = Mul(%own, %y)
  %write = AssignAdd(%w, %y, umonad)
  %u = UpdateState(umonad, %write)
  %new = Load(%w, %u)
  %moved = Mul(%new, %y)
  %r = MakeTuple(%scaled, %alone, %behind, %after, %moved, %called)
  return %r
  func @make(%a: float32[2]) {
    %m = Neg(%a)
    return %m
  }
}""")
    parts = {node(g, "y"): "forward", node(g, "called"): "forward", node(g, "d"): "backward"}
    found = Origins(g, parts)
    told = ("y", "called", "scaled", "alone", "d", "behind", "own", "after", "moved")
    assert [name for name in told if found.is_forward(node(g, name))] == ["y", "called", "scaled"]


def test_a_tuple_that_cannot_be_taken_apart_has_no_origins() -> None:
    g = graph("%t = Pair(%x) : (float32[2], (float32[2], float32[]))\nreturn %t")
    results = Origins(g, {}).results()
    assert [(r.path, r.origin) for r in results] == [((0,), None), ((1, 0), None), ((1, 1), None)]


def test_what_the_main_graph_computes_from_a_call() -> None:
    """%n is the negation of %x, %k of a value of the graph itself, and so %k itself."""
    g = graph("""
graph @step(%x: float32[2]) {
  %same = call(@same, %x) : float32[2]
  %n = Neg(%same)
  %e = Exp(%x)
  %k = Neg(%e)
  %r = MakeTuple(%n, %k)
  return %r
  func @same(%a: float32[2]) {
    return %a
  }
}""")
    assert [shown(r.origin) for r in Origins(g, {}).results()] == [("Neg", "x"), "k"]


def test_what_comes_out_of_a_loop_is_what_its_call_returns() -> None:
    """What each turn computes from that of the one before it."""
    g = graph("""
graph @step(%x: float32[2], %more: bool[]) {
  %c = call(@turn, %x, %more) : float32[2]
  %r = MakeTuple(%c, %x)
  return %r
  func @turn(%a: float32[2], %p: bool[]) {
    %again = Partial(@turn, %a, %p)
    %out = Partial(@out, %a)
    %next = Switch(%p, %again, %out)
    %b = call(%next) : float32[2]
    %n = Neg(%b)
    return %n
  }
  func @out(%a: float32[2]) {
    return %a
  }
}""")
    assert [shown(r.origin) for r in Origins(g, {}).results()] == ["c", "x"]


def test_what_merely_passes_a_network_value_on() -> None:
    g = graph("""
graph @step(%x: float32[2], %go: bool[]) {
  %y = Neg(%x) @f
  %z = Exp(%x) @f
  %d = Mul(%y, %z) @b
  %t = MakeTuple(%y, %d)
  %u = UpdateState(umonad, %d)
  %w = Depend(%t, %u)
  %i = TupleGetItem(%w, 1)
  %late = Depend(%y, %u)
  %c = call(@copy, %y) : float32[2]
  %twice = call(@copy, %c) : float32[2]
  %p = Partial(@same, %y)
  %q = Partial(@same, %z)
  %f = Switch(%go, %p, %q) : union<@same>
  %either = call(%f) : float32[2]
  %alike = Partial(@too, %y)
  %f2 = Switch(%go, %alike, %alike) : union<@too>
  %both = call(%f2) : float32[2]
  %own = Exp(%i)
  %r = MakeTuple(%own, %either, %twice, %both, %late)
  return %r
  func @same(%v: float32[2]) {
    return %v
  }
  func @copy(%v: float32[2]) {
    return %v
  }
  func @too(%v: float32[2]) {
    return %v
  }
}""")
    parts = network_parts(g)
    done = interpret(g, parts)

    def of(name: str) -> str | None:
        found = image(g, parts, done, node(g, name))
        return None if found is None else found.name

    assert of("y") == "y"
    assert of("i") == "d"
    assert of("own") is None
    assert of("late") == "y"
    assert of("both") == "y"
    assert of("either") is None  # one of two
    assert image(g, parts, done, g.inputs[0]) is g.inputs[0]
    assert [None if v is None else v.name for v in passed_on(g, parts, [node(g, "i"), node(g, "own")])] == ["d", None]
