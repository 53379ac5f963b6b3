"""What the backward part takes, and what may run again."""

from __future__ import annotations

from boost_compile.passes.recompute.candidates import forward_of

from tests.material import material
from tests.passes.recompute.chain import chain


def test_the_values_of_a_chain() -> None:
    """The backward part takes each layer's result; the products before it are forgotten."""
    forward = forward_of(chain(5).graphs["step"])
    assert [node.name for node in forward.nodes if node in forward.wanted] == ["t0", "t1", "t2", "t3", "t4"]
    assert not any(forward.obstacles.values())


def test_a_normalisation_in_training_is_kept() -> None:
    forward = forward_of(material("lenet_bn").graphs["step"])
    found = {node.op.name: why for node, why in forward.obstacles.items() if why}
    assert found["BatchNorm"] == "it changes state"
