"""Layers by depth: what belongs together, in the order in which data reaches it, however the nodes stand."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from boost_compile.ir.text import parse_program
from boost_compile.passes.step.depth import layers_by_depth

import boost_compile as bc

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
