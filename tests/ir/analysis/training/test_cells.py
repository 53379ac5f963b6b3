"""Which cell is the optimizer, by the scopes of nodes."""

from __future__ import annotations

import pytest
from boost_compile.ir.analysis.training.cells import Cells, cell_of, within
from boost_compile.ir.analysis.training.network import network_parts

from tests.graphs import graph

STEP = """
state %w: float32[2]
graph @step(%x: float32[2]) {
  %w0 = Load(%w, umonad) : float32[2] scope("NETWORK/Load-op0") primal {unique_id = "1"}
  %y = Mul(%w0, %x) : float32[2] scope("NETWORK/Mul-op0") primal {unique_id = "2"}
  %g = Mul(%y, %x) : float32[2] scope("Gradients/NETWORK/Grad_Mul/Mul-op0")
  %new = AssignSub(%w, %g, umonad) : float32[2] scope("UPDATE/AssignSub-op0")
  %t = UpdateState(umonad, %new)
  %r = Depend(%y, %t)
  return %r
}"""


@pytest.mark.parametrize(
    ("network", "update", "optimizer"),
    [
        ("Default/network-Net", "Default/optimizer-SGD", "Default/optimizer-SGD"),
        ("Default/network-Net", "Default/optimizer-LARS/opt-SGD", "Default/optimizer-LARS"),  # one in another
        ("Default/step-Step/network-Net", "Default/step-Step/o-SGD", "Default/step-Step/o-SGD"),  # a cell around it
        ("Default", "Default/optimizer-SGD", "Default/optimizer-SGD"),  # a loss that the training cell computes
        ("Default/network-Net", "Default", None),  # by the training cell itself
        ("Default/network-Net", "Default/network-Net", None),
        ("Default/network-Net", "other", None),  # of a pass
    ],
)
def test_the_optimizer_is_the_part_of_the_training_cell_that_updates(network: str, update: str, optimizer: str | None):
    step = graph(STEP.replace("NETWORK", network).replace("UPDATE", update))
    nodes = {node.name: node for node in step}
    assert Cells(network_parts(step)).optimizer(nodes["new"]) == optimizer
    assert cell_of(nodes["g"]) == f"{network}/Grad_Mul"


def test_a_name_that_begins_alike_is_another_cell():
    assert within("Default/opt-SGD/inner-X", "Default/opt-SGD")
    assert not within("Default/opt-SGD2", "Default/opt-SGD")
