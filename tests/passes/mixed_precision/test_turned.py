"""Products of the backward part without the transpositions in front of them and behind them."""

from __future__ import annotations

import numpy as np
import pytest
from boost_compile.ir.analysis.training.network import network_parts
from boost_compile.ir.core.graph import Graph
from boost_compile.passes.mixed_precision.turned import read_as_they_lie

from tests.execution import run_graph
from tests.graphs import graph

HEAD = "graph @step(%x: float32[2,3,4], %y: float32[2,5,4], %z: float32[2,4,3]) {\n"
RNG = np.random.default_rng(1)
INPUTS = [RNG.integers(-9, 9, shape).astype(np.float32) for shape in ((2, 3, 4), (2, 5, 4), (2, 4, 3))]
"""Whole numbers: their sums are exact in any order."""


def turned(body: str) -> tuple[Graph, int]:
    """The graph afterwards, and how many products changed; what it computes is held against what it computed."""
    made = graph(HEAD + body + "}")
    before = run_graph(made, INPUTS, {})
    changed = read_as_they_lie(made, network_parts(made))
    assert np.array_equal(np.asarray(run_graph(made, INPUTS, {})), np.asarray(before))
    return made, changed


def primitives(made: Graph) -> list[str]:
    return [node.op.name for node in made]


@pytest.mark.parametrize(
    ("body", "flags"),
    [
        ("%g = BatchMatMul(%x, %t, false, false) : float32[2,3,5] @b\n", (False, True)),
        ("%g = MatMulExt(%x, %t) : float32[2,3,5] @b\n", (False, True)),
        ("%g = BatchMatMul(%z, %t, true, false) : float32[2,3,5] @b\n", (True, True)),
        ("%g = BatchMatMul(%t, %x, true, true) : float32[2,5,3] @b\n", (False, True)),
        (
            "%u = Transpose(%z, (0, -1, 1)) : float32[2,3,4] @b\n%g = MatMulExt(%u, %t) : float32[2,3,5] @b\n",
            (True, True),
        ),
        (
            "%u = Transpose(%t, (0, 2, 1)) : float32[2,5,4] @b\n"
            "%g = BatchMatMul(%x, %u, false, true) : float32[2,3,5] @b\n",
            (False, True),
        ),
    ],
)
def test_an_operand_is_read_as_it_lies(body: str, flags: tuple[bool, bool]) -> None:
    made, changed = turned("  %t = Transpose(%y, (0, 2, 1)) : float32[2,4,5] @b\n" + body + "  return %g\n")
    (product,) = made
    assert (changed, product.op.name) == (1, "BatchMatMul")
    assert tuple(product.operand(i).literal for i in (2, 3)) == flags
    assert product.primal == {"forward_unique_id": product.primal["forward_unique_id"]}


def test_a_result_that_only_a_transposition_takes_is_computed_transposed() -> None:
    result = "  %g = BatchMatMul(%x, %y, false, true) : float32[2,3,5] @b\n"
    back = "  %t = Transpose(%g, (0, 2, 1)) : float32[2,5,3] @b\n"
    made, changed = turned(result + back + "  return %t\n")
    (product,) = made
    assert (changed, [v.name for v in product.operands[:2]], str(product.type)) == (1, ["y", "x"], "float32[2,5,3]")
    both = "  %h = Neg(%g) @b\n  %u = Transpose(%h, (0, 2, 1)) : float32[2,5,3] @b\n  %s = Add(%t, %u) @b\n"
    made, changed = turned(result + back + both + "  return %s\n")
    assert (changed, primitives(made).count("Transpose")) == (0, 2)


def test_two_dimensions_are_a_plain_product() -> None:
    made = graph(
        "graph @step(%x: float32[3,4], %y: float32[5,4]) {\n  %t = Transpose(%y, (1, 0)) : float32[4,5] @b\n"
        "  %g = MatMulExt(%x, %t) : float32[3,5] @b\n  return %g\n}"
    )
    assert read_as_they_lie(made, network_parts(made)) == 1
    assert primitives(made) == ["MatMul"]


@pytest.mark.parametrize(
    "body",
    [
        # The forward part computes what it computed.
        "%t = Transpose(%y, (0, 2, 1)) : float32[2,4,5] @f\n  %g = MatMulExt(%x, %t) : float32[2,3,5] @f\n",
        # Other axes move.
        "%t = Transpose(%x, (1, 0, 2)) : float32[3,2,4] @b\n  %g = MatMulExt(%t, %t) : float32[3,2,4] @b\n",
        # The product is no product of equal stacks.
        "%t = Transpose(%y, (0, 2, 1)) : float32[2,4,5] @b\n  %r = Reshape(%z, (1, 6, 4)) : float32[1,6,4] @b\n"
        "  %g = MatMulExt(%r, %t) : float32[2,6,5] @b\n",
    ],
)
def test_what_it_leaves(body: str) -> None:
    made = graph(HEAD + "  " + body + "  return %g\n}")
    before = primitives(made)
    assert read_as_they_lie(made, network_parts(made)) == 0
    assert primitives(made) == before


def test_what_others_take_stays() -> None:
    made, changed = turned(
        "  %t = Transpose(%y, (0, 2, 1)) : float32[2,4,5] @f\n  %g = MatMulExt(%x, %t) : float32[2,3,5] @b\n"
        "  %s = ReduceSum(%t, (1,), true, false) : float32[2,1,5] @b\n  %h = Add(%g, %s) : float32[2,3,5] @b\n"
        "  return %h\n"
    )
    assert (changed, primitives(made)) == (1, ["Transpose", "BatchMatMul", "ReduceSum", "Add"])
