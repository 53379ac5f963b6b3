"""Graphs as pure functions of their memory: what stands for a state at each place, and what is refused."""

from __future__ import annotations

import pytest
from boost_compile.ir.core.graph import Node
from boost_compile.ir.core.predicates import is_effect
from boost_compile.ir.memory.discharge import Functional, Undischarged, discharge
from boost_compile.ir.symbolic.execution import Execution
from boost_compile.ir.symbolic.terms import Terms

from tests.graphs import graph

HEAD = "state %a: float32[2]\nstate %b: float32[2]\n"
BRANCH = """
graph @step(%x: float32[2], %c: bool[]) {
  %y = Partial(@add, %a, %x, umonad)
  %n = Partial(@leave)
  %s = Switch(%c, %y, %n)
  %k = call(%s) : float32[2]
  %u = UpdateState(umonad, %k)
  %l = Load(%a, %u)
  %r = Mul(%l, %k)
  return %r
  func @add(%s: float32[2]@a, %v: float32[2], %t: umonad) {
    %w = AssignAdd(%s, %v, %t) : float32[2]@a
    %z = UpdateState(%t, %w)
    %d = Depend(%v, %z)
    return %d
  }
  func @leave() {
    const %zero = float32[2]<0.0, 0.0>
    %o = Neg(%zero)
    return %o
  }
}"""


def pure(text: str) -> Functional:
    """Nothing in it is memory any more, and only what computes stands in it."""
    found = discharge(graph(HEAD + text))
    for body in found.graph.all_graphs():
        known = {*body.inputs, *body.states.values()}
        for node in body:
            assert node.op.name not in ("Load", "UpdateState")
            assert not getattr(node.type, "ref", "")
            assert all(not isinstance(v, Node) or v in known for v in node.operands)
            known.add(node)
    return found


def lines(found: Functional) -> list[str]:
    names = {v: v.name for v in found.graph.inputs}
    told = []
    for k, node in enumerate(found.graph):
        names[node] = f"%{k}"
        operands = [names.get(v, str(v.literal) if v.literal is not None else v.name) for v in node.operands]
        told.append(f"{node.op.name}({', '.join(operands)})")
    return told


def test_versions_stand_for_what_a_state_holds() -> None:
    found = pure("""
  %old = Load(%a, umonad)
  %n = Neg(%old)
  %u = UpdateState(umonad, %n)
  %new = AssignAdd(%a, %x, %u) : float32[2]@a
  %t = UpdateState(%u, %new)
  %now = Load(%a, %t)
  %sum = Add(%n, %now)
  %r = Depend(%sum, %t)
  return %r""")
    unit = "MonadValue(kind='umonad')"
    assert lines(found) == [
        "Neg(a)", f"AssignAdd(a, x, {unit})", "TupleGetItem(%1, 1)", "Add(%0, %2)", "MakeTuple(%3, %2)",
    ]  # fmt: skip
    assert {node.name for node in found.source.values()} >= {"new", "sum"}


def test_who_takes_a_view_of_a_load_behind_a_write_reads_what_is_there_then() -> None:
    found = pure("""
  %old = Load(%a, umonad)
  %wide = Reshape(%old, (1, 2)) : float32[1,2]
  %early = Neg(%wide) : float32[1,2]
  %u = UpdateState(umonad, %early)
  %new = Assign(%a, %x, %u) : float32[2]@a
  %late = Exp(%wide) : float32[1,2]
  %t = UpdateState(%u, %new)
  %both = MakeTuple(%early, %late)
  %r = Depend(%both, %t)
  return %r""")
    reads = [line for line in lines(found) if line.startswith(("Reshape", "Neg", "Exp"))]
    assert reads == ["Reshape(a, (1, 2))", "Neg(%0)", "Reshape(%3, (1, 2))", "Exp(%4)"]


def test_a_branch_hands_on_what_the_other_one_writes() -> None:
    found = pure(BRANCH)
    (call,) = (node for node in found.graph if node.op.name == "call")
    write = found.bodies[found.graph].writes[call]
    assert [call.operand(i).name for i in write.taken] == ["a"]
    assert write.formals == {"add": (0,), "leave": (None,)}
    terms = Terms()
    w, x, c = (terms.make((name,), (), (2,)) for name in "wxc")
    out = Execution(terms).run(graph(HEAD + BRANCH), {"a": w}, [x, c])
    head, (condition, yes, no) = terms.heads[out.states["a"]], terms.arguments[out.states["a"]]
    assert (head, condition, no) == (("ite",), c, w)
    assert (terms.name(yes), terms.arguments[yes]) == ("Add", (w, x))


def test_a_function_writes_a_tensor_of_its_caller() -> None:
    text = """
  %g = Neg(%x)
  %k = call(@half, %g, umonad) : float32[2]
  %u = UpdateState(umonad, %k)
  %l = Load(%g, %u)
  %r = Mul(%l, %x)
  return %r
  func @half(%s: float32[2], %t: umonad) {
    %w = InplaceMuls(%s, 0.5, %t) : float32[2]
    %z = UpdateState(%t, %w)
    %d = Depend(%s, %z)
    return %d
  }"""
    terms = Terms()
    x = terms.make(("x",), (), (2,))
    (found,) = Execution(terms).run(graph(HEAD + text), {}, [x]).result
    product = terms.arguments[found]
    assert terms.name(product[0]) == "Muls"
    assert product[1] == x


def test_what_prints_stays_in_order() -> None:
    found = pure("""
  %p = Print(%x, iomonad) : bool
  %u = UpdateState(iomonad, %p)
  %n = Neg(%x)
  %q = Print(%n, %u) : bool
  %v = UpdateState(%u, %q)
  %r = Depend(%x, %v)
  return %r""")
    assert [v.name for v in found.graph.result.operands] == ["x", "p", "q"]  # type: ignore[attr-defined]
    assert [node.name for node in found.graph if is_effect(node)] == ["p", "q"]


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("const %k = float32[2]<1.0, 2.0>\n%w = InplaceMuls(%k, 0.5, umonad) : float32[2]\n"
         "%u = UpdateState(umonad, %w)\n%r = Depend(%x, %u)\nreturn %r", "writes what is not a state"),
        ("%f = Neg(%x) @f1\n%g = Mul(%f, %x) @b1\n%w = InplaceMuls(%g, 0.5, umonad) : float32[2]\n"
         "%u = UpdateState(umonad, %w)\n%n = Exp(%g)\n%r = Depend(%n, %u)\nreturn %r", "nothing in the graph says"),
        ("%g = Neg(%x)\n%v = ExpandDimsView(%g, 0, umonad) : float32[1,2]\n%w = InplaceMuls(%v, 0.5, umonad) : "
         "float32[1,2]\n%u = UpdateState(umonad, %w)\n%r = Depend(%g, %u)\nreturn %r", "is a view that is written"),
        ("%k = call(@two, %a, %a, umonad) : float32[2]\n%u = UpdateState(umonad, %k)\n%r = Depend(%k, %u)\nreturn %r\n"
         "func @two(%s: float32[2]@a, %o: float32[2]@a, %t: umonad) {\n%w = AssignAdd(%s, %s, %t) : float32[2]@a\n"
         "%z = UpdateState(%t, %w)\n%l = Load(%o, %z)\nreturn %l\n}", "twice"),
    ],
)  # fmt: skip
def test_memory_that_cannot_be_told_is_refused(text: str, why: str) -> None:
    with pytest.raises(Undischarged, match=why):
        discharge(graph(HEAD + text))
