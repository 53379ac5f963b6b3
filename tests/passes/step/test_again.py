"""What computes a forward value again has the form of Cell.recompute."""

from __future__ import annotations

from boost_compile.ir.core.names import DUPLICATED
from boost_compile.passes.step.again import mark_again, waiting

from tests.graphs import graph, node


def test_a_value_waits_for_a_gradient_and_a_copy_keeps_the_marks_of_its_original() -> None:
    made = graph("  %a = Exp(%x) @f\n  %g = Neg(%x) @b\n  %r = Mul(%g, %a) @b\n  return %r")
    a, g, r = (node(made, name) for name in "agr")
    a.marks = {"fusion": 1}
    with made.inserting_before(r):
        found = waiting(made, a, g)
        again = made.create(a.op, [made.inputs[0]], a.type)
    assert (found.op.name, found.type, found.marks) == ("Depend", a.type, {"recompute_depend": True})
    assert (found.operand(0), found.operand(1).operands) == (a, (g,))  # type: ignore[attr-defined]
    mark_again(again, a)
    assert again.marks == {"fusion": 1, DUPLICATED: True, "need_cse_after_recompute": True}
    mark_again(again, None)
    assert DUPLICATED in again.marks
