"""The weight of a micro-batch in the mean of its cycle: the sum of a value of the graph, by name, or the number of its
elements (``elements:NAME``)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ...ir.analysis.batch.joins import ELEMENTS
from ...ir.analysis.batch.kinds import number_of
from ...ir.analysis.training.anatomy import TrainingAnatomy
from ...ir.analysis.training.network import BACKWARD, FORWARD
from ...ir.builders.cast import cast
from ...ir.core.attributes import TensorValue, scalar_tensor
from ...ir.core.data import to_numpy
from ...ir.core.errors import PassError, nearest
from ...ir.core.graph import Constant, Graph, Input, Node, Value, tensor_type
from ...ir.core.primitives import Family, named
from ...ir.core.sites import site
from ...ir.core.types import DType, TensorType
from ...ir.core.walk import walk
from .split import split_outputs


def find_weight(anatomy: TrainingAnatomy, name: str) -> Value:
    """The input, output or forward node called ``name``; :class:`PassError` where there is none, or where it is nothing
    that a micro-batch can weigh."""
    graph = anatomy.graph
    _, elements, inner = name.rpartition(ELEMENTS)
    if elements:
        counted = find_weight(anatomy, inner)
        return graph.create("OnesLike", [counted], sources=[counted])
    candidates: dict[str, Value] = {}
    for node in graph:
        if anatomy.part(node) == FORWARD:
            candidates[node.name] = node
            candidates.setdefault(node.name.rpartition(":")[0] or node.name, node)
    candidates.update(split_outputs(anatomy).network)
    candidates.update((v.name, v) for v in graph.inputs)
    found = candidates.get(name)
    if found is None:
        inputs = ", ".join(v.name for v in graph.inputs)
        raise PassError(
            f"weight={name}: graph '{graph.name}' has no input, output or forward node of that name"
            f"{nearest(name, list(candidates))}. Inputs are {inputs}; `boost-compile --emit text` shows the nodes."
        )
    if not isinstance(found, (Input, Node)) or (isinstance(found, Node) and anatomy.part(found) == BACKWARD):
        raise PassError(f"weight={name}: {site(found)} does not depend on the micro-batch, so it weighs nothing")
    if not isinstance(found.type, TensorType) or not (found.type.dtype.is_float or _counts(found.type.dtype)):
        raise PassError(f"weight={name}: {site(found)} holds no numbers that can be summed")
    return found


def refuse_no_count(weight: Value, name: str) -> None:
    """PassError for a weight that can be negative, as no number of samples is, or whose integers say which class."""
    if isinstance(weight.type, TensorType) and "int" in weight.type.dtype.value and _says_which(weight):
        raise PassError(
            f"weight={name}: {site(weight)} holds labels or indices, not how much a micro-batch counts. With the "
            "default reduction=auto the count is found in the graph"
        )
    negative = next(iter(_negative(weight)), None)
    if negative is not None:
        raise PassError(
            f"weight={name}: {site(negative)} can be negative, and a micro-batch cannot count less than nothing: name "
            "a mask or a number of samples, or leave it to the default reduction=auto"
        )


_KEEPS = named(Family.COPY, Family.CAST, Family.RESHAPE, Family.TRANSPOSE, Family.SLICE, Family.REPEAT, Family.JOIN)
_POSITIVE = frozenset({
    "Abs", "Square", "Exp", "Sigmoid", "ReLU", "ReLU6", "Softmax", "OnesLike", "ZerosLike", "OneHot", "Sqrt",
    "SparseSoftmaxCrossEntropyWithLogits",
})  # fmt: skip
_OF_ALL = (
    _KEEPS | named(Family.SUM, Family.PRODUCT, Family.QUOTIENT, Family.TOTAL, Family.MEAN, Family.EXTREME, Family.TUPLE)
    | {"Load", "Depend", "Minimum", "Maximum", "DivNoNan"}
)  # fmt: skip
"""Primitives whose result is negative only where an operand is."""
_OF_SOME = {"Gather": (0,), "GatherD": (0,), "Select": (1, 2), "MaskedFill": (0, 2), "MaskedSelect": (0,)}
_INDEXED = {
    "Gather": 1, "GatherD": 2, "OneHot": 0, "EmbeddingLookup": 1, "NLLLoss": 1,
    "SparseSoftmaxCrossEntropyWithLogits": 1,
}  # fmt: skip


def _negative(weight: Value) -> Iterator[Value]:
    """The values behind a weight that can be negative; an input of floats is taken for a mask."""

    def sources(value: Value) -> list[Value]:
        if not isinstance(value, Node) or _is_bool(value) or value.op.name in _POSITIVE:
            return []
        if value.op.name in _OF_SOME:
            return [value.operand(i) for i in _OF_SOME[value.op.name]]
        return list(value.operands) if value.op.name in _OF_ALL else []

    for value in walk([weight], sources):
        if isinstance(value, Constant):
            if isinstance(value.value, TensorValue) and bool((to_numpy(value.value.type, value.value.data) < 0).any()):
                yield value
        elif isinstance(value, Node) and not _is_bool(value) and not sources(value) and value.op.name not in _POSITIVE:
            yield value


def _says_which(value: Value) -> bool:
    """Whether integers name a class or a place somewhere in the graph, or one of them is told by a negative number."""

    def made(v: Value) -> list[Node]:
        passes = _KEEPS | named(Family.CHOICE) | {"MaskedFill"}
        return [u for u in v.uses if isinstance(u, Node) and u.op.name in passes]

    for v in walk([value], made):
        for user, i in v.use_sites():
            if _INDEXED.get(user.op.name) == i:
                return True
            if user.op.name in ("Equal", "NotEqual") and any(
                isinstance(o, Constant) and (number_of(o) or 0) < 0 for o in user.operands
            ):
                return True
    return False


def _is_bool(value: Value) -> bool:
    return isinstance(value.type, TensorType) and value.type.dtype is DType.BOOL


def _counts(dtype: DType) -> bool:
    return dtype is DType.BOOL or "int" in dtype.value


def weighted_term(graph: Graph, term: Value, weight: Value, *, scope: str, sources: Sequence[Value] = ()) -> Node:
    """A micro-batch's summand times its weight, a scalar float32. One of weight zero has no mean (0/0): it adds
    nothing."""
    factor = cast(graph, weight, tensor_type(term).dtype, scope=scope)
    scaled = graph.create("Mul", [term, factor], scope=scope, sources=sources)
    counts = graph.create("NotEqual", [weight, graph.constant(scalar_tensor("float32", 0.0))], scope=scope)
    nothing = graph.create("ZerosLike", [scaled], scope=scope)
    return graph.create("Select", [counts, scaled, nothing], scope=scope, sources=sources)
