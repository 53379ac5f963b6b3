"""Paddings that take elements away, run again and again: MindSpore's own kernel is right once."""

from __future__ import annotations

import numpy as np
import pytest
from boost_compile.ir.text import parse_program
from boost_compile.runtime.lowering.context import Context
from boost_compile.runtime.lowering.lower import lower

import boost_compile as bc

TEXT = """
state %seen: float32[] role=counter
graph @step(%x: float32[3,4,8]) -> (result) {{
  %double = Add(%x, %x) : float32[3,4,8]
  %z = PadV3(%double, {widths}, float32[]<0.5>) {{mode = "constant", paddings_contiguous = {pairs}}} : {made}
  %count = AssignAdd(%seen, float32[]<1.0>, umonad)
  %u = UpdateState(umonad, %count)
  %r = Depend(%z, %u)
  return %r
}}
"""


@pytest.mark.parametrize(
    ("widths", "pairs", "in_front", "behind"),
    [
        ("int64[2]<-4, 0>", True, (0, 0, -4), (0, 0, 0)),
        ("(-1, -2, 0, 0)", True, (0, 0, -1), (0, 0, -2)),
        ("(2, -3, -1, 0)", True, (0, -1, 2), (0, 0, -3)),
        ("int32[6]<1, -2, 0, -1, -1, 3>", True, (-1, 0, 1), (3, -1, -2)),
        ("(1, -2, -3, 1)", False, (0, -2, 1), (0, 1, -3)),
    ],
)
def test_each_run_gives_the_right_elements(widths: str, pairs: bool, in_front: tuple, behind: tuple) -> None:
    shape = [n + a + b for n, a, b in zip((3, 4, 8), in_front, behind, strict=True)]
    made = f"float32[{','.join(map(str, shape))}]"
    program = parse_program(TEXT.format(widths=widths, pairs=str(pairs).lower(), made=made))
    session, rng = bc.Session(program), np.random.default_rng(4)
    for _ in range(4):
        x = rng.standard_normal((3, 4, 8)).astype(np.float32)
        kept = tuple(slice(max(0, -a), n - max(0, -b)) for n, a, b in zip((3, 4, 8), in_front, behind, strict=True))
        added = [(max(0, a), max(0, b)) for a, b in zip(in_front, behind, strict=True)]
        expected = np.pad((x + x)[kept], added, constant_values=0.5)
        np.testing.assert_array_equal(session.step(x).raw["result"].asnumpy(), expected, strict=True)


def test_the_batch_may_be_of_any_size() -> None:
    text = TEXT.format(widths="(2, -3, -1, 0)", pairs="true", made="float32[-1,3,7]").replace("[3,4,8]", "[-1,4,8]")
    session, rng = bc.Session(parse_program(text)), np.random.default_rng(4)
    for size in (3, 2, 3):
        x = rng.standard_normal((size, 4, 8)).astype(np.float32)
        expected = np.pad((x + x)[:, 1:, :-3], ((0, 0), (0, 0), (2, 0)), constant_values=0.5)
        np.testing.assert_array_equal(session.step(x).raw["result"].asnumpy(), expected, strict=True)


@pytest.mark.parametrize(("target", "widths"), [("gpu", "(-4, 0)"), ("cpu", "(0, 4)")])
def test_what_is_left(target: str, widths: str) -> None:
    made = "float32[3,4,4]" if "-" in widths else "float32[3,4,12]"
    program = parse_program(TEXT.format(widths=widths, pairs="true", made=made))
    assert "cropping" not in dict(lower(program.graphs["step"], Context(program, target)).steps)
