"""Overflow of one micro-batch by the device's own flag, for an Ascend that saturates: there an overflow leaves finite
numbers behind, so nothing can be seen in the gradients."""

from __future__ import annotations

from ...ir.analysis.training.network import BACKWARD, network_parts
from ...ir.builders.reduce import reduce_any
from ...ir.core.attributes import TensorValue
from ...ir.core.data import ZeroData
from ...ir.core.graph import Graph, Input, Node, Value
from ...ir.core.types import DType, TensorType, is_monad
from .crossings import crossings


def float_status(graph: Graph, loss: Value | None, *, scope: str) -> Value:
    """A scalar bool: whether the backward part overflowed.

    The flag is cleared after the loss and before backward begins, and read after all gradients, as
    ``nn.TrainOneStepWithLossScaleCell`` does; Depends say so. Where the graph returns no loss, it is cleared after the
    values that backward begins with.
    """
    type_ = TensorType(DType.INT32, (8,))
    empty: Value = graph.constant(TensorValue(type_, ZeroData(type_.nbytes)))

    def status(op: str, after: Value) -> Node:
        waiting = graph.create("Depend", [empty, after], scope=scope)
        return graph.create(op, [waiting], type_, scope=scope)

    gradients = dict.fromkeys(user.operand(i) for user, i in crossings(graph))
    parts = network_parts(graph)
    first: dict[Node, list[Node | Input]] = {}
    for node in graph:
        operands = [v for v in node.operands if isinstance(v, (Node, Input))] if parts.get(node) == BACKWARD else []
        if operands and not any(isinstance(v, Node) and parts.get(v) == BACKWARD for v in operands):
            first[node] = [v for v in operands if isinstance(v.type, TensorType)]
    if loss is None:
        begins = list(dict.fromkeys(v for operands in first.values() for v in operands))
        loss = graph.create("MakeTuple", begins, scope=scope)
    cleared = status("NPUClearFloatStatusV2", loss)
    for node in first:
        _wait(graph, node, cleared, scope)
    read = status("NPUGetFloatStatusV2", graph.create("MakeTuple", list(gradients), scope=scope))
    return reduce_any(graph, graph.create("NotEqual", [read, empty], scope=scope), scope=scope)


def _wait(graph: Graph, node: Node, cleared: Node, scope: str) -> None:
    """Where backward begins, a node runs after the flag was cleared."""
    for i, operand in enumerate(node.operands):
        if isinstance(operand, (Node, Input)) and not is_monad(operand.type):
            node.set_operand(i, graph.create("Depend", [operand, cleared], scope=scope, sources=[operand]))
            return
