"""The lists of the pass against those of the installed ``mindspore.amp``, and its cells against what they export."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import mindspore as ms
import numpy as np
import pytest
from boost_compile.passes.mixed_precision.lists import BLACK_CELLS, NO_HALF, WHITE_CELLS, WHITE_PRIMITIVES
from mindspore import nn, ops
from mindspore.ops.operations import _grad_ops, image_ops, nn_ops
from mindspore.train import amp

import boost_compile as bc


def test_the_lists_are_those_of_the_installed_package() -> None:
    cells = {c.__name__ for c in amp.AMP_WHITE_LIST if issubclass(c, nn.Cell)}
    primitives = {c.__name__ for c in amp.AMP_WHITE_LIST if not issubclass(c, nn.Cell)}
    assert cells == set(WHITE_CELLS)
    assert primitives == set(WHITE_PRIMITIVES)
    assert {c.__name__ for c in amp.AMP_BLACK_LIST} == set(BLACK_CELLS)
    assert not amp._INNER_AMP_BLACK_LIST


CELLS: dict[str, tuple[Callable[[], nn.Cell], tuple[int, ...]]] = {
    "Conv1d": (lambda: nn.Conv1d(3, 4, 3, has_bias=True), (2, 3, 8)),
    "Conv2d": (lambda: nn.Conv2d(3, 4, 3, has_bias=True), (2, 3, 8, 8)),
    "Conv3d": (lambda: nn.Conv3d(3, 4, 3, has_bias=True), (2, 3, 4, 8, 8)),
    "Conv2dTranspose": (lambda: nn.Conv2dTranspose(3, 4, 3, has_bias=True), (2, 3, 8, 8)),
    "Conv3dTranspose": (lambda: nn.Conv3dTranspose(3, 4, 3, has_bias=True), (2, 3, 4, 8, 8)),
    "Dense": (lambda: nn.Dense(3, 4), (2, 3)),
    "BatchNorm2d": (lambda: nn.BatchNorm2d(3), (2, 3, 4, 4)),
    "LayerNorm": (lambda: nn.LayerNorm((3,)), (2, 3)),
}


@pytest.mark.parametrize("name", CELLS)
def test_a_cell_computes_by_the_primitives_of_its_row(name: str, tmp_path: Path) -> None:
    make, shape = CELLS[name]
    ms.set_context(mode=ms.GRAPH_MODE)
    cell: Any = make()
    path = tmp_path / "cell.mindir"
    ms.export(cell.set_train(), ms.Tensor(np.ones(shape, np.float32)), file_name=str(path), file_format="MINDIR")
    (graph,) = bc.load(path).graphs.values()
    found = {node.op.name for node in graph}
    rows = {**WHITE_CELLS, **BLACK_CELLS}
    assert found & set(rows[name])
    others = {p for cells in rows.values() for p in cells} - set(rows[name])
    assert not found & others


def half(*shape: int) -> ms.Tensor:
    return ms.Tensor(np.full(shape, 0.5, np.float16))


def whole(*shape: int) -> ms.Tensor:
    return ms.Tensor(np.full(shape, 2, np.int32))


POOLED = (half(1, 4, 4, 1), half(1, 2, 2, 1), half(1, 2, 2, 1))
SPEECH = (half(7, 3, 5), whole(3, 2), whole(3), whole(3))
REFUSED: dict[str, Callable[[], object]] = {
    "Betainc": lambda: ops.operations.Betainc()(half(3), half(3), half(3)),
    "CTCGreedyDecoder": lambda: ops.ctc_greedy_decoder(half(7, 3, 5), whole(3)),
    "CTCLossV2": lambda: ops.ctc_loss(*SPEECH),
    "CTCLossV2Grad": lambda: nn_ops.CTCLossV2Grad(0)(half(3), *SPEECH, half(3), half(3, 7, 5)),
    "CholeskySolve": lambda: ops.cholesky_solve(half(3, 3), half(3, 3)),
    "Complex": lambda: ops.Complex()(half(3), half(3)),
    "Eig": lambda: ops.operations.Eig()(half(3, 3)),
    "ExtractGlimpse": lambda: image_ops.ExtractGlimpse()(half(1, 4, 4, 1), whole(2), half(1, 2)),
    "FFTWithSize": lambda: ops.operations.FFTWithSize(signal_ndim=1, inverse=False, real=True)(half(8)),
    "FractionalAvgPool": lambda: nn_ops.FractionalAvgPool([1.0, 1.5, 1.5, 1.0])(half(1, 4, 4, 1)),
    "FractionalMaxPool": lambda: nn_ops.FractionalMaxPool([1.0, 1.5, 1.5, 1.0])(half(1, 4, 4, 1)),
    "FractionalMaxPoolGrad": lambda: _grad_ops.FractionalMaxPoolGrad()(*POOLED, whole(3), whole(3)),
    "FractionalAvgPoolGrad": lambda: _grad_ops.FractionalAvgPoolGrad()(whole(4), POOLED[0], whole(3), whole(3)),
    "Hypot": lambda: ops.hypot(half(3), half(3)),
    "Igamma": lambda: ops.igamma(half(3), half(3)),
    "IgammaGradA": lambda: _grad_ops.IgammaGradA()(half(3), half(3)),
    "Igammac": lambda: ops.igammac(half(3), half(3)),
    "LinSpace": lambda: ops.operations.LinSpace()(half(), half(), 4),
    "MatrixInverse": lambda: ops.inverse(half(3, 3)),
    "MatrixTriangularSolve": lambda: ops.operations.MatrixTriangularSolve()(half(3, 3), half(3, 3)),
    "Mvlgamma": lambda: ops.mvlgamma(half(3), 1),
    "MvlgammaGrad": lambda: _grad_ops.MvlgammaGrad(1)(half(3), half(3)),
    "NextAfter": lambda: ops.operations.NextAfter()(half(3), half(3)),
    "Orgqr": lambda: ops.orgqr(half(3, 3), half(3)),
    "Polar": lambda: ops.polar(half(3), half(3)),
    "STFT": lambda: ops.stft(half(16), 8),
    "Svd": lambda: ops.svd(half(3, 3)),
    "Zeta": lambda: ops.zeta(half(3), half(3)),
}


@pytest.mark.parametrize("name", REFUSED)
def test_mindspore_refuses_half_precision(name: str) -> None:
    with pytest.raises((TypeError, ValueError), match=r"Float16"):
        REFUSED[name]()


def test_what_mindspore_refuses_is_what_the_list_has() -> None:
    assert REFUSED.keys() == NO_HALF
