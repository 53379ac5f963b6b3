"""Half precision computed in float32: what it gives, and where it is left alone."""

from __future__ import annotations

import numpy as np
import pytest
from boost_compile.ir.text import parse_program
from boost_compile.ir.verify.verifier import verify
from boost_compile.passes import compile_program
from boost_compile.passes.legalize.half import widen, widenable

from tests.execution import run_graph
from tests.graphs import graph, node
from tests.passes.graphs import HALF_LOSS


def test_results_are_rounded_once() -> None:
    """A GPU has these kernels for float32 alone."""
    found = compile_program(parse_program(HALF_LOSS), "legalize{target=gpu}", reproducer_directory=None)
    assert found.reports[0].summary == "2 nodes of float16 computed in float32 for gpu"
    assert (found.reports[0].matched, found.reports[0].changed) == (2, 2)
    x, labels = np.random.default_rng(0).normal(size=(4, 3)).astype(np.float16), np.array([0, 2, 1, 1], np.int32)
    twice, dx = run_graph(found.graphs["net"], [x, labels], {})
    wide = parse_program(HALF_LOSS.replace("float16", "float32")).graphs["net"]
    exact_twice, exact_dx = run_graph(wide, [x.astype(np.float32), labels], {})
    assert twice == 2 * np.float16(exact_twice / 2)
    np.testing.assert_array_equal(dx, exact_dx.astype(np.float16))
    casts = [n for n in found.graphs["net"] if n.op.name == "Cast"]
    assert {n.scope for n in casts} == {"Default/loss", "legalize"}
    assert {n.primal.get("unique_id") for n in casts} == {"1", None}


def test_each_element_of_a_tuple_is_narrowed() -> None:
    here = graph("""
graph @g(%x: float16[2], %n: int32[2]) {
  %t = Show(%x, %n) : (float16[2], int32[2], float16[2])
  %a = TupleGetItem(%t, 0)
  %b = TupleGetItem(%t, 1)
  %c = TupleGetItem(%t, 2)
  %all = MakeTuple(%a, %b, %c, %a)
  return %all
}""")
    widen(node(here, "t"))
    verify(here)
    assert str(node(here, "t").type) == "(float32[2], int32[2], float32[2])"
    assert [v.type.dtype.value for v in node(here, "t").operands] == ["float32", "int32"]  # type: ignore[attr-defined]
    taken = node(here, "all").operands
    assert [v.type.dtype.value for v in taken] == ["float16", "int32", "float16", "float16"]  # type: ignore[attr-defined]
    assert [v.operand(0).name for v in (taken[0], taken[2], taken[3])] == ["a", "c", "a"]  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("line", "able"),
    [
        ("%t = Exp(%x) : float16[2]", True),
        ("%t = Exp(%n) : int32[2]", False),
        ("%t = Exp(%x, umonad) : float16[2]", False),
        ("%t = AssignAdd(%w, %x) : float16[2]", False),
        ("%t = Show(%p) : float16[2]", False),
    ],
)
def test_what_may_be_widened(line: str, able: bool) -> None:
    text = "state %w: float16[2]\ngraph @g(%x: float16[2], %n: int32[2], %p: (float16[2], float16[2])) {"
    here = graph(f"{text}\n  {line}\n  return %x\n}}")
    assert widenable(node(here, "t"), "cpu") == able


def test_a_tuple_that_is_used_as_a_whole_is_not_widened() -> None:
    text = "%t = Dropout(%x, 0.5, 0, 0) : (float16[2], float16[2])\n%a = TupleGetItem(%t, 0)"
    head = "graph @g(%x: float16[2]) {\n"
    alone = graph(f"{head}{text}\nreturn %a\n}}")
    whole = graph(f"{head}{text}\n%s = Show(%t) : float16[2]\n%r = Add(%a, %s)\nreturn %r\n}}")
    assert [widenable(node(g, "t"), "cpu") for g in (alone, whole)] == [True, False]
