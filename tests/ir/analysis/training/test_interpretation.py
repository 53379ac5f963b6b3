"""The update side as terms: memory, functions and branches are gone."""

from __future__ import annotations

import pytest
from boost_compile.ir.analysis.training.interpretation import CHOICE, LEAF, READ, Interpretation, Term, interpret
from boost_compile.ir.analysis.training.network import network_parts
from boost_compile.ir.core.graph import Node, State
from boost_compile.ir.core.walk import walk

from tests.graphs import graph, node


def interpreted(text: str) -> Interpretation:
    found = graph(text)
    return interpret(found, network_parts(found))


def said(term: Term) -> str:
    """A term as a formula; a version of a state by its name and what leaves it."""
    while term.kind == READ:
        term = term.operands[0]
    if term.kind == LEAF:
        return term.value.name if term.value.literal is None else "c"
    if term.kind == CHOICE:
        return f"if({', '.join(map(said, term.operands))})"
    return f"{term.name}({', '.join(map(said, term.operands))})"


def left(found: Interpretation, state: str) -> list[str]:
    return [said(version) for version in found.versions()[state]]


NET = """state %w: float32[2]
state %m: float32[2]
graph @step(%x: float32[2]) {
  FUNCTIONS
  %w0 = Load(%w, umonad) @f
  %y = Mul(%w0, %x) @f
  %g = Mul(%x, %x) @b
  BODY
  %r = Depend(%y, %t)
  return %r
}"""


def net(body: str, functions: str = "") -> str:
    return NET.replace("BODY", body).replace("FUNCTIONS", functions)


def test_a_read_is_of_the_version_that_stands_there() -> None:
    found = interpreted(
        net(
            "%m0 = Load(%m, umonad)\n%kept = AssignAdd(%m, %g, umonad)\n%t0 = UpdateState(umonad, %m0, %kept)\n"
            "%m1 = Load(%m, %t0)\n%d = Sub(%m1, %m0)\n%new = AssignSub(%w, %d, %t0)\n%t = UpdateState(%t0, %new)"
        )
    )
    assert left(found, "m") == ["AssignAdd(m, g, )"]
    assert left(found, "w") == ["AssignSub(w, Sub(AssignAdd(m, g, ), m), )"]


def test_a_tensor_that_is_written_in_place_has_versions_too() -> None:
    found = interpreted(
        net(
            "%half = Mul(%g, 0.5)\n%added = AssignAdd(%half, %x, umonad) : float32[2]@half\n"
            "%t0 = UpdateState(umonad, %added)\n%new = AssignSub(%w, %half, %t0)\n%t = UpdateState(%t0, %new)"
        )
    )
    assert left(found, "w") == ["AssignSub(w, AssignAdd(Mul(g, c), x, ), )"]


def test_a_function_runs_once_for_each_call() -> None:
    found = interpreted(
        net(
            "%a = call(@twice, %g) : float32[2]\n%b = call(@twice, %x) : float32[2]\n"
            "%kept = Assign(%m, %b, umonad)\n%new = AssignSub(%w, %a, umonad)\n%t = UpdateState(umonad, %kept, %new)",
            "func @twice(%v: float32[2]) {\n  %s = Add(%v, %v)\n  return %s\n}",
        )
    )
    assert (left(found, "w"), left(found, "m")) == (["AssignSub(w, Add(g, g), )"], ["Assign(m, Add(x, x), )"])


BRANCHES = """func @yes(%p: float32[2], %v: float32[2]) {
    %up = AssignSub(%p, %v, umonad) : float32[2]
    %u = UpdateState(umonad, %up)
    %n = Neg(%v)
    %o = Depend(%n, %u)
    return %o
  }
  func @no(%q: float32[2], %d: float32[2]) {
    return %d
  }"""


