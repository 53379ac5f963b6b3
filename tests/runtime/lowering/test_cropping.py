"""Paddings that take elements away, run again and again: MindSpore's own kernel is right once."""

from __future__ import annotations

from pathlib import Path

import mindspore as ms
import numpy as np
import pytest
from boost_compile.ir.text import parse_program
from boost_compile.runtime.lowering.context import Context
from boost_compile.runtime.lowering.lower import lower
from mindspore import nn, ops

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


class Padded(nn.Cell):
    """A convolution behind a padding, by ``ops.pad``, whose gradient takes elements away, or by ``nn.Pad``."""

    def __init__(self, by_ops: bool) -> None:
        super().__init__()
        self.by_ops = by_ops
        self.pad = nn.Pad(((0, 0), (0, 0), (0, 1), (1, 0)))
        self.first = nn.Conv2d(1, 2, 3, weight_init=0.1)
        self.second = nn.Conv2d(2, 1, 2, pad_mode="valid", weight_init=0.2)

    def construct(self, x):
        x = self.first(x)
        x = ops.pad(x, (1, 0, 0, 1)) if self.by_ops else self.pad(x)
        return ops.reduce_mean(ops.square(self.second(x)))


def test_training_through_a_padding(tmp_path: Path) -> None:
    """MindSpore itself does not get through these steps (2.10)."""
    trained = []
    rng = np.random.default_rng(5)
    images = [rng.standard_normal((2, 1, 6, 6)).astype(np.float32) for _ in range(8)]
    for by_ops in (True, False):
        network = Padded(by_ops)
        cell = nn.TrainOneStepCell(network, nn.Momentum(network.trainable_params(), 0.1, 0.9)).set_train()
        ms.export(cell, ms.Tensor(images[0]), file_name=str(tmp_path / f"{by_ops}"), file_format="MINDIR")
        session = bc.Session(bc.load(tmp_path / f"{by_ops}.mindir"))
        for image in images:
            session.step(image)
        trained.append({name: session.state()[name] for name in ("first.weight", "second.weight")})
    for name, value in trained[0].items():
        np.testing.assert_array_equal(value, trained[1][name])
