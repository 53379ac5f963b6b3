"""Which terms are zero everywhere: what numpy computes of them is 0, and what is not 0 is none of them."""

from __future__ import annotations

import numpy as np
import pytest
from boost_compile.ir.proof.zeros import Zeros
from boost_compile.ir.symbolic.execution import Execution
from boost_compile.ir.symbolic.terms import Terms

from tests.execution import run_graph
from tests.graphs import program

NOTHING = "%z = ZerosLike(%x) : float32[2,3]\n"


@pytest.mark.parametrize(
    ("body", "zero"),
    [
        (NOTHING + "%r = Transpose(%z, (1, 0)) : float32[3,2]", True),
        (NOTHING + "%r = ReduceSum(%z, (), false, false) : float32[]", True),
        (NOTHING + "%r = Add(%z, %z) : float32[2,3]", True),
        (NOTHING + "%r = Add(%z, %x) : float32[2,3]", False),
        (NOTHING + "%r = Mul(%z, %x) : float32[2,3]", False),  # 0 only where x is finite
        (NOTHING + "%r = Exp(%z) : float32[2,3]", False),
        ("%r = FillV2((2, 3), 0.0) : float32[2,3]", True),
        ("%r = FillV2((2, 3), 0.5) : float32[2,3]", False),
        ("%r = Neg(%x) : float32[2,3]", False),
    ],
)
def test_what_is_zero(body: str, zero: bool) -> None:
    graph = program(f"graph @step(%x: float32[2,3]) {{\n{body}\nreturn %r\n}}").graphs["step"]
    terms = Terms()
    (found,) = Execution(terms).run(graph, {}, [terms.make(("input", 0), (), (2, 3))]).result
    assert (found in Zeros(terms)) is zero
    if zero:
        assert not np.any(run_graph(graph, [np.ones((2, 3), np.float32)], {}))


def test_zeros_that_move_far_are_followed_without_recursion() -> None:
    """A zero is looked for through so many nodes, and no more; what is known of it stays known."""
    lines = [f"%n{i} = Neg(%n{i - 1}) : float32[2]" for i in range(1, 2000)]
    text = "graph @step(%x: float32[2]) {\n%n0 = ZerosLike(%x) : float32[2]\n" + "\n".join(lines) + "\nreturn %n1999\n}"
    terms = Terms()
    (found,) = Execution(terms).run(program(text).graphs["step"], {}, [terms.make(("input", 0), (), (2,))]).result
    zeros = Zeros(terms)
    near = found - 1970
    assert near in zeros
    assert found not in zeros
    assert near in zeros