def test_a_branch_leaves_and_gives_one_of_two() -> None:
    found = interpreted(
        net(
            "%size = ReduceMax(%g, (0,), false) : float32[]\n%small = Less(%size, float32[]<1.0>) : bool[]\n"
            "%a = Partial(@yes, %w, %g)\n%b = Partial(@no, %w, %g)\n%s = Switch(%small, %a, %b) : union<@yes, @no>\n"
            "%c = call(%s) : float32[2]\n%kept = Assign(%m, %c, umonad)\n%w1 = Load(%w, umonad)\n"
            "%t = UpdateState(umonad, %kept, %w1)",
            BRANCHES,
        )
    )
    condition = "Less(ReduceMax(g, c, c), c)"
    assert left(found, "m") == [f"Assign(m, if({condition}, Neg(g), g), )"]
    assert [[said(guard) for guard in write.guards] for write in found.writes] == [[], [condition]]
    now = next(term for value, term in found.terms.items() if value.name == "w1")
    assert isinstance(now, Term)
    assert said(now) == f"if({condition}, AssignSub(w, g, ), w)"


def test_what_a_pass_has_put_behind_who_takes_it() -> None:
    """The list is not sorted yet: no matter how much stands there."""
    g = graph(net("%a = Neg(%g)\n%new = AssignSub(%w, %a, umonad)\n%t = UpdateState(umonad, %new)"))
    last = node(g, "a")
    for _ in range(3000):
        last = g.create("Neg", [last])
    node(g, "new").set_operand(1, last)
    (version,) = interpret(g, network_parts(g)).versions()["w"]
    assert version.operands[1].value is last


def test_a_function_in_a_tuple_is_called() -> None:
    found = interpreted(
        net(
            "%f = Partial(@yes, %w)\n%both = MakeTuple(%x, %f)\n%taken = TupleGetItem(%both, 1) : fn<@yes>\n"
            "%c = call(%taken, %g) : float32[2]\n%kept = Assign(%m, %c, umonad)\n%t = UpdateState(umonad, %kept)",
            BRANCHES,
        )
    )
    assert (left(found, "w"), left(found, "m")) == (["AssignSub(w, g, )"], ["Assign(m, Neg(g), )"])


def test_a_function_that_calls_itself_is_followed_once() -> None:
    found = interpreted(
        net(
            "%a = call(@loop, %g) : float32[2]\n%new = AssignSub(%w, %a, umonad)\n%t = UpdateState(umonad, %new)",
            """func @loop(%v: float32[2]) {
    %size = ReduceMax(%v, (0,), false) : float32[]
    %go = Less(%size, float32[]<1.0>) : bool[]
    %i = Partial(@again, %v)
    %o = Partial(@done, %v)
    %s = Switch(%go, %i, %o) : union<@again, @done>
    %e = call(%s) : float32[2]
    return %e
  }
  func @again(%k: float32[2]) {
    %n = Add(%k, %k)
    %e2 = call(@loop, %n) : float32[2]
    return %e2
  }
  func @done(%f: float32[2]) {
    return %f
  }""",
        )
    )
    assert left(found, "w") == ["AssignSub(w, if(Less(ReduceMax(g, c, c), c), call(, Add(g, g)), g), )"]


def sequence(n: int) -> str:
    """n branches, each of which ends with a call of what follows."""
    functions = [
        f"func @y{i}(%p{i}: float32[2]) {{\n  %a{i} = Neg(%p{i})\n  %b{i} = call(@f{i - 1}, %a{i}) : float32[2]\n"
        f"  return %b{i}\n}}\n"
        f"func @n{i}(%q{i}: float32[2]) {{\n  %c{i} = call(@f{i - 1}, %q{i}) : float32[2]\n  return %c{i}\n}}\n"
        f"func @f{i}(%v{i}: float32[2]) {{\n  %m{i} = ReduceMax(%v{i}, (0,), false) : float32[]\n"
        f"  %l{i} = Less(%m{i}, float32[]<1.0>) : bool[]\n  %d{i} = Partial(@y{i}, %v{i})\n"
        f"  %e{i} = Partial(@n{i}, %v{i})\n  %s{i} = Switch(%l{i}, %d{i}, %e{i}) : union<@y{i}, @n{i}>\n"
        f"  %r{i} = call(%s{i}) : float32[2]\n  return %r{i}\n}}"
        for i in range(1, n + 1)
    ]
    functions.append("func @f0(%v0: float32[2]) {\n  return %v0\n}")
    return net(
        f"%a = call(@f{n}, %g) : float32[2]\n%new = AssignSub(%w, %a, umonad)\n%t = UpdateState(umonad, %new)",
        "\n  ".join(functions),
    )


