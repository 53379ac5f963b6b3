"""The fast test for infinities and NaN answers as IsFinite does."""

from __future__ import annotations

import math

import numpy as np
import pytest
from boost_compile.ir.text import parse_program
from boost_compile.runtime.lowering.context import Context
from boost_compile.runtime.lowering.lower import lower

import boost_compile as bc

TEXT = """
state %seen: float32[] role=counter
graph @step(%x: float32[{shape}], %y: float32[64,64]) -> (finite) {{
  %each = IsFinite(%x)
  %of_x = ReduceAll(%each, (), false)
  %too = IsFinite(%y)
  %of_y = ReduceAll(%too, (), false)
  %all = LogicalAnd(%of_x, %of_y)
  %count = AssignAdd(%seen, float32[]<1.0>, umonad)
  %u = UpdateState(umonad, %count)
  %r = Depend(%all, %u)
  return %r
}}
"""
SHAPES = [(8192,), (64, 64), (16, 8, 8, 8), (5000, 2), (2, 5000), (1, 4096)]


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_every_place_and_kind(shape: tuple[int, ...]) -> None:
    program = parse_program(TEXT.format(shape=", ".join(map(str, shape))))
    assert "finite-test" in dict(lower(program.graphs["step"], Context(program, "cpu")).steps)
    session = bc.Session(program)
    size = math.prod(shape)
    plain = np.random.default_rng(0).standard_normal(size).astype(np.float32)
    other = np.full((64, 64), 3.4e38, np.float32)
    extreme = np.where(np.arange(size) % 2, np.float32(3.4e38), np.float32(-3.4e38))
    for finite in (plain, extreme, np.full(size, 1e-45, np.float32), np.zeros(size, np.float32)):
        assert bool(session.step(finite.reshape(shape), other).raw["finite"].asnumpy())
    for place in (0, size // 2, size // 3, size - 1):
        for value in (np.inf, -np.inf, np.nan):
            bad = plain.copy()
            bad[place] = value
            assert not bool(session.step(bad.reshape(shape), other).raw["finite"].asnumpy()), (place, value)
    other[63, 5] = np.inf
    assert not bool(session.step(plain.reshape(shape), other).raw["finite"].asnumpy())
