"""A convolution and its two gradients take the same operations, whichever way round their operands stand."""

from __future__ import annotations

import pytest
from boost_compile.ir.analysis.cost.flops import estimated_flops, flops_by_type
from boost_compile.ir.text import parse_program

X, W, Y = "float32[2,3,6,6,6]", "float32[4,3,2,2,2]", "float32[2,4,5,5,5]"
PRODUCTS = 2 * (2 * 4 * 5**3) * (3 * 2**3)
"""A multiplication and an addition for each element of the result and each element of a filter."""


@pytest.mark.parametrize(
    "node",
    [
        f"Conv3D(%x, %w) : {Y}",
        f"Conv3DBackpropInput(%w, %y, (2, 3, 6, 6, 6)) : {X}",
        f"Conv3DTranspose(%y, %w) : {X}",
        f"Conv3DBackpropFilter(%x, %y, (4, 3, 2, 2, 2)) : {W}",
        f"Conv2DBackpropInput(%y, %w, (2, 3, 6, 6, 6)) : {X}",
        f"Conv2DBackpropFilter(%y, %x, (4, 3, 2, 2, 2)) : {W}",
        f"Conv3DExt(%x, %w, none, (1, 1, 1), (0, 0, 0), (1, 1, 1), 1) : {Y}",
    ],
)
def test_a_convolution_costs_as_much_as_its_gradients(node: str) -> None:
    [graph] = parse_program(f"graph @g(%x: {X}, %w: {W}, %y: {Y}) {{\n%r = {node}\nreturn %r\n}}").graphs.values()
    assert estimated_flops(graph) == PRODUCTS


@pytest.mark.parametrize(
    ("node", "products"),
    [
        ("MatMul(%a, %b, false, false)", 2 * 5 * 7 * 3),
        ("Mm(%a, %b)", 2 * 5 * 7 * 3),
        ("Addmm(%c, %a, %b, 1.0, 1.0)", 2 * 5 * 7 * 3),
        ("Dense(%a, %d, none)", 2 * 5 * 7 * 3),
        ("Add(%c, %c)", 35),
    ],
)
def test_products_count_what_they_multiply(node: str, products: int) -> None:
    inputs = "%a: float32[5,3], %b: float32[3,7], %c: float32[5,7], %d: float32[7,3]"
    [graph] = parse_program(f"graph @g({inputs}) {{\n%r = {node} : float32[5,7]\nreturn %r\n}}").graphs.values()
    assert estimated_flops(graph) == products


def test_operations_by_the_type_that_a_node_computes_in() -> None:
    program = parse_program(
        """graph @step(%x: float16[2,3], %i: int32[2]) -> (y) {
  %p = MatMul(%x, %x, false, true) : float16[2,2]
  %wide = Cast(%p, 43) : float32[2,2]
  %y = Exp(%wide) : float32[2,2]
  %j = Neg(%i) : int32[2]
  return %y
}"""
    )
    (graph,) = program.graphs.values()
    assert flops_by_type(graph) == {"float16": 2 * 4 * 3 + 4, "float32": 4, "int32": 2}
    assert sum(flops_by_type(graph).values()) == estimated_flops(graph)
