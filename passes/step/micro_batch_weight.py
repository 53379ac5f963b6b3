"""The weight of a micro-batch in the mean of its cycle: a value of the graph that the user names."""

from __future__ import annotations

from collections.abc import Sequence

from ...ir.analysis.training.anatomy import TrainingAnatomy
from ...ir.analysis.training.network import BACKWARD, FORWARD
from ...ir.builders.cast import cast
from ...ir.core.attributes import scalar_tensor
from ...ir.core.errors import PassError, nearest
from ...ir.core.graph import Graph, Input, Node, Value, tensor_type
from ...ir.core.sites import site
from ...ir.core.types import DType, TensorType
from .split import split_outputs


def find_weight(anatomy: TrainingAnatomy, name: str) -> Value:
    """The input, output or forward node called ``name``; :class:`PassError` where there is none, or where it is nothing
    that a micro-batch can weigh."""
    graph = anatomy.graph
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
