"""Layers by depth: what belongs together, in the order in which data reaches it, however the nodes stand."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from boost_compile.ir.text import parse_program
from boost_compile.passes.step.depth import layers_by_depth

import boost_compile as bc
from tests.graphs import program

Exported = Callable[[str], Path]


@pytest.mark.parametrize("name", ["resnet18", "lenet_bn_adam", "residual_regularized", "gpt_tied", "branch", "lstm"])
def test_the_order_of_nodes_does_not_matter(name: str, exported: Exported) -> None:
    program = bc.load(exported(name))
    layers = layers_by_depth(program)
    assert len(layers) > 1
    assert layers_by_depth(bc.compile(program, "effect-chain-minimization")) == layers
    assert layers_by_depth(parse_program(str_of(program))) == layers
    trained = {n for n, v in program.state.items() if v.role == "weight" and v.trainable}
    assert {w for layer in layers for w in layer} <= trained


def str_of(program: bc.Program) -> str:
    from boost_compile.ir.text import print_program

    return print_program(program)


def test_a_convolution_and_its_normalisation_stay_together(exported: Exported) -> None:
    """Also in a block whose two branches use their weights at the same depth."""
    layers = layers_by_depth(bc.load(exported("resnet18")))
    assert layers[0] == ["conv1.weight", "bn1.gamma", "bn1.beta"]
    for layer in layers[1:-1]:
        block = layer[0].rpartition(".")[0].rpartition(".")[0] if "down_sample" in layer[0] else layer[0][:8]
        assert len(layer) == 3
        assert all(name.startswith(block) for name in layer)
        # conv2 has bn2, the convolution of a down-sampling (its element 0) the normalisation behind it (element 1).
        number = layer[0].split(".")[-2].removeprefix("conv")
        assert {name.split(".")[-2].removeprefix("bn") for name in layer[1:]} == {"1" if number == "0" else number}
    assert len(layers[-1]) == 2
    place = {name: k for k, layer in enumerate(layers) for name in layer}
    stages = [place[f"layer{k}.0.conv1.weight"] for k in (1, 2, 3, 4)]
    assert stages == sorted(stages)


DEEP = """
state %last: float32[2,2] role=weight
state %b: float32[2] role=weight
state %first: float32[2,2] role=weight
state %rate: float32[] role=hyperparameter
graph @step(%x: float32[2,2]) -> (loss) {
  %l0 = Load(%last, umonad) @f
  %b0 = Load(%b, umonad) @f
  %f0 = Load(%first, umonad) @f
  %y = MatMul(%x, %f0) : float32[2,2] @f
  %z = Add(%y, %b0) @f
  %o = MatMul(%z, %l0) : float32[2,2] @f
  %loss = ReduceSum(%o, (), false) @f
  %gl = Mul(%z, %x) @b
  %gf = Mul(%x, %x) @b
  %gb = ReduceSum(%x, (0,), false) : float32[2] @b
  %u = UpdateState(umonad, %y, %z, %o)
  %s1 = ApplyGradientDescent(%last, %rate, %gl, %u) : float32[2,2]
  %s2 = ApplyGradientDescent(%b, %rate, %gb, %u) : float32[2]
  %s3 = ApplyGradientDescent(%first, %rate, %gf, %u) : float32[2,2]
  %end = UpdateState(%u, %s1, %s2, %s3)
  %r = Depend(%loss, %end)
  return %r
}"""


def test_layers_in_the_order_of_the_data_whatever_that_of_the_weights() -> None:
    """The vector belongs to the matrix in front of it."""
    assert layers_by_depth(program(DEEP)) == [["first", "b"], ["last"]]
