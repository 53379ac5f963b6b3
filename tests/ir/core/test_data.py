"""Numbers as bytes: how they are rounded to half precision."""

from __future__ import annotations

import warnings

import numpy as np
from boost_compile.ir.core.data import BytesData, rounded
from boost_compile.ir.core.types import DType, TensorType


def test_bfloat16_is_rounded_to_nearest_ties_to_even() -> None:
    bits = np.uint32([0x3F800000, 0x3F808000, 0x3F818000, 0x3F808001, 0x7F800000, 0xFFC00001, 0x7F800001])
    type_, data = TensorType(DType.FLOAT32, (7,)), BytesData(bits.tobytes())
    found = np.frombuffer(rounded(type_, data, DType.BFLOAT16).data, np.uint16)
    assert found[:5].tolist() == [0x3F80, 0x3F80, 0x3F82, 0x3F81, 0x7F80]
    assert all(((b & 0x7F80) == 0x7F80) and b & 0x7F for b in found[5:].tolist()), "a NaN stays one"
    assert np.frombuffer(rounded(type_, data, DType.FLOAT16).data, np.float16)[:2].tolist() == [1.0, 1.00390625]
    large = BytesData(np.float32([1e9, 1e-9]).tobytes())
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        halves = rounded(TensorType(DType.FLOAT32, (2,)), large, DType.FLOAT16)
    assert np.frombuffer(halves.data, np.float16).tolist() == [np.inf, 0.0]
