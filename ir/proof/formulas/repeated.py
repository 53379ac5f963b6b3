"""The update of a weight, again for a state that a formula adds: by the same primitives, with slots of its own."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from ...analysis.effects.state_access import Effect
from ...analysis.effects.tokens import orders_only
from ...analysis.training.anatomy import TrainingAnatomy
from ...analysis.training.network import network_parts
from ...analysis.training.weights import WeightInfo
from ...core.data import Data, ZeroData, from_numpy
from ...core.graph import Node, Value
from ...core.op import CALL
from ...core.program import Program, StateVariable
from ...core.sites import site
from ...core.types import TensorType, TupleType, Type
from ...rewrite.effects.editing import Effects
from ...symbolic.execution import Unproved


@dataclass(frozen=True)
class Repeated:
    """``name``, a state, is to be updated from its ``gradients`` as the weight ``of`` is from those in whose place they
    stand."""

    of: WeightInfo
    name: str
    gradients: Mapping[Node, Node]


def update_as(base: Program, found: TrainingAnatomy, new: Sequence[Repeated], fx: Effects) -> None:
    """Updates states as the graph updates weights, with slots of their own. Linear in the graph and in what is made."""
    graph = found.graph
    parts, order = network_parts(graph), {node: i for i, node in enumerate(graph)}
    effects = {effect.node: effect for effect in fx.list}
    alone = _gradients_behind(found, parts)
    behind: dict[Node, list[Effect]] = {}

    def again(node: Node, twins: Mapping[Value, Value], type_: Type) -> Node:
        """A node on what stands in the place of its operands; an effect right behind the one that it repeats."""
        operands = [twins.get(v, v) for v in node.operands]
        if node.op.name == "Load":
            made = fx.load(operands[0], initial=effects[node].initial)
        elif node in effects:
            with graph.inserting_after(node):
                made = graph.create(node.op, [*operands[:-1], fx.first_token()], type_)
            fx.adopt(made)
        else:
            with graph.inserting_after(node):
                return graph.create(node.op, operands, type_)
        behind.setdefault(node, []).append(fx.list.pop())
        return made

    for one in new:
        info, weight, like = one.of, base.state[one.of.name], base.state[one.name]
        names = {info.name: one.name, **{slot: _slot_of(slot, info.name, one.name) for slot in info.slots}}
        for slot in info.slots:
            variable = base.state[slot]
            type_ = _type(variable.type, weight, like, names)
            assert isinstance(type_, TensorType)
            base.add_state(names[slot], type_, "slot", _begins(variable, weight, like, type_), one.name)
        twins: dict[Value, Value] = {graph.states[n]: graph.state(m, base.state[m].type) for n, m in names.items()}
        twins.update(one.gradients.items())
        for load in [u for state in list(twins) for u in state.users if u.op.name == "Load" and u in parts]:
            twins[load] = again(load, twins, _type(load.type, weight, like, names))
        for node in sorted(_update_of(twins, parts), key=order.__getitem__):
            if node.op.name == "Depend":
                twins[node] = twins.get(node.operand(0), node.operand(0))
            elif info.name not in alone.get(node, {info.name}) or node.op is CALL or node.op.name == "Partial":
                raise Unproved(
                    f"{site(node)} takes the gradient of weight '{info.name}' together with others: law missing"
                )
            else:
                twins[node] = again(node, twins, _type(node.type, weight, like, names))
    fx.list = [one for effect in fx.list for one in (effect, *behind.get(effect.node, ()))]


def _update_of(start: Collection[Value], parts: Collection[Node]) -> set[Node]:
    """What is computed from values, and no part of forward and backward; without what only waits."""
    found: set[Node] = set()
    stack = list(start)
    while stack:
        for user, i in stack.pop().use_sites():
            if user in found or user in parts or orders_only(user, i):
                continue
            if user.op.name in ("UpdateState", "MakeTuple") and all(orders_only(u, k) for u, k in user.use_sites()):
                continue
            found.add(user)
            stack.append(user)
    return found


def _gradients_behind(found: TrainingAnatomy, parts: Collection[Node]) -> dict[Node, frozenset[str]]:
    """Of each node that is computed from gradients on the update side, the weights that all of these belong to."""
    own: dict[Node, frozenset[str]] = {}
    for info in found.weights:
        for gradient in info.gradient:
            own[gradient] = own.get(gradient, frozenset()) | {info.name}
    common = dict(own)
    for node in found.graph:
        taken = [common[v] for i, v in enumerate(node.operands) if isinstance(v, Node) and v in common
                 and not orders_only(node, i)]  # fmt: skip
        if taken and node not in parts:
            common[node] = frozenset.intersection(*taken)
    return {node: names for node, names in common.items() if node not in own}


def _slot_of(slot: str, weight: str, name: str) -> str:
    """The slot that is to the new state what ``slot`` is to the weight."""
    return slot.removesuffix(weight) + name if slot.endswith(weight) else f"{slot}.{name}"


def _type(type_: Type, weight: StateVariable, like: StateVariable, names: Mapping[str, str]) -> Type:
    """A type of the weight's update, as it is in that of the new state."""
    if isinstance(type_, TupleType):
        return TupleType(tuple(_type(t, weight, like, names) for t in type_.elements), type_.is_list, type_.dynamic)
    if not isinstance(type_, TensorType):
        return type_
    shape = like.shape if type_.shape == weight.shape else type_.shape
    return TensorType(type_.dtype, shape, names.get(type_.ref, type_.ref))


def _begins(slot: StateVariable, weight: StateVariable, like: StateVariable, type_: TensorType) -> Data:
    """What a slot begins with: the number that fills the weight's, or a copy of the new state."""
    import numpy as np

    array = slot.initial
    first = array.reshape(-1)[:1]
    if first.size and (array == first).all():
        return ZeroData(type_.nbytes) if not first.any() else from_numpy(np.full(type_.shape, first[0], array.dtype))[1]
    if slot.type == weight.type and (array == weight.initial).all():
        return like.data
    raise Unproved(f"slot '{slot.name}' begins with several numbers: law missing")
