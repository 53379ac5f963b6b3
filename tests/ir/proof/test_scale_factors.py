"""Loss scales as factors of what they scale: the product is what numpy computes of the whole."""

from __future__ import annotations

import numpy as np
import pytest
from boost_compile.ir.proof.polynomial import ONE
from boost_compile.ir.proof.scale_factors import ScaleFactors
from boost_compile.ir.symbolic.execution import Execution
from boost_compile.ir.symbolic.terms import Terms

from tests.graphs import program

from .evaluation import value_of

SEED = "%one = OnesLike(%x) : float32[2,3]\n%g = Mul(%one, %s) : float32[2,3]\n"


def factored(body: str) -> tuple[Terms, int, int, tuple[tuple[int, int], ...], int]:
    """The terms, the scale and the result of a graph that computes ``body``, and the result as a product."""
    text = f"graph @step(%x: float32[2,3], %s: float32[]) {{\n{body}\nreturn %r\n}}"
    terms = Terms()
    inputs = [terms.make(("input", 0), (), (2, 3)), terms.make(("state", "scale"), (), ())]
    (found,) = Execution(terms).run(program(text).graphs["step"], {}, inputs).result
    return terms, inputs[1], found, *ScaleFactors(terms, [inputs[1]], {}).of(found)


@pytest.mark.parametrize(
    ("body", "power"),
    [
        ("%r = Mul(%x, %s) : float32[2,3]", 1),
        ("%a = Mul(%x, %x) : float32[2,3]\n%r = Neg(%a) : float32[2,3]", 0),
        (SEED + "%r = Mul(%g, %x) : float32[2,3]", 1),
        (SEED + "%a = Mul(%g, %x) : float32[2,3]\n%r = Mul(%a, %g) : float32[2,3]", 2),
        (SEED + "%a = Mul(%g, %x) : float32[2,3]\n%b = Neg(%g) : float32[2,3]\n%r = Add(%a, %b) : float32[2,3]", 1),
        (SEED + "%a = Mul(%g, %x) : float32[2,3]\n%r = Add(%a, %x) : float32[2,3]", None),
        (SEED + "%z = ZerosLike(%x) : float32[2,3]\n%r = Add(%g, %z) : float32[2,3]", 1),
        (SEED + "%a = Mul(%g, %x)\n%z = ZerosLike(%x)\n%y = Mul(%z, %x)\n%r = Add(%a, %y) : float32[2,3]", 1),
        (SEED + "%a = Mul(%g, %x)\n%z = ZerosLike(%x)\n%y = Exp(%z)\n%r = Add(%a, %y) : float32[2,3]", None),
        (SEED + "%r = Square(%g) : float32[2,3]", None),
    ],
)
def test_a_factor_comes_out_of_what_is_linear(body: str, power: int | None) -> None:
    """``power``: of the scale; None where it does not come out."""
    terms, scale, whole, factor, base = factored(body)
    if power is None:
        assert (factor, base) == (ONE, whole)
        return
    assert factor == (((scale, power),) if power else ONE)
    assert scale not in terms.below([base])
    x = np.random.default_rng(0).standard_normal((2, 3))
    given = {t: x for t, head in enumerate(terms.heads) if head == ("input", 0)} | {scale: np.float64(8)}
    given |= {t: np.float64(1) for t, head in enumerate(terms.heads) if head == ("one",)}
    expected = value_of(terms, whole, given)
    assert np.allclose(value_of(terms, base, given) * 8.0**power, expected)
