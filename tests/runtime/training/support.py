"""What tests of training share."""

from __future__ import annotations

import mindspore.dataset as ds
import numpy as np

from tests.runtime.programs import samples


def assert_same_state(actual: dict[str, np.ndarray], expected: dict[str, np.ndarray]) -> None:
    assert actual.keys() == expected.keys()
    for name, value in expected.items():
        np.testing.assert_array_equal(actual[name], value, err_msg=name, strict=True)


def dataset(*columns: np.ndarray) -> ds.Dataset:
    """Batched rows, in their order."""
    # Rows of rank 0 must be arrays: mindspore.dataset takes no numpy scalars under numpy 2.
    rows = [tuple(np.array(column[i]) for column in columns) for i in range(len(columns[0]))]
    names = [f"column{i}" for i in range(len(columns))]
    return ds.GeneratorDataset(rows, names, shuffle=False)


def rows(count: int) -> np.ndarray:
    return samples(count).reshape(-1)
