"""Training a new weight as another one is trained: the other's update is repeated for it, with slots of its own.

What is repeated is what serves the other weight alone (found by :mod:`.removal`): reads, weight decay, unscaling,
clipping by its own norm, the update; in functions too, which get inputs for the new state. Where gradients of all
weights are merged (a global norm, a finite check), the new gradient joins.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace

from ..analysis.effects.state_access import Effect, Summary, describe, summarize
from ..analysis.effects.tokens import orders_only
from ..analysis.training.anatomy import TrainingAnatomy
from ..analysis.training.network import BACKWARD, FORWARD
from ..analysis.training.weights import WeightInfo
from ..core.attributes import TensorValue
from ..core.data import Data, ZeroData, from_numpy
from ..core.errors import PassError
from ..core.graph import Constant, Graph, Input, Node, State, Value, tensor_type
from ..core.op import CALL, RETURN
from ..core.predicates import is_effect
from ..core.program import Program, StateVariable
from ..core.sites import site
from ..core.types import TensorType, TupleType, Type
from .effects.editing import Effects
from .removal import Plan, Removal


@dataclass(frozen=True)
class Repeat:
    """A checked plan to train further state as ``model`` is trained."""

    model: WeightInfo
    removal: Removal
    plan: Plan


@dataclass(frozen=True)
class NewWeight:
    """State ``name``, which the graph takes already and which starts from ``value``, is trained by ``repeat``.
    ``gradients``: its gradient, in the place of each value that the model is trained by."""

    repeat: Repeat
    name: str
    value: TensorValue
    gradients: Mapping[Node, Node]

    @property
    def names(self) -> dict[str, str]:
        """The states of the model, and the new ones in their places."""
        model = self.repeat.model
        return {model.name: self.name, **{slot: new_name(model.name, self.name, slot) for slot in model.slots}}


def plan_repeat(removal: Removal, model: WeightInfo, own: Collection[Node]) -> Repeat:
    """Plans to repeat the update of ``model``; ``own`` are the nodes of forward and backward that take it.
    :class:`PassError` where its update cannot be told from that of other weights."""
    plan = removal.plan((model.name, *model.slots), model.gradient, own)
    obstacle = plan.obstacle
    shape = tensor_type(removal.graph.states[model.name]).shape
    for slot in model.slots:
        kind = tensor_type(removal.graph.states[slot])
        if kind.shape != shape and kind.size > 1:
            obstacle = obstacle or f"its slot '{slot}' is a {kind}, neither one number nor of its own shape"
    for node in plan.tuples:
        if not _merged_or_ordered(plan, node):
            obstacle = obstacle or f"%{node.name} passes its gradient on together with others"
    for value in (v for v, _ in plan.dead):
        if isinstance(value, Node) and (value.op is CALL or value.op.name in ("Partial", "Stack", "Concat")):
            obstacle = obstacle or f"{site(value)} serves it alone"
    for node in _repeated(plan):
        if node not in model.gradient and _depends_on_shape(plan, node, shape):
            obstacle = obstacle or f"{site(node)} depends on its shape"
    if obstacle:
        raise PassError(f"the update of '{model.name}' cannot be repeated for another weight: {obstacle}")
    return Repeat(model, removal, plan)


def refuse_second_look(found: TrainingAnatomy, models: Collection[WeightInfo]) -> None:
    """PassError where the network reads one of ``models`` behind its update in the same step: new state beside it is
    read once, before all updates. Linear in effects."""
    names = {node: model.name for model in models for node in model.updates}
    updated: set[str] = set()
    for effect in found.effects.effects:
        if effect.node in names:
            updated.add(names[effect.node])
        elif found.part(effect.node) in (FORWARD, BACKWARD):
            for state in effect.reads:
                if isinstance(state, State) and state.name in updated:
                    raise PassError(
                        f"the network reads '{state.name}' (by %{effect.node.name}) after the same step has updated "
                        "it, and what stands beside it would be read before: export a training cell that takes all "
                        "gradients before it updates"
                    )


def _depends_on_shape(plan: Plan, node: Node, shape: tuple[int, ...]) -> bool:
    """Whether a node would compute something else, or nothing, for a weight of another shape."""
    types = [v.type for v in node.operands if isinstance(v.type, TensorType)]
    if all(t.shape != shape for t in types):
        return False
    if node.op.name in ("MatMul", "Centralization"):
        return True
    if isinstance(node.type, TensorType) and node.type.shape != shape and node.type.size > 1:
        return True
    for value in node.operands:
        if isinstance(value, Constant) and isinstance(value.value, (tuple, list)) and value.value:
            return True  # axes, or a shape
        if isinstance(value.type, TensorType) and value.type.shape == shape and not plan.is_dead(value):
            return True
    return False


def _repeated(plan: Plan) -> dict[Node, None]:
    """Nodes that serve the model alone: whole values, tuples of such, numbers of its own, and dropped effects."""
    nodes = [v for v, path in plan.dead if not path and isinstance(v, Node)]
    tuples = [node for node, at in plan.tuples.items() if len(at) == node.num_operands]
    return dict.fromkeys([*nodes, *tuples, *_own_numbers(plan), *plan.dropped])


def _own_numbers(plan: Plan) -> dict[Node, None]:
    """Numbers that merge nothing: what an optimizer makes of a norm of this weight for its update alone, where it adds
    a number to it, or bounds it by one."""
    found: dict[Node, None] = {}
    for node, at in plan.merges.items():
        others = [v for i, v in enumerate(node.operands[:2]) if i not in at]
        if not plan.is_dead(node) and others and all(isinstance(v, Constant) or _is_read(v) for v in others):
            found |= _served(plan, node)
    return found


def _is_read(value: Value) -> bool:
    return isinstance(value, Node) and value.op.name == "Load"


def _served(plan: Plan, number: Node) -> dict[Node, None]:
    """What is computed from a number on its way to the updates of the plan; nothing where others take it too."""
    region = {number: None}
    stack = [number]
    while stack:
        for user, i in stack.pop().use_sites():
            if orders_only(user, i) or user in region or user in plan.dropped or plan.is_dead(user):
                continue
            if is_effect(user) or user.op in (CALL, RETURN) or user.op.name == "Partial":
                return {}
            region[user] = None
            stack.append(user)
    return region


def _merged_or_ordered(plan: Plan, node: Node) -> bool:
    """Whether a tuple with a gradient of the model only merges gradients or orders effects."""
    return all(
        user in plan.merges or plan.is_dead(user) or user.op.name == "UpdateState" or (user.op.name == "Depend" and i)
        for user, i in node.use_sites()
    )


def new_name(model: str, name: str, of: str) -> str:
    """``moments.head.weight`` for ``head.weight`` becomes ``moments.head.multiplier`` for ``head.multiplier``."""
    return of.removesuffix(model) + name if of.endswith(model) else f"{of}.{name}"


def repeat_updates(program: Program, weights: Sequence[NewWeight]) -> None:
    """The new weights are trained from now on; all of one graph, planned by one :class:`Removal`. Linear in what is
    repeated, and in the graph."""
    removal = weights[0].repeat.removal
    graph = removal.graph
    bodies = graph.all_graphs()
    order = {node: i for i, node in enumerate(node for body in bodies for node in body)}
    made = [_add_state(program, weight) for weight in weights]
    followers: dict[Node, list[Node]] = {}
    for weight, twins in zip(weights, made, strict=True):
        for node in sorted(_repeated(weight.repeat.plan), key=order.__getitem__):
            if node not in twins:
                with node.home.inserting_after(node):
                    operands = [twins.get(v, v) for v in node.operands]
                    type_ = _twin_type(program, weight, node.type)
                    twin = node.home.create(node.op, operands, type_, scope=node.scope, sources=[node])
                twin.marks, twin.primal = node.marks, node.primal
                twins[node] = twin
                followers.setdefault(node, []).append(twin)
    _widen(removal, made)
    known = summarize(graph)
    for body in reversed(bodies):
        fx = Effects(body, known)
        _enlist(fx, known, followers)
        for weight, twins in zip(weights, made, strict=True):
            plan = weight.repeat.plan
            own = _own_numbers(plan)
            for node, at in plan.merges.items():
                if node.graph is body and not plan.is_dead(node) and node not in own:
                    _merge(fx, known, node, at, twins)
            for node, at in plan.tuples.items():
                if node.graph is body and not plan.is_dead(node):
                    _await(body, plan, node, at, twins)
        fx.commit()


def _add_state(program: Program, weight: NewWeight) -> dict[Value, Value]:
    """Adds the state of a new weight, and gives what stands in the place of each value of its model: gradients, states,
    inputs of functions."""
    model, plan, value = weight.repeat.model, weight.repeat.plan, weight.value
    graph = weight.repeat.removal.graph
    program.add_state(weight.name, value.type, "weight", value.data).trainable = True
    for slot in model.slots:
        variable = program.state[slot]
        type_ = _twin_type(program, weight, variable.type)
        assert isinstance(type_, TensorType)
        start = _start(variable, program.state[model.name], type_, value)
        program.add_state(weight.names[slot], type_, "slot", start, weight.name)
    twins: dict[Value, Value] = dict(weight.gradients.items())
    for old, new in weight.names.items():
        twins[graph.states[old]] = graph.state(new, program.state[new].type)
    for formal in (v for v, path in plan.dead if isinstance(v, Input) and not path):
        twins[formal] = Input(f"{formal.name}.{weight.name}", _twin_type(program, weight, formal.type))
    return twins


def _twin_type(program: Program, weight: NewWeight, type_: Type) -> Type:
    """A type of the model's update, as it is in that of the new weight."""
    if isinstance(type_, TupleType):
        elements = tuple(_twin_type(program, weight, element) for element in type_.elements)
        return TupleType(elements, type_.is_list, type_.dynamic)
    if not isinstance(type_, TensorType):
        return type_
    own = type_.shape == program.state[weight.repeat.model.name].shape
    shape = weight.value.type.shape if own else type_.shape
    return TensorType(type_.dtype, shape, weight.names.get(type_.ref, type_.ref))