def test_branches_in_a_row_do_not_double() -> None:
    found = interpreted(sequence(40))
    assert len(found.decisions) == 40
    assert len(found.writes) == 1


@pytest.mark.parametrize("writes", [False, True])
def test_functions_that_call_too_often(writes: bool) -> None:
    """Each runs at least once. What may be written besides is not known then."""
    functions = [
        f"func @f{i}(%v{i}: float32[2]) {{\n  %a{i} = call(@f{i - 1}, %v{i}) : float32[2]\n"
        f"  %b{i} = call(@f{i - 1}, %a{i}) : float32[2]\n  %c{i} = Neg(%b{i})\n  return %c{i}\n}}"
        for i in range(1, 30)
    ]
    last = "AssignAdd(%v0, %v0, umonad) : float32[2]" if writes else "Neg(%v0)"
    functions.append(f"func @f0(%v0: float32[2]) {{\n  %o = {last}\n  return %o\n}}")
    found = interpreted(
        net(
            "%a = call(@f29, %g) : float32[2]\n%new = AssignSub(%w, %a, umonad)\n%t = UpdateState(umonad, %new)",
            "\n  ".join(functions),
        )
    )
    assert (found.closed is not None) == writes
    (version,) = found.versions()["w"]
    assert any(term.value.name == "g" for term in walk([version], lambda term: term.operands))


def followed(found: Interpretation, *weights: str) -> set[str]:
    return {value.name for value in found.followed(weights) if isinstance(value, (Node, State))}


def test_what_updates_of_weights_follow_from() -> None:
    found = interpreted(
        net(
            "%norm = L2Loss(%g) : float32[]\n%m0 = Load(%m, umonad)\n%sum = Add(%m0, %g)\n"
            "%kept = Assign(%m, %sum, umonad)\n"
            "%t0 = UpdateState(umonad, %kept)\n%m1 = Load(%m, %t0)\n%new = AssignSub(%w, %m1, %t0)\n"
            "%t = UpdateState(%t0, %new, %norm)"
        )
    )
    assert {"new", "m1", "kept", "sum", "m0", "m", "g"} <= followed(found, "w")
    assert followed(found, "w").isdisjoint({"norm", "r", "t", "y"})
    assert {"kept", "sum"} <= followed(found, "m")
    assert "new" not in followed(found, "m")


CALLED = """
state %w: float32[2]
graph @step(%x: float32[2]) {
  func @update(%v: float32[2], %d: float32[2]) {
    %up = AssignSub(%v, %d, umonad) : float32[2]
    %z = ReduceSum(%up, (), false, false) : float32[]
    return %z
  }
  func @leave(%v2: float32[2], %d2: float32[2]) {
    return float32[]<0.0>
  }
  %w0 = Load(%w, umonad) @f
  %y = Mul(%w0, %x) @f
  %g = Mul(%x, %x) @b
  %half = Mul(%g, float32[]<0.5>)
  %other = Mul(%g, float32[]<0.25>)
  %size = ReduceMax(%g, (0,), false) : float32[]
  %small = Less(%size, float32[]<1.0>) : bool[]
  %a = Partial(@update, %w, %half)
  %b = Partial(@leave, %w, %half)
  %s = Switch(%small, %a, %b) : union<@update, @leave>
  %c = call(%s) : float32[]
  %r = Depend(%c, %y)
  return %r
}"""


def test_arguments_of_functions_and_what_a_switch_decides_by_count() -> None:
    found = followed(interpreted(CALLED), "w")
    assert {"up", "half", "size", "small"} <= found
    assert "other" not in found
