"""Files that only the reader's tests need: parameters in a data file, made by MindSpore itself."""

from __future__ import annotations

from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def split_export(tmp_path_factory) -> Path:
    """The zoo's "mlp" as mindspore.export writes models over 1 GB: MLP_graph.mindir and MLP_variables/data_0."""
    import mindspore as ms
    from mindspore.train import serialization

    from tests.networks import CASES, build

    case = CASES["mlp"]
    path = tmp_path_factory.mktemp("split") / "mlp.mindir"
    threshold, serialization.TOTAL_SAVE = serialization.TOTAL_SAVE, 0
    try:
        inputs = [ms.Tensor(a) for a in case.batches(1)[0]]
        ms.export(build(case).train_step, *inputs, file_name=str(path), file_format="MINDIR")
    finally:
        serialization.TOTAL_SAVE = threshold
    return path.with_name("mlp_graph.mindir")
