"""What an optimizer is handed, and what goes with it, told by the scopes of nodes."""

from __future__ import annotations

import pytest
from boost_compile.ir.analysis.training.anatomy import anatomy
from boost_compile.ir.analysis.training.optimizers import Handed, Optimizers
from boost_compile.ir.core.errors import AnatomyError
from boost_compile.ir.core.graph import Graph
from boost_compile.ir.core.walk import result_value

from tests.graphs import graph

STEP = """
state %w: float32[2]
state %m: float32[2]
state %turn: float32[]
graph @step(%x: float32[2]) {
  %w0 = Load(%w, umonad) : float32[2] scope("Default/net-Net/Load-op0") primal {unique_id = "1"}
  %y = Mul(%w0, %x) : float32[2] scope("Default/net-Net/Mul-op0") primal {unique_id = "2"}
  %g = Mul(%x, %x) : float32[2] scope("Gradients/Default/net-Net/Mul-op0") primal {forward_unique_id = "2"}
  %t0 = Load(%turn, umonad) : float32[] scope("Default/Load-op0")
  %t1 = Sub(float32[]<1.0>, %t0) : float32[] scope("Default/Sub-op0")
  %moved = Assign(%turn, %t1, umonad) : float32[] scope("Default/Assign-op0")
  %masked = Mul(%g, %t0) : float32[2] scope("CELL/Mul-op1")
  %m0 = Load(%m, umonad) : float32[2] scope("Default/optimizer-Own/Load-op0")
  %mean = Add(%m0, %masked) : float32[2] scope("Default/optimizer-Own/Add-op0")
  %kept = Assign(%m, %mean, umonad) : float32[2] scope("Default/optimizer-Own/Assign-op0")
  %new = AssignSub(%w, %mean, umonad) : float32[2] scope("Default/optimizer-Own/AssignSub-op0")
  %t = UpdateState(umonad, %kept, %new, %moved)
  %result = Depend(RESULT, %t)
  return %result
}"""


def handed(step: Graph) -> tuple[Optimizers, Handed | None]:
    found = anatomy(step)
    optimizers = Optimizers(found)
    return optimizers, optimizers.handed(found.weight("w"))


@pytest.mark.parametrize(("cell", "value"), [("Default", "masked"), ("Default/optimizer-Own", "g")])
def test_what_stands_before_the_cell_is_handed_to_it(cell: str, value: str) -> None:
    step = graph(STEP.replace("CELL", cell).replace("RESULT", "%y"))
    optimizers, found = handed(step)
    assert found is not None
    assert [v.name for v in found.values] == [value]
    gone, _ = optimizers.leaving(anatomy(step).effects.effects, [found], [result_value(step)])
    assert {e.node.name for e in gone} == {"kept", "new"}  # the training cell's turn stays


def test_a_training_cell_that_updates_by_itself_has_no_optimizer() -> None:
    text = STEP.replace("CELL", "Default").replace("Default/optimizer-Own", "Default").replace("RESULT", "%y")
    assert handed(graph(text))[1] is None


def test_a_state_of_the_optimizer_that_is_read_besides_stays() -> None:
    text = STEP.replace("CELL", "Default").replace("RESULT", "%m0")
    step = graph(text)
    optimizers, found = handed(step)
    assert found is not None
    gone, _ = optimizers.leaving(anatomy(step).effects.effects, [found], [result_value(step)])
    assert [e.node.name for e in gone] == ["new"]


def test_two_updates_in_a_step_are_refused() -> None:
    again = '%again = AssignSub(%w, %mean, %t) : float32[2] scope("Default/optimizer-Own/AssignSub-op1")'
    text = STEP.replace("  %result", f"  {again}\n  %t2 = UpdateState(%t, %again)\n  %result").replace(
        "RESULT, %t", "%y, %t2"
    )
    step = graph(text.replace("CELL", "Default"))
    optimizers, found = handed(step)
    assert found is not None
    with pytest.raises(AnatomyError, match="'w' is updated twice in a step"):
        optimizers.leaving(anatomy(step).effects.effects, [found], [result_value(step)])
