"""A recomputed program on MindSpore: every state has the bits that it has without, and the pool is smaller."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from boost_compile.ir.core.program import Program

import boost_compile as bc
from tests.networks import CASES

Exported = Callable[[str], Path]
CELLS = ("residual_in_place", "dropout", "gpt", "vit", "mlp_half_compute", "mlp_loss_scale_dynamic")
"""The first crosses BatchNorms and adds in place, the second crosses a Dropout."""
DRAWING = "mobilenet_v2_dropout"


def trained(program: Program, batches: list[tuple[np.ndarray, ...]]) -> dict[str, np.ndarray]:
    session = bc.Session(program, seed=7)
    for batch in batches:
        session.step(*batch)
    return {name: np.asarray(value) for name, value in session.state().items()}


@pytest.mark.parametrize("name", [*CELLS, pytest.param(DRAWING, marks=pytest.mark.slow)])
def test_every_state_has_the_same_bits(name: str, exported: Exported) -> None:
    source = bc.load(str(exported(name)))
    before = "gradient-accumulation{steps=2}" if name in ("gpt", "mlp_loss_scale_dynamic") else ""
    plain = bc.compile(source, before) if before else source
    batches = CASES[name].batches(6)
    wanted = trained(plain, batches)
    found = trained(bc.compile(source, f"{before},recompute".strip(",")), batches)
    assert {k for k in wanted if wanted[k].tobytes() != found[k].tobytes()} == set()
