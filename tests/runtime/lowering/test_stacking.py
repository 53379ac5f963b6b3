"""Gradients of one shape that are scaled as one: the same bits as each by itself."""

from __future__ import annotations

from typing import Any

import pytest
from boost_compile.runtime.lowering import stacking
from boost_compile.runtime.lowering.context import Context
from boost_compile.runtime.lowering.lower import lower

import boost_compile as bc
from tests.networks import CASES


def test_bits_stay(exported: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    program = bc.compile(bc.load(str(exported("gpt"))), "overflow-check,loss-scale,clip-gradients{limit=0.1}")
    steps = dict(lower(program.graphs["step"], Context(program, "cpu")).steps)
    assert steps["stacking"] == "28 small gradients scaled with others of their shape"
    ours = bc.Session(program)
    monkeypatch.setattr(stacking, "applies", lambda graph, context: False)
    each = bc.Session(program)
    for batch in CASES["gpt"].batches(2):
        assert ours.step(*batch).loss == each.step(*batch).loss
    for key, value in each.state().items():
        assert value.tobytes() == ours.state()[key].tobytes(), key
