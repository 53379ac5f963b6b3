"""Weights that are cast late: the same bits, in less memory."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from boost_compile.ir.rewrite.cpu import late_casts
from boost_compile.runtime.engine.footprint import footprint

import boost_compile as bc
from tests.compare import assert_equal
from tests.networks import CASES


def compiled(exported: Callable[[str], Path], name: str) -> bc.Program:
    return bc.compile(bc.load(exported(name)), "mixed-precision{level=O2,loss_scale=false}")


def early(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(late_casts, "applies", lambda graph, context: False)


def test_the_same_bits(exported: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch) -> None:
    program = compiled(exported, "lenet_bn")
    monkeypatch.setattr(late_casts, "SMALLEST", 64)
    late = bc.Session(program)
    early(monkeypatch)
    others = bc.Session(program.copy())
    for batch in CASES["lenet_bn"].batches(2):
        late.step(*batch)
        others.step(*batch)
    assert_equal(late.state(), others.state())


def test_less_memory(exported: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch) -> None:
    """By the estimate; large weights gain."""
    program = compiled(exported, "mobilenet_v2")
    late = footprint(program).pool
    early(monkeypatch)
    assert late < footprint(program).pool
