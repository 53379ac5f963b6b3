"""Which micro-batches a thread reads ahead."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from boost_compile.ir.core.graph import Graph
from boost_compile.ir.core.types import tensor
from boost_compile.runtime.data.sources import AT_ONCE, open_source


def consumer(*columns: int) -> Graph:
    graph = Graph("step")
    for number, width in enumerate(columns):
        graph.add_input(f"x{number}", tensor("float32", 4, width))
    return graph


@pytest.mark.parametrize("more", [0, 1])
def test_a_thread_reads_large_micro_batches(more: int) -> None:
    widths = AT_ONCE // 16 - 8, 8 + more
    source = open_source(tuple(np.zeros((8, width), np.float32) for width in widths), consumer(*widths), None, True, 0)
    assert source.reads_ahead == bool(more)


def test_a_thread_reads_rows_of_a_file(tmp_path: Path) -> None:
    np.save(tmp_path / "rows.npy", np.zeros((8, 2), np.float32))
    rows = np.load(tmp_path / "rows.npy", mmap_mode="r")
    assert open_source((rows[2:],), consumer(2), None, True, 0).reads_ahead
    assert not open_source((np.array(rows),), consumer(2), None, True, 0).reads_ahead
