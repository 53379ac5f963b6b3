"""Averages that the host moves have the bits of MindSpore's kernels."""

from __future__ import annotations

import numpy as np
import pytest
from boost_compile.runtime.engine.moving import BLOCK, move

SPECIAL = np.array([0.0, -0.0, 1.5, 3e38, -3e38, np.inf, -np.inf, np.nan], np.float32)


@pytest.mark.parametrize("shape", [(), (3, 5), (2 * BLOCK + 7,)])
def test_bits(shape: tuple[int, ...]) -> None:
    import mindspore

    rng = np.random.default_rng(0)
    average, weight = (rng.standard_normal(shape).astype(np.float32) for _ in range(2))
    if len(shape) == 1:
        pairs = np.stack(np.meshgrid(SPECIAL, SPECIAL)).reshape(2, -1)
        average[-pairs.shape[1] :], weight[-pairs.shape[1] :] = pairs
    kept, taken = np.float32(0.999), np.float32(1 - 0.999)
    old, new = mindspore.Tensor(average), mindspore.Tensor(weight)
    wanted = (old * mindspore.Tensor(kept) + new * mindspore.Tensor(taken)).asnumpy()
    memory = average.copy()
    with np.errstate(all="ignore"):
        move(memory, weight, kept, taken)
    nan = np.isnan(wanted)
    assert np.array_equal(nan, np.isnan(memory))
    assert np.where(nan, 0, memory).tobytes() == np.where(nan, 0, wanted).tobytes()
