"""Reductions and joint answers, by running them."""

from __future__ import annotations

import numpy as np
import pytest
from boost_compile.ir.builders.reduce import (
    all_finite,
    all_true,
    reduce_all,
    reduce_any,
    reduce_mean,
    reduce_sum,
    square_sum,
)
from boost_compile.ir.core.graph import Node, tensor_type

from tests.execution import run_graph
from tests.graphs import graph

X = np.array([[1, 2, 3], [4, 5, 6]], np.float32)


def test_sums_and_means() -> None:
    for function, wanted in ((reduce_sum, np.sum), (reduce_mean, np.mean)):
        for axes, keep in (((), False), ((0,), False), ((1,), True)):
            g = graph("graph @g(%x: float32[2,3]) {\nreturn %x\n}")
            g.result = function(g, g.inputs[0], axes, keep=keep)
            found = run_graph(g, [X], {})
            np.testing.assert_array_equal(found, wanted(X, axis=axes or None, keepdims=keep))
            assert g.result.type.shape == found.shape  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("shape", "axes"),
    [((4096,), [(1,), ()]), ((4099,), [()]), ((9, 5, 7), [()]), ((64, 8, 3, 3), [(1,), ()]), ((67, 71), [(1,), ()])],
)
def test_squares_of_a_big_tensor_are_added_by_rows(shape: tuple[int, ...], axes: list[tuple[int, ...]]) -> None:
    """Of at most 1,024 elements, each of them counted once; the numbers are small enough for exact sums."""
    g = graph(f"graph @g(%x: float32[{','.join(map(str, shape))}]) {{\nreturn %x\n}}")
    g.result = square_sum(g, g.inputs[0], scope="")
    given = np.arange(np.prod(shape)).reshape(shape).astype(np.float32) % 7
    assert run_graph(g, [given], {}) == (given * given).sum()
    sums = [node for node in g if node.op.name == "ReduceSum"]
    assert [node.operand(1).literal for node in sums] == axes
    assert len(axes) == 1 or tensor_type(sums[0].operand(0)).shape[1] <= 1024


def test_answers() -> None:
    for function, wanted in ((reduce_all, np.all), (reduce_any, np.any)):
        for given in ([True, False], [True, True], [False, False]):
            g = graph("graph @g(%x: bool[2]) {\nreturn %x\n}")
            g.result = function(g, g.inputs[0])
            assert run_graph(g, [np.array(given)], {}) == wanted(given)


@pytest.mark.parametrize("bad", [None, 0, 1, 2, 3, 4])
def test_every_value_is_asked(bad: int | None) -> None:
    names = ["a", "b", "c", "d", "e"]
    g = graph("graph @g(" + ", ".join(f"%{n}: float32[2]" for n in names) + ", %i: int32[2]) {\nreturn %a\n}")
    g.result = all_finite(g, g.inputs, scope="")
    given = [np.ones(2, np.float32) for _ in names]
    if bad is not None:
        given[bad][1] = np.nan if bad % 2 else np.inf
    assert run_graph(g, [*given, np.ones(2, np.int32)], {}) == (bad is None)


def test_no_value_is_finite() -> None:
    g = graph("graph @g(%i: int32[2]) {\nreturn %i\n}")
    g.result = all_finite(g, g.inputs, scope="")
    assert run_graph(g, [np.ones(2, np.int32)], {})


def test_answers_are_joined_pairwise() -> None:
    """Eight answers stand three deep, not seven."""
    g = graph("graph @g(" + ", ".join(f"%b{i}: bool[]" for i in range(8)) + ") {\nreturn %b0\n}")
    found = all_true(g, g.inputs, scope="")
    depth, value = 0, found
    while isinstance(value, Node):
        depth, value = depth + 1, value.operand(0)
    assert depth == 3
    assert len(g) == 7
