"""What tests of training share."""

from __future__ import annotations

import signal

import mindspore.dataset as ds
import numpy as np
from boost_compile.runtime.training.callback import Callback

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


class Signalled(Callback):
    """Sends signals to its own process after a step."""

    def __init__(self, step: int, *signals: int):
        self.step, self.signals = step, signals

    def on_step(self, session, number, result):
        if number == self.step:
            for each in self.signals:
                signal.raise_signal(each)
