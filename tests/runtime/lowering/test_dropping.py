"""Micro-batches that are dropped by products: the bits of selections, in each weight, slot and statistic."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from boost_compile.runtime.lowering import dropping
from boost_compile.runtime.lowering.context import Context
from boost_compile.runtime.lowering.lower import lower

import boost_compile as bc
from tests.compare import assert_equal
from tests.networks import CASES


@pytest.mark.parametrize("split", ["apply", "fused"])
@pytest.mark.parametrize("name", ["lenet_bn", "mlp"])
def test_a_dropped_micro_batch(
    name: str, split: str, exported: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    pipeline = (
        f"gradient-accumulation{{steps=3,split={split}}},overflow-check{{policy=skip-micro}},loss-scale{{init=64}}"
    )
    program = bc.compile(bc.load(exported(name)), pipeline)
    for graph in ("accumulate", *(["step"] if split == "fused" else [])):
        steps = lower(program.graphs[graph], Context(program, "cpu")).steps
        assert "gradients dropped by products" in dict(steps)["dropping"]
    ours = bc.Session(program)
    monkeypatch.setattr(dropping, "applies", lambda graph, context: False)
    selecting = bc.Session(program)
    batches = CASES[name].batches(9)
    for i in (1, 5):  # in the middle and at the end of a cycle
        batches[i] = (np.full_like(batches[i][0], np.inf), *batches[i][1:])
    dropped = 0
    for batch in batches:
        mine, its = ours.step(*batch), selecting.step(*batch)
        assert str(mine.outputs) == str(its.outputs)
        dropped += bool(mine.overflow)
    assert dropped >= 2
    assert_equal(ours.state(), selecting.state())
    assert all(np.isfinite(value).all() for key, value in ours.state().items() if "moving" not in key)
