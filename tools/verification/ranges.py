"""Which integers an input takes, as told by those who take it: rows of a table, classes of a loss."""

from __future__ import annotations

from collections.abc import Iterator

from ...ir.core.attributes import scalar_of
from ...ir.core.graph import Graph, GraphRef, Input, Node, Value
from ...ir.core.op import CALL
from ...ir.core.primitives import Family, named
from ...ir.core.types import TensorType
from ...ir.core.walk import walk

_PASSING = named(
    *(Family.COPY, Family.CAST, Family.RESHAPE, Family.TRANSPOSE, Family.SLICE, Family.REPEAT, Family.JOIN),
    Family.TUPLE,
) | {"Load", "Depend", "Select", "MaskedFill", "ReshapeExt"}
_ROWS = {
    "Gather": (1, 0, 2), "SparseGatherV2": (1, 0, 2), "GatherV2": (1, 0, 2), "EmbeddingLookup": (1, 0, None),
    "Embedding": (0, 1, None), "GatherD": (2, 0, 1), "IndexSelect": (2, 0, 1), "Take": (1, 0, 2),
}  # fmt: skip
"""Operands: indices, what they index, the axis (None: the first)."""
_CLASSES = {
    "SparseSoftmaxCrossEntropyWithLogits": (1, 0, -1), "NLLLoss": (1, 0, 1), "NLLLossExt": (1, 0, 1),
    "CTCLoss": (2, 0, -1), "CTCLossV2": (1, 0, -1),
}  # fmt: skip
"""Operands: labels, logits, the axis of classes."""


def upper_bound(graph: Graph, value: Input) -> int | None:
    """The least number that the input's integers must stay below; None where nobody says."""
    bounds: list[int] = []

    def passed_on(here: Value) -> Iterator[Value]:
        for user, i in here.use_sites():
            bound = _bound(user, i)
            if bound is not None:
                bounds.append(bound)
            elif user.op.name in _PASSING and not (user.op.name == "Depend" and i == 1):
                yield user
            elif user.op is CALL or user.op.name == "Partial":
                yield from _formals(user, i)

    start: Value = value
    for _ in walk([start], passed_on):
        pass
    return min(bounds, default=None)


def _formals(user: Node, i: int) -> list[Value]:
    """The function input that an operand of a call or Partial becomes, where the function is named."""
    target = user.operand(0)
    return [target.graph.inputs[i - 1]] if isinstance(target, GraphRef) and 0 < i <= len(target.graph.inputs) else []


def _bound(user: Node, i: int) -> int | None:
    name = user.op.name
    if name == "OneHot" and i == 0:
        return _integer(user.operand(1).literal) or _integer(user.attributes.get("depth"))
    for table in (_ROWS, _CLASSES):
        at = table.get(name)
        if at is not None and at[0] == i:
            indexed = user.operand(at[1]).type
            axis = at[2] if table is _CLASSES else 0 if at[2] is None else _integer(user.operand(at[2]).literal)
            if not isinstance(indexed, TensorType) or axis is None or not indexed.shape:
                return None
            size = indexed.shape[axis]
            # The last class of a connectionist loss is the blank.
            return None if size < 1 else size - 1 if name.startswith("CTC") else size
    return None


def _integer(literal: object) -> int | None:
    number = scalar_of(literal)
    return None if number is None else int(number)