def _start(slot: StateVariable, model: StateVariable, type_: TensorType, value: TensorValue) -> Data:
    """The first value of a slot: a copy of the new weight, where the model's is a copy of the model (an average of it);
    else the number that fills the model's, or zero where it holds several. A model that starts from zeros tells no copy
    from a sum that is empty yet: zero, as sums are many and averages few."""
    array = slot.initial
    if not array.any():
        return ZeroData(type_.nbytes)
    if slot.type == model.type and value.type == type_ and (array == model.initial).all():
        return value.data
    if not (array == array.flat[0]).all():
        return ZeroData(type_.nbytes)
    import numpy as np

    return from_numpy(np.full(type_.shape, array.flat[0], array.dtype))[1]


def _widen(removal: Removal, made: Sequence[Mapping[Value, Value]]) -> None:
    """Functions that take a model's state or gradient take the new ones too, right behind; so do their calls."""
    behind: dict[Node, dict[int, list[Value]]] = {}
    for twins in made:
        for node, places in removal.closures.binding(v for v in twins if isinstance(v, Input)).items():
            for i in places:
                behind.setdefault(node, {}).setdefault(i, []).append(twins[node.operand(i)])
    for function in removal.graph.functions.values():
        inputs: list[Input] = []
        for formal in function.inputs:
            inputs.append(formal)
            inputs.extend(twin for twins in made if isinstance(twin := twins.get(formal), Input))
        function.inputs = inputs
    for node, further in behind.items():
        node.set_operands([v for i, operand in enumerate(node.operands) for v in (operand, *further.get(i, ()))])


