"""Tensors joined into one and taken apart again, by running it."""

from __future__ import annotations

import numpy as np
from boost_compile.ir.builders.packing import join, part

from tests.execution import run_graph
from tests.graphs import graph


def test_each_part_comes_back() -> None:
    arrays = [np.arange(6, dtype=np.float32).reshape(2, 3), np.array(7, np.float32), np.array([8, 9], np.float32)]
    g = graph("graph @g(%a: float32[2,3], %b: float32[], %c: float32[2]) {\nreturn %a\n}")
    joined = join(g, g.inputs, scope="s")
    begins = (0, 6, 7)
    parts = [part(g, joined, begin, x.shape, scope="s") for begin, x in zip(begins, arrays, strict=True)]
    g.result = g.create("MakeTuple", [joined, *parts])
    whole, *found = run_graph(g, arrays, {})
    np.testing.assert_array_equal(whole, np.concatenate([x.ravel() for x in arrays]))
    for value, array in zip(found, arrays, strict=True):
        assert value.shape == array.shape
        np.testing.assert_array_equal(value, array)
