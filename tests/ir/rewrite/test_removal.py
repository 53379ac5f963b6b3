"""What goes away with the update of a weight, and what forbids that it goes."""

from __future__ import annotations

import re

import numpy as np
import pytest
from boost_compile.ir.analysis.training.anatomy import anatomy
from boost_compile.ir.core.graph import Graph
from boost_compile.ir.rewrite.removal import Plan, Removal
from boost_compile.ir.verify.verifier import verify

from tests.graphs import graph, node, results

X = np.float32([1, 2])
STATE = {
    "v": np.float32([3, 5]), "w": np.float32([7, 11]), "mv": np.float32([1, 1]), "mw": np.float32([2, 2]),
    "rate": np.float32(0.5),
}  # fmt: skip
STEP = """
state %v: float32[2]
state %w: float32[2]
state %mv: float32[2]
state %mw: float32[2]
state %rate: float32[]
graph @step(%x: float32[2]) {
  %v0 = Load(%v, umonad) @f
  %w0 = Load(%w, umonad) @f
  %y = Mul(%v0, %x) @f
  %z = Mul(%y, %w0) @f
  %loss = ReduceSum(%z, (), false) @f
  %gw = Mul(%y, %x) @b
  %gv = Mul(%w0, %x) @b
  BETWEEN
  %u = UpdateState(umonad, %y, %z, %gw, %gv)
  %a = ApplyMomentum(%v, %mv, %rate, TOV, %rate, %u) : float32[2]
  %t = UpdateState(%u, %a)
  %b = ApplyMomentum(%w, %mw, %rate, TOW, %rate, %t) : float32[2]
  %end = UpdateState(%t, %b)
  %r = Depend(RESULT, %end)
  return %r
}"""


def step(between: str = "", tov: str = "%gv", tow: str = "%gw", result: str = "%loss") -> Graph:
    return graph(STEP.replace("BETWEEN", between).replace("TOV", tov).replace("TOW", tow).replace("RESULT", result))


def frozen(g: Graph) -> tuple[Removal, Plan]:
    """The plan that leaves out the update of %v, which itself stays."""
    found = anatomy(g)
    removal = Removal(g, found.parts, found.weights)
    info = found.weight("v")
    return removal, removal.plan([info.name, *info.slots], info.gradient, [], kept=True)


def after(g: Graph) -> dict[str, np.ndarray]:
    verify(g)
    runs = [memory for _, memory in results(g, [X], STATE)]
    for other in runs[1:]:
        for name in STATE:
            np.testing.assert_array_equal(other[name], runs[0][name])
    return runs[0]


def check(between: str, tov: str, tow: str, w: np.ndarray) -> Graph:
    """Without its update %v and its slot stay, and %w becomes `w`."""
    g = step(between, tov, tow)
    removal, plan = frozen(g)
    assert plan.obstacle == ""
    removal.apply(plan, lambda: None)
    found = after(g)
    for name in ("v", "mv"):
        np.testing.assert_array_equal(found[name], STATE[name])
    np.testing.assert_allclose(found["w"], w, rtol=1e-6)
    return g


GV, GW = np.float32([7, 22]), np.float32([3, 20])
"""%gv = %w * %x, %gw = %v * %x * %x."""


def moved(gradient: np.ndarray) -> np.ndarray:
    """ApplyMomentum with rate and momentum one half: the slot is 2/2 plus the gradient."""
    return STATE["w"] - np.float32(0.5) * (1 + gradient)


def test_the_gradients_are_what_they_are_said_to_be() -> None:
    found = after(step())
    np.testing.assert_allclose(found["w"], moved(GW))
    np.testing.assert_allclose(found["v"], STATE["v"] - np.float32(0.5) * (np.float32(0.5) + GV))


def test_an_update_and_its_gradient() -> None:
    g = check("", "%gv", "%gw", moved(GW))
    assert not {"a", "gv"} & {n.name for n in g}


def test_what_is_made_of_the_gradient_goes_too() -> None:
    g = check("%h = Mul(%gv, %rate0)\n%k = Neg(%h)".replace("%rate0", "float32[]<0.5>"), "%k", "%gw", moved(GW))
    assert not {"h", "k"} & {n.name for n in g}


