"""What goes away with the update of a weight, and what forbids that it goes."""

from __future__ import annotations

import re

import numpy as np
import pytest
from boost_compile.ir.analysis.training.anatomy import anatomy
from boost_compile.ir.analysis.training.network import network_parts
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
  UPDATES
  %r = Depend(RESULT, %end)
  return %r
  FUNCTIONS
}"""
PLAIN = """%a = ApplyMomentum(%v, %mv, %rate, TOV, %rate, %u) : float32[2]
  %t = UpdateState(%u, %a)
  %b = ApplyMomentum(%w, %mw, %rate, TOW, %rate, %t) : float32[2]
  %end = UpdateState(%t, %b)"""


def step(
    between: str = "",
    tov: str = "%gv",
    tow: str = "%gw",
    result: str = "%loss",
    updates: str = PLAIN,
    functions: str = "",
    states: str = "",
) -> Graph:
    text = STEP.replace("BETWEEN", between).replace("UPDATES", updates).replace("FUNCTIONS", functions)
    return graph(states + text.replace("TOV", tov).replace("TOW", tow).replace("RESULT", result))


def frozen(g: Graph) -> tuple[Removal, Plan]:
    """The plan that leaves out the update of %v, which itself stays."""
    removal = Removal(g, network_parts(g))
    return removal, removal.plan(["v", "mv"], [node(g, "gv")], [], kept=True)


def after(g: Graph) -> dict[str, np.ndarray]:
    verify(g)
    runs = [memory for _, memory in results(g, [X], STATE)]
    for other in runs[1:]:
        for name in STATE:
            np.testing.assert_array_equal(other[name], runs[0][name])
    return runs[0]


def check(between: str, tov: str, tow: str, w: np.ndarray, updates: str = PLAIN, functions: str = "") -> Graph:
    """Without its update %v and its slot stay, and %w becomes `w`."""
    g = step(between, tov, tow, updates=updates, functions=functions)
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


FUNCTIONS = """
  func @norms(%g: float32[2], %h: float32[2]) {
    %s1 = Square(%g)
    %n1 = ReduceSum(%s1, (), false)
    %s2 = Square(%h)
    %n2 = ReduceSum(%s2, (), false)
    %p = MakeTuple(%n1, %n2)
    return %p
  }
  func @norm(%g: float32[2]) {
    %s = Square(%g)
    %n = ReduceSum(%s, (), false)
    return %n
  }
"""
PAIR = "%p = MakeTuple(%n1, %n2)\n"
STACK = PAIR + "%st = Stack(%p) {axis = 0} : float32[2]\n"


@pytest.mark.parametrize(
    "total",
    [
        *("%total = Add(%n1, %n2)", "%total = Add(%n2, %n1)", "%total = Maximum(%n1, %n2)"),
        "%total = InplaceAddExt(%n2, %n1, 1, umonad) : float32[]",
        "%total = InplaceAddExt(%n1, %n2, 1, umonad) : float32[]",
        PAIR + "%total = AddN(%p)",
        "%p = MakeTuple(%n2, %n1)\n%total = AddN(%p)",
        "%three = Mul(%n2, float32[]<0.0>)\n%p = MakeTuple(%n1, %n2, %three)\n%total = AddN(%p)",
        "%more = Neg(%n1)\n%two = Add(%n1, %more)\n%total = Add(%two, %n2)",
        "%p = call(@norms, %gv, %gw) : (float32[], float32[])\n%total = AddN(%p)",
        "%p = call(@norms, %gw, %gv) : (float32[], float32[])\n%m1 = TupleGetItem(%p, 1)\n"
        "%m2 = TupleGetItem(%p, 0)\n%total = Add(%m1, %m2)",
        "%m1 = call(@norm, %gv) : float32[]\n%m2 = call(@norm, %gw) : float32[]\n%total = Add(%m1, %m2)",
        "%m1 = call(@norm, %gv) : float32[]\n%total = Add(%m1, %n2)",
        "%f = Partial(@norm, %gv)\n%m1 = call(%f) : float32[]\n%total = Add(%m1, %n2)",
        "%q = MakeTuple(%gv, %gw)\n%qq = MakeTuple(%q, %x)\n%i = TupleGetItem(%qq, 0)\n%j = TupleGetItem(%i, 1)\n"
        "%o = TupleGetItem(%i, 0)\n%s3 = Square(%j)\n%n3 = ReduceSum(%s3, (), false)\n%s4 = Square(%o)\n"
        "%n4 = ReduceSum(%s4, (), false)\n%total = Add(%n3, %n4)",
        STACK + "%total = ReduceSum(%st, (), false)",
        STACK + "%st1 = Abs(%st)\n%st2 = Square(%st1)\n%sum = ReduceSum(%st2, (), false)\n%total = Sqrt(%sum)",
        STACK + "%st1 = Pow(%st, float32[]<1.0>) : float32[2]\n%total = ReduceSum(%st1, (), false)",
    ],
)
def test_a_sum_over_all_gradients_loses_its_summand(total: str) -> None:
    g = check(NORM.replace("SUM", total), "%cv", "%cw", WITHOUT, functions=FUNCTIONS)
    taken = {v for n in g for v in n.operands}
    assert not {"gv", "cv", "n1", "s1", "m1"} & {n.name for n in g}
    assert taken >= set(g) - {g.result}


ONE_UPDATE = """
  func @step_of(%s: float32[2], %m: float32[2], %rate: float32[], %g: float32[2], %u: umonad) {
    %h = Neg(%g)
    %k = Neg(%h)
    %a = ApplyMomentum(%s, %m, %rate, %k, %rate, %u) : float32[2]
    %t = UpdateState(%u, %a)
    %r = Depend(true, %t)
    return %r
  }
