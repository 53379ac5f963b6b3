"""Convolutions that are more than a product of matrices. MindSpore 2.9 and 2.10 are slow at them with AVX-512, so a
session gives it up for them (docs/compatibility.md), and with it kernels of products take other times."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from ..core.graph import Graph, Node
from ..core.primitives import Family, named
from ..core.types import TensorType


def convolves(graph: Graph) -> bool:
    """Whether a graph holds one: forward or to the input. Gradients of weights are products to it."""
    kinds = named(Family.CONVOLUTION, Family.TRANSPOSED_CONVOLUTION)
    return any(node.op.name in kinds and node.num_operands > 1 and not _is_product(node) for node in graph.all_nodes())


def _is_product(node: Node) -> bool:
    """Whether oneDNN takes a convolution for a product: one point, of every pixel, without edges and groups."""
    filters = node.operand(1).type
    if not isinstance(filters, TensorType) or any(size != 1 for size in filters.shape[2:]):
        return False
    ones = ("stride", "strides", "group", "groups")
    edges = ("pad", "pad_list")
    return all(n == 1 for n in _numbers(node, ones, 1)) and not any(_numbers(node, edges, 0))


def _numbers(node: Node, names: Iterable[str], default: int) -> Iterator[Any]:
    for name in names:
        value = node.attributes.get(name, default)
        yield from value if isinstance(value, tuple) else (value,)
