"""What an update is handed is its gradient, whoever made it: a node of the backward part."""

from __future__ import annotations

import pytest
from boost_compile.ir.analysis.training.anatomy import anatomy
from boost_compile.ir.core.errors import AnatomyError
from boost_compile.ir.core.program import Program
from boost_compile.ir.rewrite.settle_gradients import settle_gradients
from boost_compile.ir.text import parse_program
from boost_compile.ir.verify.verifier import verify
from boost_compile.passes.step.crossings import takes_value

STEP = """
state %w: float32[2]
state %v: float32[2]
graph @step(%x: float32[2]) -> (loss) {
  %w0 = Load(%w, umonad) : float32[2] primal {unique_id = "1"}
  %v0 = Load(%v, umonad) : float32[2] primal {unique_id = "1"}
  %h = Exp(%x) primal {unique_id = "5"}
  %p = Mul(%w0, %h) : float32[2] primal {unique_id = "2"}
  %q = Mul(%v0, %p) : float32[2] primal {unique_id = "3"}
  %loss = ReduceSum(%q, (), false, false) : float32[] primal {unique_id = "4"}
  %g = Mul(%p, %x) : float32[2] primal {forward_unique_id = "3"}
  %d = Mul(%w0, float32[]<0.1>)
  BEFORE
  %u = UpdateState(umonad, %w0, %v0)
  %one = ApplyGradientDescent(%v, float32[]<0.5>, %g, %u) : float32[2]
  %two = ApplyGradientDescent(%w, float32[]<0.5>, HANDED, %u) : float32[2]
  %t = UpdateState(%u, %one, %two)
  %r = Depend(%loss, %t)
  return %r
}"""


def step(handed: str, before: str = "") -> Program:
    return parse_program(STEP.replace("HANDED", handed).replace("  BEFORE\n", before))


@pytest.mark.parametrize(
    ("handed", "before"),
    [
        ("%h", ""),
        ("%x", ""),
        ("%v0", ""),
        ("%w0", ""),
        ("%w", ""),
        ("%c", "  %c = Mul(%h, float32[]<0.25>)\n"),
        ("%c", "  %pair = MakeTuple(%h, %d)\n  %c = AddN(%pair) : float32[2]\n"),
    ],
    ids=["forward", "input", "another weight", "weight", "memory", "scaled", "decayed"],
)
def test_it_becomes_a_node_of_the_backward_part(handed: str, before: str) -> None:
    program = step(handed, before)
    (graph,) = program.graphs.values()
    assert [info.gradient for info in anatomy(graph).weights if info.name == "w"] == [()]
    assert settle_gradients(anatomy(graph))
    verify(program)
    gradient = {info.name: info.gradient for info in anatomy(graph).weights}
    assert [node.op.name for node in gradient["v"]] == ["Mul"]
    (copy,) = gradient["w"]
    assert copy.op.name == "TensorMove"
    assert sum(takes_value(user, i) for user, i in copy.use_sites()) == 1
    assert not settle_gradients(anatomy(graph))


@pytest.mark.parametrize(
    ("handed", "before"),
    [
        ("%c", "  %c = Mul(%h, %x)\n"),
        ("%c", "  %pair = MakeTuple(%w0, %d)\n  %c = AddN(%pair) : float32[2]\n"),
        ("%v", ""),
    ],
    ids=["a product of two", "the weight and its decay", "another weight's memory"],
)
def test_what_cannot_be_told(handed: str, before: str) -> None:
    (graph,) = step(handed, before).graphs.values()
    with pytest.raises(AnatomyError, match=r"weight 'w': .* cannot be told from what else the update takes"):
        settle_gradients(anatomy(graph))


def test_what_has_its_gradients_stays() -> None:
    assert not settle_gradients(anatomy(step("%g").graphs["step"]))
    assert not settle_gradients(anatomy(step("float32[2]<1.0, 1.0>").graphs["step"]))
