"""Transpositions by rows: the same bits, and nothing kept."""

from __future__ import annotations

import numpy as np
import pytest
from boost_compile.ir.text import parse_program
from boost_compile.runtime.engine.footprint import footprint
from boost_compile.runtime.lowering.context import Context
from boost_compile.runtime.lowering.lower import lower

import boost_compile as bc

TEXT = """
state %seen: float32[] role=counter
graph @step(%x: {given}) -> (result) {{
  %z = Transpose(%x, {axes}) : {made}
  %count = AssignAdd(%seen, float32[]<1.0>, umonad)
  %u = UpdateState(umonad, %count)
  %r = Depend(%z, %u)
  return %r
}}
"""


def program(kind: str, shape: tuple[int, ...], axes: tuple[int, ...]) -> bc.Program:
    given, made = (f"{kind}[{','.join(map(str, one))}]" for one in (shape, [shape[axis] for axis in axes]))
    return parse_program(TEXT.format(given=given, made=made, axes=axes))


@pytest.mark.parametrize(
    ("kind", "shape", "axes"),
    [
        ("float32", (4, 64, 8, 64), (0, 2, 1, 3)),  # the heads of an attention
        ("float16", (4, 64, 8, 64), (0, 2, -3, 3)),
        ("float32", (8, 16, 32, 32), (1, 0, 2, 3)),  # the last two stay
        ("float32", (4, 8, 16, 8, 32), (3, 1, 0, 2, -1)),
    ],
)
def test_the_same_bits_and_nothing_kept(kind: str, shape: tuple[int, ...], axes: tuple[int, ...]) -> None:
    whole = program(kind, shape, axes)
    x = np.random.default_rng(3).standard_normal(shape).astype(kind)
    assert "transposing" in dict(lower(whole.graphs["step"], Context(whole, "cpu")).steps)
    assert footprint(whole, 2).kernels == 0
    np.testing.assert_array_equal(bc.Session(whole).step(x).raw["result"].asnumpy(), x.transpose(axes), strict=True)


@pytest.mark.parametrize(
    ("kind", "shape", "axes"),
    [
        ("float32", (2, 8, 4, 64), (0, 2, 1, 3)),  # small
        ("float32", (512, 256), (1, 0)),  # elements move, not rows
        ("float32", (64, 512, 8), (1, 0, 2)),  # short rows
        ("int32", (4, 64, 8, 64), (0, 2, 1, 3)),
        ("float32", (4, 64, 8, 64), (0, 1, 2, 3)),  # nothing moves
    ],
)
def test_what_is_left(kind: str, shape: tuple[int, ...], axes: tuple[int, ...]) -> None:
    whole = program(kind, shape, axes)
    for target in ("cpu", "gpu"):
        assert "transposing" not in dict(lower(whole.graphs["step"], Context(whole, target)).steps)
