"""On CPU: a graph in half precision with the casts that MindSpore 2.10 writes into it, for the estimate of memory.

A primitive without a kernel of half precision computes in float32. MindSpore casts each of its operands for each use,
but takes what another such primitive computed as it is. So values between them are float32, and a weight in half
precision is there once more for each use from the start of the step on. What takes half precision has a cast of its own
in front, behind Depends: until then the value is kept in float32. Found in the graphs that MindSpore dumps
(``hwopt_pm_3_insert_cast_cpu``).
"""

from __future__ import annotations

from dataclasses import replace

from ...analysis.cost.kernel_memory import PLACES_IN_HALF
from ...analysis.cost.running_order import is_kernel, running_order
from ...analysis.effects.tokens import orders_only
from ...builders.cast import cast
from ...core.graph import Graph, Node
from ...core.kernels import kernels
from ...core.op import CALL
from ...core.primitives import CPU
from ...core.types import DType, TensorType, TupleType, Type

_WRITTEN_OUT = PLACES_IN_HALF | {"SoftmaxBackward"}
"""Primitives that have kernels of half precision, or are written out by such."""


def with_casts(graph: Graph) -> Graph:
    """A graph in the order in which it runs: itself, or a copy with the casts. Linear, but for the order."""
    if not any(map(_lacks_kernel, graph.all_nodes())):
        return graph
    graph = graph.clone()[0]
    for part in graph.all_graphs():
        _cast(part)
        part.reorder(running_order(part))
    return graph


def _cast(graph: Graph) -> None:
    wide = dict.fromkeys(node for node in graph if _lacks_kernel(node))
    wide |= dict.fromkeys(item for node in wide for item in node.uses if item.op.name == "TupleGetItem")
    for node in graph:
        if node.op.name == "Depend" and node.operand(0) in wide:
            wide[node] = None
    for node in wide:
        with graph.inserting_before(node):
            for i, value in enumerate(node.operands):
                takes = isinstance(value, Node) and not orders_only(node, i)
                if takes and value not in wide and _is_half_tensor(value.type):
                    node.set_operand(i, cast(graph, value, DType.FLOAT32, scope=node.scope))
    for node in wide:
        type_, node.type = node.type, _widened(node.type)
        if isinstance(type_, TensorType) and _is_half_tensor(type_):
            for user, i in list(node.use_sites()):
                if user not in wide and not orders_only(user, i):
                    with graph.inserting_before(user):
                        user.set_operand(i, cast(graph, node, type_.dtype, scope=node.scope))


def _lacks_kernel(node: Node) -> bool:
    if (
        node.op is CALL
        or node.op.name in _WRITTEN_OUT
        or not is_kernel(node)
        or not any(_is_half(v.type) for v in (node, *node.operands))
    ):
        return False
    known = kernels(CPU).of(node.op.name)
    return not any(taken.dtype is DType.FLOAT16 for kernel in known for taken in kernel.inputs)


def _is_half(type_: Type) -> bool:
    return any(map(_is_half, type_.elements)) if isinstance(type_, TupleType) else _is_half_tensor(type_)


def _is_half_tensor(type_: Type) -> bool:
    return isinstance(type_, TensorType) and type_.dtype.widened is not type_.dtype


def _widened(type_: Type) -> Type:
    if isinstance(type_, TupleType):
        return replace(type_, elements=tuple(map(_widened, type_.elements)))
    return replace(type_, dtype=type_.dtype.widened) if isinstance(type_, TensorType) else type_