def _enlist(fx: Effects, known: dict[str, Summary], followers: Mapping[Node, Sequence[Node]]) -> None:
    """Puts the effects among the twins into the list, each right behind the one that it repeats."""
    present = {effect.node for effect in fx.list}
    listed: list[Effect] = []
    for effect in fx.list:
        listed.append(effect)
        found = (describe(twin, known) for twin in followers.get(effect.node, ()) if twin not in present)
        listed.extend(replace(twin, initial=effect.initial) for twin in found if twin is not None)
    fx.list = listed


def _await(graph: Graph, plan: Plan, node: Node, at: Collection[int], twins: Mapping[Value, Value]) -> None:
    """Who waits for all gradients waits for the new one too (updates need no waiting: they happen anyway)."""
    more = [twins[node.operand(i)] for i in at if node.operand(i) not in plan.dropped]
    for user, i in node.use_sites():
        if more and user.op.name == "Depend" and i == 1:
            with graph.inserting_before(user):
                user.set_operand(1, graph.create("MakeTuple", [*node.operands, *more], sources=[node]))


def _merge(
    fx: Effects, known: dict[str, Summary], node: Node, at: Collection[int], twins: Mapping[Value, Value]
) -> None:
    """A sum or a check over all gradients takes the new one too."""
    graph = fx.graph
    if node.op.name in ("AddN", "AllFinite"):
        items = node.operand(0)
        assert isinstance(items, Node)
        with graph.inserting_before(node):
            more = [twins[items.operand(i)] for i in at]
            node.set_operand(0, graph.create("MakeTuple", [*items.operands, *more], scope=node.scope, sources=[items]))
        return
    [i] = at
    uses = list(node.use_sites())
    operands = [node, twins[node.operand(i)], *node.operands[2:]]
    with graph.inserting_after(node):
        total = graph.create(node.op, operands, node.type, scope=node.scope, sources=[node])
    for user, j in uses:
        user.set_operand(j, total)
    if is_effect(node) and (found := describe(total, known)) is not None:
        place = next(k for k, effect in enumerate(fx.list) if effect.node is node)
        fx.list.insert(place + 1, replace(found, initial=fx.list[place].initial))
