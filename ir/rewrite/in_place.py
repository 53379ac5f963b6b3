"""In-place operations on computed tensors (``g *= scale``, ``m += x``): what they compute, and graphs without them.

MindSpore keeps ``x += y`` as a write into the memory of x. That is exact in the forward part, whose backward part was
derived from it, and hides from passes what happens to a gradient. In the update side it becomes the same operation
with a result of its own (:func:`without_writes`).

A constant is worse off: MindSpore 2.10 writes into the constant itself, so the next step, and whoever shares the
constant, starts from what the last one left. Such a write gets a copy of its own (:func:`copy_constants`).
"""

from __future__ import annotations

from collections.abc import Collection

from ..analysis.effects.state_access import Summary, place
from ..analysis.effects.tokens import orders_only
from ..builders.cast import cast
from ..core.graph import Constant, Graph, Input, Node, Value
from ..core.op import CALL
from ..core.predicates import is_effect, may_act, written_operands
from ..core.primitives import PRIMITIVES
from ..core.types import TensorType, is_monad
from .effects.editing import Effects

PURE = {name: facts.pure for name, facts in PRIMITIVES.items() if facts.any_tensor and facts.pure}
"""The primitive that computes what an in-place one writes, from the same operands."""


def written_constants(graph: Graph) -> list[tuple[Node, int]]:
    """The effects of a graph that write into a constant, and the operand that is one."""
    return [
        (node, i)
        for node in graph
        if not node.op.deals_in_tokens and may_act(node) and is_effect(node) and node.op is not CALL
        for i in written_operands(node)
        if isinstance(node.operand(i), Constant)
    ]


def copy_constants(graph: Graph) -> int:
    """Gives writes into a constant, and who reads it afterwards, a copy, in this graph alone; returns how many."""
    found = written_constants(graph)
    if not found:
        return 0
    copies: dict[Value, Node] = {}
    order = {e.node: k for k, e in enumerate(Effects(graph).list)}
    for node, i in sorted(found, key=lambda use: order.get(use[0], -1)):
        constant = node.operand(i)
        if constant not in copies:
            with graph.inserting_before(node):
                copies[constant] = graph.create("TensorMove", [constant], scope=node.scope, sources=[node])
            for user, at in constant.use_sites():
                if user.op.name == "Load" and order.get(user, -1) > order.get(node, -1):
                    user.set_operand(at, copies[constant])
        node.set_operand(i, copies[constant])
    Effects(graph).commit()
    return len(found)


def replaceable_writes(graph: Graph, network: Collection[Node]) -> list[Node]:
    """The operations that :func:`without_writes` replaces. ``network``: the forward and backward nodes."""
    return [write for writes in _chains(graph, network).values() for write in writes]


def without_writes(graph: Graph, network: Collection[Node], known: dict[str, Summary] | None = None) -> int:
    """Gives in-place operations of the update side on computed tensors a result of their own; returns how many."""
    return _replace(graph, _chains(graph, network), known)


def forward_without_writes(graph: Graph, forward: Collection[Node]) -> int:
    """The same for those of ``forward`` on tensors that nobody takes but by a Load; returns how many."""
    found = _chains(graph, {node for node in graph if node not in forward})
    chains = {root: writes for root, writes in found.items() if _read_by_loads(root, ())}
    for root in chains:
        if isinstance(root.type, TensorType):
            root.type = TensorType(root.type.dtype, root.type.shape)
    return _replace(graph, chains, None)


def _replace(graph: Graph, chains: dict[Node, list[Node]], known: dict[str, Summary] | None) -> int:
    if not chains:
        return 0
    fx = Effects(graph, known)
    replaced = {write for writes in chains.values() for write in writes}
    value_of: dict[Node, Value] = {}
    gone = []
    root_of = {e.node: place(e.node.operand(0)) for e in fx.list if e.node.num_operands}
    for effect in fx.list:
        node = effect.node
        root = root_of.get(node)
        if not isinstance(root, Node) or root not in chains:
            continue
        if node in replaced:
            pure = _pure(graph, node, value_of.get(root, root))
            value_of[root] = pure
            gone.append(effect)
            for user, i in node.use_sites():
                if not orders_only(user, i):
                    user.set_operand(i, pure)
        elif node.op.name == "Load":
            value = value_of.get(root, root)
            for user, i in node.use_sites():
                if user.op.name != "UpdateState":
                    user.set_operand(i, value)
    assert len(gone) == len(replaced)
    fx.drop(gone)
    fx.commit()
    return len(replaced)


def _chains(graph: Graph, network: Collection[Node]) -> dict[Node, list[Node]]:
    """By the node that made a tensor: the writes to it, where all of them can be replaced."""
    chains: dict[Node, list[Node]] = {}
    kept: set[Node] = set()
    for node in graph:
        if not is_effect(node) or node.op is CALL:
            continue
        for i in written_operands(node):
            root = place(node.operand(i))
            if isinstance(root, Node):
                chains.setdefault(root, []).append(node)
                if node.op.name not in PURE or node in network or i != 0 or root.op.name == "Load":
                    kept.add(root)
    return {root: writes for root, writes in chains.items() if root not in kept and _read_by_loads(root, network)}


def _read_by_loads(root: Node, network: Collection[Node]) -> bool:
    """Whether all who take a written tensor on the update side say when: by a Load with a token, or as an effect. (The
    forward and backward parts took what they take before.)"""
    for user, i in root.use_sites():
        if not (user in network or user.op.name == "Load" or is_effect(user) or orders_only(user, i)):
            return False
    return root.graph is None or root.graph.result is not root


def _pure(graph: Graph, write: Node, value: Value) -> Node:
    """The result of an in-place operation, as a value."""
    type_ = write.type
    assert isinstance(type_, TensorType)
    own = TensorType(type_.dtype, type_.shape)
    operands = [value]
    with graph.inserting_before(write):
        for operand in write.operands[1:]:
            if is_monad(operand.type):
                continue
            if isinstance(operand.type, TensorType) and isinstance(operand, (Node, Input, Constant)):
                operand = cast(graph, operand, own.dtype, scope=write.scope)
            operands.append(operand)
        return graph.create(PURE[write.op.name], operands, own, scope=write.scope, sources=[write])
