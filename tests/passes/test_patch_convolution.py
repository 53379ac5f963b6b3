"""Patch convolutions as products: judged by native training of the network as it is written."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from boost_compile.ir.core.errors import PassError

import boost_compile as bc
from tests import native
from tests.compare import assert_close
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


def test_after_other_passes(tmp_path: Path) -> None:
    source = bc.load(export(PATCHES, tmp_path))
    others = "gradient-accumulation{steps=2},tag-gradient-centralization,lower-gradient-centralization"
    plain = bc.compile(source, others)
    products = bc.compile(source, f"patch-convolution,{others}")
    assert not CONVOLUTIONS & set(ops(products))
    (cycle,) = PATCHES.cycles(1, 2)
    states = []
    for program in (products, plain):
        session = bc.Session(program)
        for batch in cycle:
            session.step(*batch)
        states.append(session.state())
    initial = {name: program.state[name].initial for name in states[1]}
    assert_close(states[0], states[1], initial, 1e-5)
    assert not np.array_equal(states[1]["oblong.weight"], initial["oblong.weight"])


def test_any_batch(tmp_path: Path) -> None:
    case = replace(PATCHES, dynamic_batch=True)
    program = bc.compile(bc.load(export(case, tmp_path)), "patch-convolution")
    sizes = [case.batch(np.random.default_rng(k), size) for k, size in enumerate((3, 5))]
    session = bc.Session(program)
    for batch in sizes:
        session.step(*batch)
    initial = native.initial_state(case)
    _, expected = native.train_steps(case, sizes)
    assert_close(session.state(), expected, initial, 1e-5)


def test_a_network_whose_windows_overlap_is_refused(exported) -> None:
    with pytest.raises(PassError, match=r"matched nothing(.|\n)*windows overlap"):
        bc.compile(bc.load(exported("grouped_conv")), "patch-convolution")
