"""Which programs train: those whose state an optimizer updates, or that say that it is trained."""

from __future__ import annotations

import pytest
from boost_compile.ir.analysis.training.trains import check_trains, what_is_missing
from boost_compile.ir.core.errors import AnatomyError
from boost_compile.ir.text import parse_program

STEP = """
program @p {{
  schedule @step
}}
state %w: float32[2] role={role}
graph @step(%x: float32[2]) {{
  %old = Load(%w, umonad)
  %f = Mul(%x, %old) {forward}
  %g = Mul(%f, %x) {backward}
  {update}
  return %f
}}
"""
UPDATE = "%n = AssignSub(%w, %g, umonad)\n  %u = UpdateState(umonad, %n)\n  %d = Depend(%f, %u)"
FORWARD, BACKWARD = 'primal {unique_id = "1"}', 'primal {forward_unique_id = "1"}'


def missing(role: str = "unknown", forward: str = "", backward: str = "", update: str = "") -> str | None:
    text = STEP.format(role=role, forward=forward, backward=backward, update=update)
    return what_is_missing(parse_program(text.replace("return %f", "return %d") if update else text))


def test_an_update_behind_a_backward_part_trains() -> None:
    assert missing(forward=FORWARD, backward=BACKWARD, update=UPDATE) is None


def test_a_graph_by_hand_trains_what_it_says_is_a_weight() -> None:
    assert missing("weight", update=UPDATE) is None
    assert missing("statistic", update=UPDATE) == missing() == missing("weight")


def test_plain_descent_that_is_given_its_gradients_trains() -> None:
    """As boost-verify runs a cell of ``w -= g``: the same nodes could keep a hidden state."""
    update = "%half = Mul(%x, float32[]<0.5>)\n  " + UPDATE.replace("AssignSub(%w, %g", "AssignSub(%w, %half")
    assert missing("weight", forward=FORWARD, backward=BACKWARD, update=update) is None
    assert missing("statistic", forward=FORWARD, backward=BACKWARD, update=update) is not None


def test_gradients_that_nobody_takes_train_nothing() -> None:
    assert missing(forward=FORWARD, backward=BACKWARD) == "computes gradients, but no optimizer takes them"


def test_the_remedy_for_an_onnx_model_is_an_optimizer() -> None:
    program = parse_program(STEP.format(role="unknown", forward="", backward="", update=""))
    with pytest.raises(AnatomyError, match=r"'p' is a forward graph.*TrainOneStepCell.* Or bc\.differentiate\("):
        check_trains(program)
    program.source["file"] = "net.onnx"
    with pytest.raises(AnatomyError, match=r"forward graph.*bc\.differentiate\(") as caught:
        check_trains(program)
    assert "boost-compile --loss" in caught.value.at_command()
    assert "TrainOneStepCell" not in str(caught.value) + caught.value.at_command()


def test_a_rule_without_a_loss_trains() -> None:
    """Contrastive divergence computes what the optimizer takes by itself; a linear loss has constants for gradients."""
    for handed in ("%g", "float32[2]<1.0, 1.0>"):
        optimizer = f"ApplyGradientDescent(%w, 0.1, {handed}, umonad) : float32[2]"
        assert missing(update=UPDATE.replace("AssignSub(%w, %g, umonad)", optimizer)) is None
