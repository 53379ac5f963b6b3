"""A forward graph as it predicts: normalised by its statistics, without dropout, and writing nothing."""

from __future__ import annotations

from collections.abc import Collection

from ...analysis.effects.state_access import Effect, location
from ...analysis.functions.calls import callees_first
from ...analysis.training.network import BACKWARD, FORWARD, network_parts
from ...core.errors import PassError
from ...core.graph import Graph, Input, Node, State, Value
from ...core.op import Op
from ...core.predicates import is_effect, is_random
from ...core.primitives import Family, facts, make_op
from ...core.sites import site
from ...core.types import TensorType
from ..effects.editing import Effects
from .forward import ancestors

_MASKED = frozenset({"DropoutDoMask", "DropoutDoMaskExt"})
"""The second half of dropouts whose mask is drawn by another node."""
_SUMS = ("AssignAdd", "AssignSub")


def rest(main: Graph, outputs: Node) -> None:
    """Makes a graph and its functions predict. ``outputs`` is a tuple of what ``main`` is to return from now on (the
    value itself where there is one).

    BatchNorms take their statistics as they are. Dropouts pass on what they get. State is not written: what is written
    and then read is passed on directly. PassError where that cannot be done.
    """
    parts = network_parts(main)
    updates = {n for n in main if parts.get(n) != FORWARD} if BACKWARD in parts.values() else set()
    for graph in main.all_graphs():
        _drop_dropout(graph)
    for function in callees_first(main):
        if any(_learns(node) for node in function):
            fx = Effects(function)
            _rest_norms(function, fx)
            fx.commit()
    fx = Effects(main)
    _rest_norms(main, fx)
    _write_nothing(fx, outputs, updates)
    fx.commit(outputs if outputs.num_operands > 1 else outputs.operand(0))


def draws(main: Graph) -> list[Node]:
    """Nodes that still draw at random."""
    return [node for node in main.all_nodes() if is_random(node)]


def _drop_dropout(graph: Graph) -> None:
    for node in list(graph):
        if node.op.name in _MASKED:
            node.replace_uses(node.operand(0))
        elif facts(node.op).family is Family.DROPOUT:
            if isinstance(node.type, TensorType):
                node.replace_uses(node.operand(0))
                continue
            for user in list(node.uses):
                if user.op.name == "TupleGetItem" and user.operand(1).literal == 0:
                    user.replace_uses(node.operand(0))


def _learns(node: Node) -> bool:
    """Whether a node normalises by the statistics of the batch."""
    at = facts(node.op).training
    if at is None or at >= node.num_operands:
        return node.op.name == "SyncBatchNorm"
    return node.operand(at).literal is not False


def _rest_norms(graph: Graph, fx: Effects) -> None:
    for node in [n for n in graph if _learns(n)]:
        if node.op.name == "SyncBatchNorm":
            attributes = node.op.attributes
            values = [False, attributes.get("epsilon", 1e-5), attributes.get("momentum", 0.1), 0]
            _put(graph, fx, node, "BatchNorm", [*node.operands[:5], *map(graph.constant, values)])
        else:  # the form that an export in inference mode gives it: no token, and every state read by a Load
            operands = list(node.operands[:-1] if is_effect(node) else node.operands)
            operands[facts(node.op).training or 0] = graph.constant(False)
            _put(graph, fx, node, node.op.name, operands)


def _put(graph: Graph, fx: Effects, node: Node, name: str, operands: list[Value]) -> None:
    with graph.inserting_before(node):
        read = [_read(fx, v, node.scope) for v in operands]
        made = graph.create(Op(name, {}, kind=make_op(name).kind), read, node.type, scope=node.scope, sources=[node])
    fx.drop([e for e in fx.list if e.node is node])
    node.replace_uses(made)


def _read(fx: Effects, value: Value, scope: str) -> Value:
    if isinstance(value, State) or (isinstance(value, Input) and isinstance(value.type, TensorType) and value.type.ref):
        return fx.load(value, scope=scope)
    return value


# -- state that the forward part writes -----------------------------------------------------------------------------


def _write_nothing(fx: Effects, outputs: Node, updates: Collection[Node]) -> None:
    """Drops what the outputs do not need; passes on what is written and then read, but for what ``updates`` write."""
    current: dict[Value, Value] = {}
    gone: list[Effect] = []
    for effect in sorted(fx.list, key=lambda e: not e.initial):  # new Loads stand last, and happen first
        node = effect.node
        if node.op.name == "Load":
            where = location(node.operand(0))
            if where in current:
                node.replace_uses(current[where])
        elif node.op.name in ("Assign", *_SUMS) and isinstance(node.operand(0), State) and node not in updates:
            _pass_on(fx, node, current)
            gone.append(effect)
    needed = ancestors([outputs])
    for effect in fx.list:
        node = effect.node
        if effect.passive or effect in gone:
            continue
        if node not in needed:
            gone.append(effect)
            continue
        written = [v.name for v in effect.writes if isinstance(v, State)]
        touched = [v.name for v in effect.touched if v in current]
        if written or touched:
            raise PassError(
                f"the network cannot be evaluated without changing state '{(written or touched)[0]}': {site(node)} "
                f"{'writes it' if written else 'takes it after it was written'}, and the output depends on that"
            )
    fx.drop(gone)


def _pass_on(fx: Effects, node: Node, current: dict[Value, Value]) -> None:
    state, value = node.operands[:2]
    if node.op.name in _SUMS:
        with fx.graph.inserting_before(node):
            before = current.get(state) or fx.load(state, scope=node.scope)
            value = fx.graph.create(facts(node.op).pure, [before, value], scope=node.scope, sources=[node])
    current[state] = value
    for user, i in node.use_sites():
        if user.op.name != "UpdateState" and not (user.op.name == "Depend" and i == 1):
            user.set_operand(i, value)
