"""The check for overflows that a training cell brings itself."""

from __future__ import annotations

import numpy as np
import pytest
from boost_compile.ir.analysis.effects.effect_list import list_effects
from boost_compile.ir.analysis.training.gradient_path import gradient_paths
from boost_compile.ir.core.graph import Graph
from boost_compile.passes.step.own_check import OwnCheck, find_own_check, look_at_all, skips

from tests.execution import run_graph
from tests.graphs import graph, node

STEP = """
state %w: float32[2]
state %v: float32[2]
state %rate: float32[]
graph @step(%x: float32[2], %e: float32[2]) {
  %w0 = Load(%w, umonad) @f
  %v0 = Load(%v, umonad) @f
  %y = Mul(%w0, %x) @f
  %z = Mul(%y, %v0) @f
  %loss = ReduceSum(%z, (), false) @f
  %g = Mul(%x, %x) @b
  %h = Mul(%e, %e) @b
  ASKS
  %u = UpdateState(umonad, %y, %z, %g, %h)
  %p = Partial(@update, %w, %v, %rate, %g, %h, %u)
  %q = Partial(@skip)
  %s = SWITCH : union<@update, @skip>
  %c = call(%s) : float32[]
  %t = UpdateState(%u, %c)
  %r = Depend(%loss, %t)
  return %r
  func @update(%a: float32[2], %b: float32[2], %lr: float32[], %ga: float32[2], %gb: float32[2], %t: umonad) {
    %up = ApplyGradientDescent(%a, %lr, %ga, %t) : float32[2]
    %t1 = UpdateState(%t, %up)
    %down = ApplyGradientDescent(%b, %lr, %gb, %t1) : float32[2]
    %t2 = UpdateState(%t1, %down)
    %z = Depend(float32[]<0.0>, %t2)
    return %z
  }
  func @skip() {
    return float32[]<0.0>
  }
}"""
FINITE = "%f = IsFinite(%g)\n%fine = ReduceAll(%f, (), false)\n%bad = LogicalNot(%fine)"
BOTH = FINITE.replace("%fine = ReduceAll(%f, (), false)", "%f2 = IsFinite(%h)\n%a1 = ReduceAll(%f, (), false)\n"
                      "%a2 = ReduceAll(%f2, (), false)\n%fine = LogicalAnd(%a1, %a2)")  # fmt: skip
CLIPPED = "%clipped = ClipByValue(%g, float32[]<-1.0>, float32[]<1.0>) : float32[2]\n"
SKIP, GO = "Switch(%bad, %q, %p)", "Switch(%fine, %p, %q)"


def step(asks: str, switch: str) -> Graph:
    return graph(STEP.replace("ASKS", asks).replace("SWITCH", switch))


def found(g: Graph) -> OwnCheck | None:
    return find_own_check(g, list_effects(g).writes())


@pytest.mark.parametrize(("switch", "condition", "skipping"), [(SKIP, "bad", True), (GO, "fine", False)])
def test_the_condition_and_what_asks(switch: str, condition: str, skipping: bool) -> None:
    g = step(BOTH, switch)
    own = found(g)
    assert own is not None
    assert [n.name for n in own.nodes] == ["f", "f2"]
    assert own.conditions == [(node(g, condition), skipping)]


def test_a_branch_that_asks_something_else_is_no_check() -> None:
    asks = "%sum = ReduceSum(%z, (), false)\n%bad = Less(%sum, float32[]<0.0>) : bool[]"
    assert found(step(asks, SKIP)) is None


def test_a_branch_where_both_sides_update_is_no_check() -> None:
    assert found(step(FINITE, "Switch(%bad, %p, %p)")) is None


@pytest.mark.parametrize("switch", [SKIP, GO])
def test_skips_says_what_the_check_says(switch: str) -> None:
    g = step(FINITE, switch)
    own = found(g)
    assert own is not None
    g.result = skips(g, own, scope="")
    g.sort()
    state = {"w": np.ones(2, np.float32), "v": np.ones(2, np.float32), "rate": np.float32(0.5)}
    fine = np.float32([1, 2])
    for x, wanted in ((fine, False), (np.float32([np.inf, 1]), True)):
        assert bool(run_graph(g, [x, fine], {n: v.copy() for n, v in state.items()})) is wanted


@pytest.mark.parametrize("first", [True, False])
@pytest.mark.parametrize("second", [True, False])
@pytest.mark.parametrize("third", [True, False])
def test_any_of_several_checks_skips(first: bool, second: bool, third: bool) -> None:
    g = graph(
        "graph @step(%a: bool[], %b: bool[], %c: bool[]) {\n%n = LogicalNot(%c)\n%r = LogicalAnd(%a, %n)\nreturn %r\n}"
    )
    a, b, _ = g.inputs
    g.result = skips(g, OwnCheck([], [(a, True), (b, False), (node(g, "n"), False)]), scope="")
    g.sort()
    found = run_graph(g, [np.array(v) for v in (first, second, third)], {})
    assert bool(found) == (first or not second or third)


@pytest.mark.parametrize(
    ("asks", "switch"),
    [
        (FINITE, SKIP),
        (FINITE, GO),
        ("%f = IsInf(%g) : bool[2]\n%bad = ReduceAny(%f, (), false)", SKIP),
        (CLIPPED + FINITE.replace("%g)", "%clipped)"), SKIP),
    ],
    ids=["finite", "go", "infinite", "clipped"],
)  # fmt: skip
def test_gradients_that_it_did_not_see_are_joined(asks: str, switch: str) -> None:
    """The update is left out where any gradient is not finite."""
    g = step(asks, switch)
    own = found(g)
    assert own is not None
    assert look_at_all(g, own, gradient_paths(g), scope="") == set()
    fine, bad = np.float32([1, 2]), np.float32([1, np.inf])
    for x, e, updates in ((fine, fine, True), (bad, fine, False), (fine, bad, False)):
        state = {"w": np.zeros(2, np.float32), "v": np.zeros(2, np.float32), "rate": np.float32(0.5)}
        run_graph(g, [x, e], state)
        assert bool(state["w"].any()) is updates, (x, e)
        assert bool(state["v"].any()) is updates, (x, e)


def test_a_check_that_sees_all_stays() -> None:
    g = step(BOTH, SKIP)
    own = found(g)
    assert own is not None
    before = len(g)
    assert look_at_all(g, own, gradient_paths(g), scope="") == set()
    assert len(g) == before


def test_a_check_of_another_kind_is_not_widened() -> None:
    asks = "%fs = FloatStatus(%g) : float32[1]\n%some = Greater(%fs, float32[]<0.0>) : bool[1]\n"
    asks += "%bad = ReduceAny(%some, (), false)"
    g = step(asks, SKIP)
    own = found(g)
    assert own is not None
    assert look_at_all(g, own, gradient_paths(g), scope="") == {"v"}
