"""Patch convolutions as products: judged by native training of the network as it is written."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

import boost_compile as bc
from tests.networks import CASES, Case, export
from tests.networks.vision import Patches, cross_entropy, images, momentum
from tests.passes.without_layers import check

CONVOLUTIONS = {"Conv2D", "Conv2DBackpropFilter", "Conv2DBackpropInput"}
PATCHES = Case("patches", Patches, momentum, images, cross_entropy)


def ops(program: bc.Program) -> list[str]:
    return [node.op.name for graph in program.graphs.values() for node in graph]


@pytest.mark.parametrize(
    ("case", "changed"),
    [
        (PATCHES, 5),  # two forward, two to filters, one to the input
        (replace(CASES["vit"], optimizer=momentum), 2),
    ],
    ids=["patches", "vit"],
)
def test_trains_as_the_convolutions(tmp_path: Path, case: Case, changed: int) -> None:
    program = check(bc.load(export(case, tmp_path)), case, "patch-convolution")
    assert not CONVOLUTIONS & set(ops(program))
    assert program.reports[-1].changed == changed
