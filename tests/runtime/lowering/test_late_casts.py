"""Weights that are cast late: the same bits, in less memory."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from boost_compile.ir.rewrite.cpu import late_casts
from boost_compile.runtime.engine.footprint import footprint

import boost_compile as bc
from tests.networks import CASES


def test_the_same_bits_in_less_memory(exported: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch) -> None:
    source = bc.load(exported("lenet_bn"))
    program = bc.compile(source, "mixed-precision{level=O2,loss_scale=false}")
    monkeypatch.setattr(late_casts, "SMALLEST", 64)
    ends, pools = [], []
    for lowered in (True, False):
        if not lowered:
            monkeypatch.setattr(late_casts, "applies", lambda graph, context: False)
        session = bc.Session(program.copy())
        for batch in CASES["lenet_bn"].batches(2):
            session.step(*batch)
        ends.append({name: np.asarray(value).tobytes() for name, value in session.state().items()})
        pools.append(footprint(program).pool)
    assert ends[0] == ends[1]
    assert pools[0] < pools[1]
