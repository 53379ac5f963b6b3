"""Products of matrices as terms: which are one, and which are not."""

from __future__ import annotations

import pytest
from boost_compile.ir.symbolic.execution import Execution
from boost_compile.ir.symbolic.terms import Terms

from tests.graphs import graph

X, Y = (2, 3, 4), (2, 5, 4)
NATIVE = "  %t = Transpose(%y, (0, 2, 1)) : float32[2,4,5]\n  %g = MatMulExt(%x, %t) : float32[2,3,5]\n"
TURNED = "  %g = BatchMatMul(%x, %y, false, true) : float32[2,3,5]\n"
BACK = "  %r = Transpose(%g, (0, 2, 1)) : float32[2,5,3]\n  return %r\n"


def result(body: str, terms: Terms) -> int:
    made = graph(f"graph @step(%x: float32[2,3,4], %y: float32[2,5,4]) {{\n{body}}}")
    inputs = [terms.make(("input", i), (), shape) for i, shape in enumerate((X, Y))]
    (found,) = Execution(terms).run(made, {}, inputs).result
    return found


@pytest.mark.parametrize(
    ("body", "same"),
    [
        (NATIVE + "  return %g\n", True),
        (TURNED + "  return %g\n", True),
        ("  %g = BatchMatMul(%y, %x, false, true) : float32[2,5,3]\n" + BACK.replace("[2,5,3]", "[2,3,5]"), True),
        ("  %g = BatchMatMul(%y, %x, false, true) : float32[2,5,3]\n  return %g\n", False),
        (NATIVE + BACK, False),
        (NATIVE + BACK.replace("return %r", "%s = Transpose(%r, (0, -1, 1)) : float32[2,3,5]\n  return %s"), True),
    ],
)
def test_a_product_is_told_by_its_operands_as_they_lie(body: str, same: bool) -> None:
    terms = Terms(rounds=False)
    assert (result(body, terms) == result(TURNED + "  return %g\n", terms)) == same


def test_where_types_round_a_transposition_is_one() -> None:
    """A product that reads an operand transposed may add in another order."""
    terms = Terms()
    assert result(NATIVE + "  return %g\n", terms) != result(TURNED + "  return %g\n", terms)


def test_what_is_read_otherwise_is_another_product() -> None:
    head = "graph @step(%x: float32[2,3,3], %y: float32[2,3,3]) {{\n"
    square = head + "  %g = BatchMatMul({}) : float32[2,3,3]\n  return %g\n}}"
    terms = Terms(rounds=False)
    inputs = [terms.make(("input", i), (), (2, 3, 3)) for i in range(2)]
    forms = [f"{pair}, {a}, {b}" for pair in ("%x, %y", "%y, %x") for a in ("false", "true") for b in ("false", "true")]
    found = {Execution(terms).run(graph(square.format(form)), {}, inputs).result[0] for form in forms}
    assert len(found) == len(forms)