NORM = """%s1 = Square(%gv)
  %n1 = ReduceSum(%s1, (), false)
  %s2 = Square(%gw)
  %n2 = ReduceSum(%s2, (), false)
  SUM
  %cv = RealDiv(%gv, %total)
  %cw = RealDiv(%gw, %total)"""
WITHOUT = moved(GW / np.float32(409))
"""The sum of squares of %gw alone is 9 + 400."""


@pytest.mark.parametrize(
    "total",
    [
        "%total = Add(%n1, %n2)",
        "%total = Add(%n2, %n1)",
        "%p = MakeTuple(%n1, %n2)\n%total = AddN(%p)",
        "%p = MakeTuple(%n2, %n1)\n%total = AddN(%p)",
        "%three = Mul(%n2, float32[]<0.0>)\n%p = MakeTuple(%n1, %n2, %three)\n%total = AddN(%p)",
    ],
)
def test_a_sum_over_all_gradients_loses_its_summand(total: str) -> None:
    check(NORM.replace("SUM", total), "%cv", "%cw", WITHOUT)


def test_a_verdict_over_all_gradients_forgets_it() -> None:
    """Where the gradient of %v is not finite, %w is updated all the same."""
    text = """%f1 = IsFinite(%gv)
  %a1 = ReduceAll(%f1, (), false)
  %f2 = IsFinite(%gw)
  %a2 = ReduceAll(%f2, (), false)
  %fine = LogicalAnd(%a1, %a2)
  %zw = ZerosLike(%gw)
  %cw = Select(%fine, %gw, %zw)"""
    check(text, "%gv", "%cw", moved(GW))


PRINTED = "%print = Print(%gv, iomonad) : bool[]\n%io = UpdateState(iomonad, %print)\n%shown = Depend(%loss, %io)"
MERGED = "%p = MakeTuple(%gv, %gw)\n%c = Merge(%p) : float32[2]"


@pytest.mark.parametrize(
    ("between", "tow", "result", "says"),
    [
        ("%pair = MakeTuple(%loss, %gv)", "%gw", "%pair", "it is a result of the graph"),
        ("%c = Mul(%gv, %gw)", "%c", "%loss", r"%b \(ApplyMomentum\) computes '(w|mw)' from it"),
        (PRINTED, "%gw", "%shown", "takes it out of the graph"),
        (MERGED, "%c", "%loss", r"%c \(Merge\) takes it together with other values"),
        ("%more = Mul(%gv, %gw) @b\n%c = Add(%more, %gw) @b", "%c", "%loss", "of the backward part takes it too"),
    ],
    ids=["result", "other weight", "output", "together", "network"],
)  # fmt: skip
def test_obstacles(between: str, tow: str, result: str, says: str) -> None:
    g = step(between, "%gv", tow, result)
    found = anatomy(g)
    plan = Removal(g, found.parts, found.weights).plan(["v", "mv"], [node(g, "gv")], [], kept=True)
    assert re.search(says, plan.obstacle), plan.obstacle


def test_what_only_waits_goes_on_without() -> None:
    check("%late = Depend(%gw, %gv)", "%gv", "%late", moved(GW))


def test_state_that_serves_nothing_else_goes_with_its_weight() -> None:
    """The slots, and what only the update reads."""
    own = STEP.replace("BETWEEN", "%l = Load(%own, umonad)\n%h = Mul(%gv, %l)").replace("TOV", "%h")
    g = graph("state %own: float32[]\n" + own.replace("TOW", "%gw").replace("RESULT", "%loss"))
    found = anatomy(g)
    removal = Removal(g, found.parts, found.weights)
    plan = removal.plan_all(["v"], [node(g, "gv")], [node(g, "v0"), node(g, "y")])
    assert plan.obstacle == ""
    assert plan.states == {"v", "mv", "own"}
    removal.apply(plan, lambda: node(g, "y").replace_uses(g.inputs[0]) and None)
    verify(g)
    assert set(g.states) == {"w", "mw", "rate"}
