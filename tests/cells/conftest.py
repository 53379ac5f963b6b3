"""The exported files of the training cells: each is written once for the package."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import pytest

from .zoo import SHAPES, Export


@pytest.fixture(scope="package")
def cell_file(tmp_path_factory: pytest.TempPathFactory) -> Export:
    """`cell_file("tutorial")` is the path of that cell's MindIR."""
    folder = tmp_path_factory.mktemp("cells")

    @cache
    def export(name: str) -> Path:
        SHAPES[name].export(str(folder / f"{name}.mindir"))
        return folder / f"{name}.mindir"

    return export
