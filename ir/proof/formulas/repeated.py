"""The update of a weight, again for a state that a formula adds: by the same primitives, with slots of its own."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from ...analysis.effects.tokens import orders_only
from ...analysis.training.anatomy import TrainingAnatomy
from ...analysis.training.network import network_parts
from ...analysis.training.weights import WeightInfo
from ...core.data import Data, ZeroData, from_numpy
from ...core.graph import Node, Value
from ...core.op import CALL
from ...core.program import Program, StateVariable
from ...core.types import TensorType, TupleType, Type
from ...rewrite.effects.editing import Effects
from ...symbolic.execution import Unproved


def update_as(
    base: Program, found: TrainingAnatomy, info: WeightInfo, name: str, gradients: Mapping[Node, Node], fx: Effects
) -> None:  # fmt: skip
    """Updates ``name`` from its gradients as the graph updates the weight, with slots of its own."""
    graph, weight = found.graph, base.state[info.name]
    like = base.state[name]
    names = {info.name: name, **{slot: _slot_of(slot, info.name, name) for slot in info.slots}}
    for slot in info.slots:
        variable = base.state[slot]
        type_ = _type(variable.type, weight, like, names)
        assert isinstance(type_, TensorType)
        base.add_state(names[slot], type_, "slot", _begins(variable, weight, like, type_), name)
    twins: dict[Value, Value] = {
        graph.states[old]: graph.state(new, base.state[new].type) for old, new in names.items()
    }
    twins.update(gradients.items())
    parts = network_parts(graph)
    loads = [n for n in parts if n.op.name == "Load" and n.operand(0) in twins]
    twins |= {load: _twin(fx, load, twins, load.type) for load in loads}
    others = _of_others(found, parts, info)
    for node in [n for n in graph if n not in parts]:
        if node.op.name in ("UpdateState", "MakeTuple") and all(orders_only(u, i) for u, i in node.use_sites()):
            continue
        if not any(v in twins and not orders_only(node, i) for i, v in enumerate(node.operands)):
            continue
        if node.op.name == "Depend":
            twins[node] = twins.get(node.operand(0), node.operand(0))
            continue
        if node in others or node.op is CALL or node.op.name == "Partial":
            raise Unproved(f"{node!r} takes the gradient of weight '{info.name}' together with others: law missing")
        twin = _twin(fx, node, twins, _type(node.type, weight, like, names))
        twins[node] = twin


def _twin(fx: Effects, node: Node, twins: Mapping[Value, Value], type_: Type) -> Node:
    """A node again, on what stands in the place of its operands; an effect right behind the one that it repeats."""
    operands = [twins.get(v, v) for v in node.operands]
    at = next((k for k, effect in enumerate(fx.list) if effect.node is node), None)
    if at is None:
        with fx.graph.inserting_after(node):
            return fx.graph.create(node.op, operands, type_)
    if node.op.name == "Load":
        made = fx.load(operands[0], initial=fx.list[at].initial)
    else:
        with fx.graph.inserting_after(node):
            made = fx.graph.create(node.op, [*operands[:-1], fx.first_token()], type_)
        fx.adopt(made)
    fx.list.insert(at + 1, fx.list.pop())
    return made


def _of_others(found: TrainingAnatomy, parts: Collection[Node], info: WeightInfo) -> set[Node]:
    """What is computed from the gradients of other weights, before it is only a state that they leave."""
    seen: set[Node] = set()
    stack = [g for other in found.weights if other is not info for g in other.gradient if g not in info.gradient]
    while stack:
        for user, i in stack.pop().use_sites():
            if user not in seen and not orders_only(user, i) and user not in parts:
                seen.add(user)
                stack.append(user)
    return seen


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
