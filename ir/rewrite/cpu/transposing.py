"""On CPU: a transposition that keeps rows whole is a Gather of rows.

Transpose keeps a list with the place of each element, for as long as the graph exists, and moves them one by one. Where
the last axes stay last, as where the heads of an attention change places with its positions, rows move: their numbers
are a small constant, and a row is one copy of memory. The bits are the same (docs/memory.md).
"""

from __future__ import annotations

from dataclasses import replace
from math import prod

from ...builders.nodes import Nodes
from ...core.attributes import TensorValue
from ...core.data import from_numpy
from ...core.graph import Graph, Node
from ...core.primitives import CPU, Family, facts
from ...core.types import DType, TensorType
from ...core.wording import counted
from .target import Target

SMALLEST = 1 << 16
"""Elements of a result below which their places take less than a megabyte."""
_ROW = 16
"""Elements of the shortest row that is worth a copy of its own."""


def applies(graph: Graph, context: Target) -> bool:
    return context.target == CPU and any(moves_rows(n) for part in graph.all_graphs() for n in part)


def moves_rows(node: Node) -> bool:
    """Whether a node is a big transposition that keeps rows whole, which the lowering changes."""
    kind, source = node.type, node.operand(0).type if node.num_operands else None
    if facts(node.op).family is not Family.TRANSPOSE or facts(node.op).view or not isinstance(source, TensorType):
        return False
    if not isinstance(kind, TensorType) or not source.is_static or source.size < SMALLEST:
        return False
    if kind.dtype not in (DType.FLOAT16, DType.FLOAT32):
        return False
    axes = _axes(node)
    return axes is not None and prod(source.shape[_moved(axes)[1] :]) >= _ROW


def run(graph: Graph, context: Target) -> str:
    found = [(part, node) for part in graph.all_graphs() for node in part if moves_rows(node)]
    for part, node in found:
        _gather(part, node)
    return f"{counted(len(found), 'transposition')} by rows"


def _axes(node: Node) -> tuple[int, ...] | None:
    """The axes of the operand in the order of the result; None where they are not known, or all stay."""
    given = node.operand(1).literal if node.num_operands > 1 else None
    if not isinstance(given, tuple) or not all(isinstance(axis, int) for axis in given):
        return None
    axes = tuple(axis % len(given) for axis in given)
    return None if axes == tuple(range(len(axes))) else axes


def _moved(axes: tuple[int, ...]) -> tuple[int, int]:
    """The first axis that moves, and the one behind the last."""
    moved = [place for place, axis in enumerate(axes) if place != axis]
    return moved[0], moved[-1] + 1


def _gather(graph: Graph, node: Node) -> None:
    source, axes = node.operand(0), _axes(node)
    assert isinstance(source.type, TensorType)
    assert isinstance(node.type, TensorType)
    assert axes is not None
    import numpy as np

    shape = source.type.shape
    first, end = _moved(axes)
    places = np.arange(prod(shape[first:end]), dtype=np.int32).reshape(shape[first:end])
    table = TensorValue(*from_numpy(places.transpose([axis - first for axis in axes[first:end]]).reshape(-1)))
    rows = (prod(shape[:first]), places.size, prod(shape[end:]))
    with graph.inserting_before(node):
        nodes = Nodes(graph, node.scope)
        flat = nodes.reshape(source, *rows)
        operands = [flat, *(graph.constant(value) for value in (table, 1, 0))]
        kind = replace(node.type, shape=rows)
        moved = graph.create("Gather", operands, kind, scope=node.scope, sources=[node])
        graph.substitute(node, nodes.reshape(moved, *node.type.shape))