"""
UPDATES = f"""{ONE_UPDATE}{ONE_UPDATE.replace("@step_of", "@step_too")}
  func @nothing() {{
    return true
  }}
  func @both(%v: float32[2], %mv: float32[2], %w: float32[2], %mw: float32[2], %rate: float32[],
             %g: float32[2], %h: float32[2], %u: umonad) {{
    %a = ApplyMomentum(%v, %mv, %rate, %g, %rate, %u) : float32[2]
    %t = UpdateState(%u, %a)
    %b = ApplyMomentum(%w, %mw, %rate, %h, %rate, %t) : float32[2]
    %end = UpdateState(%t, %b)
    %r = Depend(true, %end)
    return %r
  }}
"""
V = "%v, %mv, %rate, %gv"
W = "%w, %mw, %rate, %gw"


@pytest.mark.parametrize(
    "updates",
    [
        f"%c1 = call(@step_of, {V}, %u) : bool[]\n%t = UpdateState(%u, %c1)\n"
        f"%c2 = call(@step_of, {W}, %t) : bool[]\n%end = UpdateState(%t, %c2)",
        f"%f1 = Partial(@step_of, {V}, %u)\n%c1 = call(%f1) : bool[]\n%t = UpdateState(%u, %c1)\n"
        f"%f2 = Partial(@step_too, {W}, %t)\n%c2 = call(%f2) : bool[]\n%end = UpdateState(%t, %c2)",
        f"%c1 = call(@step_of, {V}, %u) : bool[]\n%t = UpdateState(%u, %c1)\n"
        "%c2 = ApplyMomentum(%w, %mw, %rate, %gw, %rate, %t) : float32[2]\n%end = UpdateState(%t, %c2)",
        f"%f1 = Partial(@step_of, {V}, %u)\n%no = Partial(@nothing)\n%yes = LessEqual(%rate0, %rate0)\n"
        f"%sw = Switch(%yes, %f1, %no)\n%c1 = call(%sw) : bool[]\n%t = UpdateState(%u, %c1)\n"
        f"%f2 = Partial(@step_too, {W}, %t)\n%sw2 = Switch(%yes, %f2, %no)\n%c2 = call(%sw2) : bool[]\n"
        "%end = UpdateState(%t, %c2)",
        "%c1 = call(@both, %v, %mv, %w, %mw, %rate, %gv, %gw, %u) : bool[]\n%end = UpdateState(%u, %c1)",
        "%f1 = Partial(@both, %v, %mv)\n%yes = LessEqual(%rate0, %rate0)\n%sw = Switch(%yes, %f1, %f1)\n"
        "%c1 = call(%sw, %w, %mw, %rate, %gv, %gw, %u) : bool[]\n%end = UpdateState(%u, %c1)",
    ],
    ids=["of each", "closures", "of one", "switched", "of all", "closure of all"],
)
def test_updates_in_functions(updates: str) -> None:
    between = "%rate0 = Load(%rate, umonad)"
    whole = after(step(between, updates=updates, functions=UPDATES))
    np.testing.assert_allclose(whole["v"], STATE["v"] - np.float32(0.5) * (np.float32(0.5) + GV))
    g = check(between, "", "", moved(GW), updates, UPDATES)
    assert "gv" not in {n.name for f in g.all_graphs() for n in f}
    assert "g" not in {v.name for f in g.functions.values() if f.name == "both" for v in f.inputs}


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
STACKED = NORM.replace("SUM", STACK + "ON\n%total = ReduceSum(%on, (), false)")
TOGETHER = r"%st \(Stack\) takes it together with other values"
OF_W = r"%b \(ApplyMomentum\) computes '(w|mw)' from it"
ODD = """
  func @note(%g: float32[2], %s: float32[], %u: umonad) {
    %w = AssignAdd(%s, float32[]<1.0>, %u)
    %t = UpdateState(%u, %w)
    %l = Load(%s, %t)
    %r = Depend(%l, %g)
    return %r
  }
  func @choose(%g: float32[2]) {
    %r = Choose(%g) : float32[?]
    return %r
  }
  func @same(%g: float32[2]) {
    return %g
  }
