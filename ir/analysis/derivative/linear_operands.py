"""In which operands a node is linear: the rule of its primitive (``ir/core/primitives/linear.py``), and attributes."""

from __future__ import annotations

from ...core.graph import Constant, Node
from ...core.primitives import facts
from ...core.types import TupleType

Alternatives = tuple[tuple[int, ...], ...]

SHAPE_ONLY = frozenset({
    "ZerosLike", "ZerosLikeExt", "OnesLike", "OnesLikeExt", "FullLike", "Shape", "TensorShape", "DynamicShape", "Rank",
    "Size", "DType", "DTypeId", "RandLikeExt", "RandnLike", "NewZeros", "NewOnes",
})  # fmt: skip
"""Primitives that look at the shape and the element type of their operands only; see :func:`sees_shape_only`."""

ZEROS = frozenset({"ZerosLike", "ZerosLikeExt", "Zeros", "NewZeros"})
FILLS = frozenset({"FillV2", "FillScalar", "FillTensor", "FullLike"})
"""Primitives whose result is operand 1 everywhere."""

HIDDEN = frozenset({"LSTMGradWeight", "GruGradWeight"})
"""They take derivatives from a workspace that another primitive left: no operand shows them."""


def sees_shape_only(node: Node, i: int) -> bool:
    """Whether a node looks at no element of operand ``i``. Of ShapeCalc, which computes sizes and axes, the exporter
    says it operand by operand."""
    if node.op.name in SHAPE_ONLY:
        return True
    said = node.op.attributes.get("only_depend_shape")
    return isinstance(said, (tuple, list)) and i < len(said) and said[i] is True


def linear_in(node: Node) -> Alternatives | None:
    """The alternatives of a node; None where its primitive is not known to be linear in anything."""
    name = node.op.name
    if name in ("AllReduce", "ReduceScatter") and node.op.attributes.get("op", "sum") not in ("sum", "avg"):
        return None
    if name in ("Scatter", "ScatterValue", "TensorScatterElements") and not _adds_or_replaces(node):
        return None
    if name in ("AddN", "Concat", "Stack") and not isinstance(node.operand(0).type, TupleType):
        return (tuple(range(node.num_operands)),)
    return facts(node.op).linear or None


def _adds_or_replaces(node: Node) -> bool:
    """Whether a scatter with a choice of reductions, its operand 4, does not multiply."""
    reduction = node.operand(4) if node.num_operands > 4 else None
    return isinstance(reduction, Constant) and reduction.value in (0, 1)
