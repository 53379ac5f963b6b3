"""The lists of the pass against those of the installed ``mindspore.amp``, and its cells against what they export."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import mindspore as ms
import numpy as np
import pytest
from boost_compile.passes.mixed_precision.lists import BLACK_CELLS, WHITE_CELLS, WHITE_PRIMITIVES
from mindspore import nn
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