"""


@pytest.mark.parametrize(
    ("between", "tow", "result", "says"),
    [
        ("%pair = MakeTuple(%loss, %gv)", "%gw", "%pair", "it is a result of the graph"),
        ("%c = Mul(%gv, %gw)", "%c", "%loss", OF_W),
        ("%p = MakeTuple(%gv, %gw)\n%c = AddN(%p)", "%c", "%loss", OF_W),
        (PRINTED, "%gw", "%shown", "takes it out of the graph"),
        (MERGED, "%c", "%loss", r"%c \(Merge\) takes it together with other values"),
        ("%more = Mul(%gv, %gw) @b\n%c = Add(%more, %gw) @b", "%c", "%loss", "%more .* backward part takes it too"),
        ("%p = MakeTuple(%gv, %gw) @b\n%c = AddN(%p) @b", "%c", "%loss", "%c .* backward part takes it too"),
        (STACKED.replace("ON", "%on = Exp(%st)"), "%cw", "%loss", TOGETHER),
        (STACKED.replace("ON", "%on = Pow(%st, 0.0) : float32[2]"), "%cw", "%loss", TOGETHER),
        (STACKED.replace("ON", "%on = Pow(%x, %st) : float32[2]"), "%cw", "%loss", TOGETHER),
        (STACKED.replace("ON", "%on = Square(%st)"), "%st", "%loss", TOGETHER),
        (
            "%n = ReduceSum(%gv, (), false)\n%m = ReduceSum(%gw, (), false)\n%k = Neg(%m)\n"
            "%o = InplaceAddExt(%m, %k, %n, umonad) : float32[]\n%c = Mul(%gw, %o)",
            *("%c", "%loss", r"%o \(InplaceAddExt\) computes a value from it"),
        ),
        (
            "%n = ReduceSum(%gv, (), false)\n%yes = Less(%n, float32[]<1.0>)\n%f = Partial(@same, %gw)\n"
            "%s = Switch(%yes, %f, %f)\n%c = call(%s) : float32[2]",
            *("%c", "%loss", r"%s \(Switch\) decides by it"),
        ),
        (
            "%c1 = call(@note, %gv, %rate, umonad) : float32[]\n%u1 = UpdateState(umonad, %c1)\n"
            "%c = call(@note, %gw, %rate, %u1) : float32[]",
            *("%gw", "%loss", "function 'note', which takes it, serves other weights too"),
        ),
        (
            "%f = Make(%x) : fn<@same>\n%c = call(%f, %gv) : float32[2]",
            *("%c", "%loss", r"%c \(call\) passes it on to where it cannot be followed"),
        ),
        ("%c = call(@choose, %gv) : float32[?]", "%gw", "%loss", "function 'choose' returns it"),
    ],
)  # fmt: skip
def test_obstacles(between: str, tow: str, result: str, says: str) -> None:
    plan = frozen(step(between, "%gv", tow, result, functions=ODD))[1]
    assert re.search(says, plan.obstacle), plan.obstacle


def test_what_only_waits_goes_on_without() -> None:
    check("%late = Depend(%gw, %gv)", "%gv", "%late", moved(GW))


@pytest.mark.parametrize(
    "scaled",
    [
        "%l = Load(%own, umonad)\n%h = Mul(%gv, %l)",
        "%h = call(@scaled, %gv, %own, umonad) : float32[2]",
        "%f = Partial(@scaled, %gv)\n%h = call(%f, %own, umonad) : float32[2]",
    ],
)
def test_state_that_serves_nothing_else_goes_with_its_weight(scaled: str) -> None:
    """The slots, and what only the update reads."""
    function = """
  func @scaled(%g: float32[2], %o: float32[], %u: umonad) {
    %l = Load(%o, %u)
    %r = Mul(%g, %l)
    return %r
  }
"""
    g = step(scaled, "%h", states="state %own: float32[]\n", functions=function)
    found = anatomy(g)
    removal = Removal(g, found.parts, found.weights)
    plan = removal.plan_all(["v"], [node(g, "gv")], [node(g, "v0"), node(g, "y")])
    assert plan.obstacle == ""
    assert plan.states == {"v", "mv", "own"}
    removal.apply(plan, lambda: node(g, "y").replace_uses(g.inputs[0]) and None)
    verify(g)
    assert set(g.states) == {"w", "mw", "rate"}
