"""Which terms are zero everywhere: what numpy computes of them is 0, and what is not 0 is none of them."""

from __future__ import annotations

import numpy as np
import pytest
from boost_compile.ir.proof.prover import prove
from boost_compile.ir.proof.zeros import Zeros
from boost_compile.ir.symbolic.execution import Execution
from boost_compile.ir.symbolic.terms import Terms
from boost_compile.tools.proof.run import SEED
from boost_compile.tools.recheck.checker import check

import boost_compile as bc
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
        (NOTHING + "%r = Mul(%z, %x) : float32[2,3]", True),  # where x is finite
        (NOTHING + "%r = Mul(%x, %z) : float32[2,3]", True),
        (NOTHING + "%n = Neg(%x)\n%r = Mul(%n, %x) : float32[2,3]", False),
        (NOTHING + "%t = Transpose(%x, (1, 0)) : float32[3,2]\n"
         "%r = MatMul(%t, %z, false, false) : float32[3,3]", True),
        (NOTHING + "%n = Mul(%z, %x)\n%m = Exp(%n)\n%r = Mul(%m, %x) : float32[2,3]", False),
        (NOTHING + "%r = Exp(%z) : float32[2,3]", False),
        ("%r = FillV2((2, 3), 0.0) : float32[2,3]", True),
        ("%r = FillV2((2, 3), 0.5) : float32[2,3]", False),
        ("%r = Neg(%x) : float32[2,3]", False),
    ],
)  # fmt: skip
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


CHOSEN = """state %w: float32[2]<1.0, 2.0> role=weight
state %rate: float32[]<0.1>

graph @step(%x: float32[2]) -> (loss) {
  %l = Load(%w, umonad) : float32[2] @f1
  %p = Mul(%l, %x) : float32[2] @f2
  %loss = ReduceSum(%p, (), false, false) : float32[] @f3
  %one = OnesLike(%p) : float32[2] @b3
  %way = Mul(%one, %x) : float32[2] @b2
  %none = ZerosLike(%p) : float32[2] @b4
  %chosen = Mul(%none, %x) : float32[2] @b4
  %g = Add(%way, %chosen) : float32[2] @b1
  %t = UpdateState(umonad, %l)
  %new = ApplyGradientDescent(%w, %rate, %g, %t) : float32[2]@w
  %u = UpdateState(%t, %new)
  %out = Depend(%loss, %u) : float32[]
  return %out
}
"""


@pytest.mark.parametrize("pipeline", ["loss-scale", "overflow-check,gradient-accumulation{steps=2},loss-scale"])
def test_a_loss_scale_passes_what_no_derivative_reaches(pipeline: str) -> None:
    """As the way back through Argmin: its derivative is 0, and is multiplied by what the distances are made of."""
    original = program(CHOSEN)
    scaled = bc.compile(original, pipeline)
    found = bc.prove(original, scaled)
    assert found.proved, found
    for node in [n for g in scaled.graphs.values() for n in g.all_nodes() if n.name == "chosen"]:
        node.set_operand(0, node.operand(1))  # a summand that is not 0, and is not scaled
    assert not prove(original, scaled)[0].proved
    with pytest.raises(bc.Error, match="does not hold"):
        check(found.certificate, original, scaled, SEED)
