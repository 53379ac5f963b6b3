"""Inputs that reach no layer: which are labels, which belong to the network, and of which nothing says so."""

from __future__ import annotations

import warnings

import pytest
from boost_compile.ir.core.program import Program
from boost_compile.ir.rewrite.evaluation import LabelWarning, evaluation, note_label

from tests.graphs import program

STEP = """
state %w: float32[2] role=weight
state %rate: float32[] role=hyperparameter
graph @step(%x: float32[2], %aside: float32[2], %label: float32[2]) -> (loss) {
  %w0 = Load(%w, umonad) scope("Default/cell/net/Load-op0") primal {unique_id = "1"}
  %y = Mul(%w0, %x) scope("Default/cell/net/dense/Mul-op0") primal {unique_id = "2"}
  %z = JOIN scope("PLACE/Mul-op1") primal {unique_id = "3"}
  %d = Sub(%z, %label) scope("LOSS/Sub-op0") primal {unique_id = "4"}
  %e = END scope("LOSS/Mul-op2") primal {unique_id = "5"}
  %loss = ReduceSum(%e, (), false, false) scope("LOSS/ReduceSum-op0") primal {unique_id = "6"}
  %dd = OnesLike(%e) primal {forward_unique_id = "5"}
  %dw = Mul(%dd, %x) primal {forward_unique_id = "2"}
  %t = UpdateState(umonad, %w0)
  %up = ApplyGradientDescent(%w, %rate, %dw, %t) : float32[2]
  %end = UpdateState(%t, %up)
  %r = Depend(%loss, %end)
  return %r
}"""
NET, LOSS, AROUND = "Default/cell/net", "Default/cell/loss", "Default/cell"
BEHIND, WITHIN = ("Add(%y, %aside)", "Square(%d)"), ("Abs(%y)", "Mul(%d, %aside)")
"""The input meets the prediction before the label, or weighs the loss."""
LOOKED_UP = ("GatherD(%y, 0, %place) : float32[2]", "Mul(%d, %aside)")
"""The label finds elements of the prediction, as the classes of a cross entropy do; its smoothing comes beside."""
LEFT, TAKEN = ("x",), ("x", "aside")


def step(join: str, end: str, place: str, loss: str) -> Program:
    text = STEP.replace("JOIN", join).replace("END", end).replace("PLACE", place)
    if "%place" in join:
        text = text.replace("  %z =", "  %place = Cast(%label, 34) : int32[2]\n  %z =")
        smooth = '  %m = Mul(%y, %label) scope("LOSS/Mul-op3") primal {unique_id = "7"}\n'
        text = text.replace("  %d = Sub(%z, %label)", f"{smooth}  %d = Add(%z, %m)")
    return program(text.replace("LOSS", loss))


CELLS = {
    "in the network": (BEHIND, NET, LOSS, TAKEN, ()),
    "in a cell of the network": (BEHIND, f"{NET}/mask", LOSS, TAKEN, ()),
    "in the loss": (BEHIND, LOSS, LOSS, LEFT, ()),
    "between both": (BEHIND, AROUND, LOSS, LEFT, ("aside",)),
    "all in one cell": (BEHIND, NET, NET, LEFT, ("aside",)),
    "behind the label in the loss": (WITHIN, NET, LOSS, LEFT, ()),
    "behind the label in one cell": (WITHIN, NET, NET, LEFT, ("label",)),
    "behind a lookup in one cell": (LOOKED_UP, NET, NET, LEFT, ()),
}


@pytest.mark.parametrize(("nodes", "place", "loss", "inputs", "unsure"), CELLS.values(), ids=CELLS)
def test_cells_tell_the_network_from_the_loss(
    nodes: tuple[str, str], place: str, loss: str, inputs: tuple[str, ...], unsure: tuple[str, ...]
) -> None:
    made = step(*nodes, place, loss)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        network = evaluation(made)
    assert (network.inputs, network.unsure) == (inputs, unsure)
    assert [w.category for w in caught] == [LabelWarning] * len(unsure)
    for name in unsure:
        assert f"'{name}' reaches no layer" in str(caught[0].message)
        assert f"unsure whether {name} should be left out" in str(network)


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("place", [NET, AROUND])
def test_a_noted_label_is_the_only_one(place: str) -> None:
    made = step(*BEHIND, place, place)
    note_label(made, "label")
    network = evaluation(made)
    assert (network.inputs, network.label, network.ends_at) == (TAKEN, "label", (f"%z ({place}/Mul-op1)",))


def test_a_note_of_another_file_says_nothing() -> None:
    made = step(*BEHIND, NET, LOSS)
    note_label(made, "nowhere")
    assert (evaluation(made).inputs, evaluation(made).label) == (TAKEN, None)
    made.metadata["user_info"] = {"boost_compile.label": 3}
    assert evaluation(made).label is None


def test_data_may_be_the_label_behind_a_mask() -> None:
    """As where an autoencoder reconstructs what the mask leaves."""
    text = STEP.replace("Sub(%z, %label)", "Sub(%z, %x)").replace("JOIN", BEHIND[0]).replace("END", BEHIND[1])
    network = evaluation(program(text.replace("PLACE", NET).replace("LOSS", LOSS)))
    assert (network.inputs, network.ends_at) == (TAKEN, (f"%z ({NET}/Mul-op1)",))
