"""Cutting a training graph where the gradients cross from backward to the update side.

The network side is the graph itself without the effects of the update side, and without what nothing needs then
(:meth:`Effects.commit`). The update side is a copy of the few nodes that it needs; what crosses is replaced in it.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from ...ir.analysis.effects.state_access import place
from ...ir.analysis.functions.calls import callees_first, forget_unreached
from ...ir.analysis.training.anatomy import TrainingAnatomy
from ...ir.analysis.training.network import BACKWARD, FORWARD
from ...ir.analysis.training.results import names_of_results
from ...ir.core.attributes import MonadValue, scalar_tensor
from ...ir.core.errors import PassError
from ...ir.core.graph import Graph, GraphRef, Input, Node, State, Value
from ...ir.core.naming import result_names
from ...ir.core.op import CALL
from ...ir.core.predicates import is_effect, is_pure
from ...ir.core.sites import site
from ...ir.core.types import TensorType, TupleType, is_monad
from ...ir.core.walk import live_nodes, result_value, walk
from ...ir.rewrite.effects.editing import Effects
from .sparse import refuse_sparse_weights

NETWORK = (FORWARD, BACKWARD)


@dataclass(slots=True)
class Crossing:
    """A value of forward or backward, or an input, that the update side takes. ``weight`` is set where it is a
    gradient; ``part`` numbers the summands of a gradient that the update side adds up. ``uses`` are the (user,
    operand index) to rewire."""

    value: Node | Input
    uses: list[tuple[Node, int]] = field(default_factory=list)
    weight: str = ""
    part: int = 0

    @property
    def type(self) -> TensorType:
        if not isinstance(self.value.type, TensorType):
            raise PassError(
                f"{site(self.value)} crosses to the update side but is no tensor: cannot keep it across micro-batches"
            )
        return self.value.type


@dataclass(slots=True)
class Outputs:
    """Elements of the result by side: ``network`` as (name, forward value), ``update`` as (name, update-side value)."""

    network: list[tuple[str, Value]]
    update: list[tuple[str, Value]]


@dataclass(slots=True)
class Cut:
    """``gradients`` and ``carried`` (other values that the update side needs from the last micro-batch, such as a
    loss that its functions pass through) cross from network to update side; ``order_only`` uses carry no value.
    ``update_side``: its nodes, and those of the network that it can compute itself."""

    gradients: list[Crossing]
    carried: list[Crossing]
    order_only: list[Node]
    outputs: Outputs
    update_side: set[Node]


def find_cut(anatomy: TrainingAnatomy) -> Cut:
    """Everything that crosses from forward and backward to the update side; :class:`PassError` for what cannot be
    cut."""
    graph = anatomy.graph
    refuse_sparse_weights(anatomy.weights, "which cannot be added up over micro-batches")
    _check_order(anatomy)
    outputs = split_outputs(anatomy)
    gradient_of: dict[Node, tuple[str, int]] = {}
    for info in anatomy.weights:
        for i, gradient in enumerate(info.gradient):
            if gradient.graph is not graph:
                raise PassError(
                    f"the gradient {site(gradient)} of weight '{info.name}' is computed inside function "
                    f"'{gradient.home.name}': only gradients of the main graph can be cut"
                )
            gradient_of.setdefault(gradient, (info.name, i))
    invariant = step_invariant(anatomy)
    needed, parts = _update_side(anatomy, outputs), anatomy.parts
    crossings: dict[Node | Input, Crossing] = {}
    order_only: list[Node] = []
    repeated: set[Value] = set()
    for user in graph:
        if user not in needed:
            continue
        for i, value in enumerate(user._operands):
            if isinstance(value, Input) and not is_monad(value.type):  # tokens are rebuilt, not cut
                crossings.setdefault(value, Crossing(value)).uses.append((user, i))
                continue
            if not isinstance(value, Node) or parts.get(value) not in NETWORK or is_monad(value.type):
                continue
            if value in invariant and value not in gradient_of:
                repeated.add(value)
                continue
            if user.op.name == "Depend" and i == 1:
                order_only.append(user)
                continue
            weight, part = gradient_of.get(value, ("", 0))
            crossings.setdefault(value, Crossing(value, [], weight, part)).uses.append((user, i))
    gradients = [crossings[v] for v in gradient_of if v in crossings]
    carried = [c for c in crossings.values() if not c.weight]
    for c in carried:
        if isinstance(c.value, Node) and anatomy.part(c.value) == BACKWARD:
            users = ", ".join(site(u) for u, _ in c.uses[:3])
            raise PassError(
                f"the update side (by {users}) uses the backward value {site(c.value)}, the gradient of no weight: "
                "it cannot be averaged over micro-batches"
            )
    return Cut(gradients, carried, order_only, outputs, needed | live_nodes(repeated, tokens=False))


def _check_order(anatomy: TrainingAnatomy) -> None:
    """Forward and backward are to run several times before the update side runs once: neither may depend on the other's
    writes of state in another order than that. A computed tensor that is written in place (``m *= cond``) is no state:
    each run makes it anew, and what takes it across the cut takes a value."""
    updated: dict[Value, Node] = {}
    consulted: dict[Value, Node] = {}
    for effect in anatomy.effects.effects:
        node = effect.node
        if anatomy.part(node) not in NETWORK:
            updated.update((where, node) for where in effect.writes)
            consulted.update((where, node) for where in effect.reads)
            continue
        if updated.keys().isdisjoint(effect.touched) and consulted.keys().isdisjoint(effect.writes):
            continue
        for state in sorted((s for s in effect.touched if isinstance(s, State)), key=lambda s: s.name):
            if state in updated:
                raise PassError(
                    f"the network uses state '{state.name}' (by {site(node)}) after the same step has updated it (by "
                    f"{site(updated[state])}), and a window updates once, after all of its micro-batches: these would "
                    "have to come a second time, behind that update. Take all gradients before the first update, or "
                    "train without accumulation"
                )
            if state in effect.writes and state in consulted:
                raise PassError(
                    f"the update side reads state '{state.name}' (by {site(consulted[state])}) before the network "
                    f"writes it (by {site(node)}): with one update a window it would read a later value. Read it "
                    "after the "
                    "forward pass."
                )


def split_outputs(anatomy: TrainingAnatomy) -> Outputs:
    """Result elements by the side that computes them."""
    graph = anatomy.graph
    result = result_value(graph)
    packed = isinstance(result, Node) and result.op.name == "MakeTuple" and anatomy.part(result) not in NETWORK
    elements = list(result.operands) if packed and isinstance(result, Node) else [result]
    names = names_of_results(graph, len(elements)) or result_names(len(elements))
    network: list[tuple[str, Value]] = []
    update: list[tuple[str, Value]] = []
    for name, element in zip(names, elements, strict=True):
        image = anatomy.image(element)
        if image is not None:
            network.append((name, image))
        else:
            update.append((name, element))
    return Outputs(network, update)


def _update_side(anatomy: TrainingAnatomy, outputs: Outputs) -> set[Node]:
    """Unmarked nodes of the main graph that updates or update-side outputs need."""
    parts = anatomy.parts

    def unmarked(values: Iterable[Value]) -> list[Node]:
        return [v for v in values if isinstance(v, Node) and parts.get(v) not in NETWORK and v.op.name != "UpdateState"]

    starts = [*(value for _, value in outputs.update), *filter(is_effect, unmarked(anatomy.graph))]
    return set(walk(unmarked(starts), lambda node: unmarked(node._operands)))


def step_invariant(anatomy: TrainingAnatomy) -> set[Node]:
    """Values that depend on no input and nothing that forward writes or draws: the update side can compute them
    itself."""
    written: set[Value] = set()
    for effect in anatomy.effects.writes():
        if anatomy.part(effect.node) in NETWORK:
            written |= effect.writes
    invariant: set[Node] = set()
    for node in anatomy.graph:
        if node.op.name == "Load":
            source = node.operand(0)
            known = source in invariant if isinstance(place(source), Node) else not isinstance(source, Input)
            if known and place(source) not in written:
                invariant.add(node)
            continue
        for value in node._operands:
            if isinstance(value, Node):
                if value not in invariant and not is_monad(value.type):
                    break
            elif isinstance(value, Input) or value in written:
                break
        else:
            if node.op is not CALL and is_pure(node):
                invariant.add(node)
    return invariant


def drop_update_side(fx: Effects, parts: dict[Node, str]) -> None:
    """Removes every effect that is not part of forward or backward."""
    fx.drop([e for e in fx.list if not e.passive and parts.get(e.node) not in NETWORK])


def clone_update_side(found: TrainingAnatomy, cut: Cut, name: str) -> tuple[Graph, dict[Value, Value]]:
    """A graph of the update side alone, which has no inputs, and as yet no result, and the map from old values to new.
    What crosses to it is still to be replaced. Nothing waits for the network."""
    graph, twin = found.graph.clone(name, only=cut.update_side)
    graph.inputs.clear()
    for copy in twin.values():
        if isinstance(copy, Node) and copy.graph is None and is_monad(copy.type):
            kind = str(copy.type)
            copy.replace_uses(graph.constant(MonadValue(kind), kind))
    return graph, twin


def pack(graph: Graph, outputs: list[tuple[str, Value]]) -> Value:
    """The result value for named outputs, and the graph's ``outputs`` set to match. None at all: a constant zero."""
    graph.outputs = tuple(name for name, _ in outputs)
    if not outputs:
        return graph.constant(scalar_tensor("float32", 0.0))
    if len(outputs) == 1 and not isinstance(outputs[0][1].type, TupleType):
        return outputs[0][1]
    return graph.create("MakeTuple", [value for _, value in outputs])


def forget_unused(graph: Graph) -> None:
    """Drops references to state that a graph no longer uses, and functions that it no longer calls."""
    graph.forget_unused_states()
    forget_unreached(graph)


def forget_unused_inputs(graph: Graph) -> None:
    """Drops what Partials bind to inputs that a function does not take any more: the slot of a weight that it updated,
    say. Linear in nodes."""
    partials: dict[Graph, list[Node]] = {}
    otherwise: set[Graph] = set()
    for node in graph.all_nodes():
        for i, value in enumerate(node.operands):
            if isinstance(value, GraphRef) and node.op.name == "Partial" and i == 0:
                partials.setdefault(value.graph, []).append(node)
            elif isinstance(value, GraphRef):
                otherwise.add(value.graph)
    dropped = False
    for function in callees_first(graph):  # what a function only passes on is unused once its callees are seen to
        bound = 0 if function in otherwise else min((p.num_operands - 1 for p in partials.get(function, ())), default=0)
        unused = {
            i for i, v in enumerate(function.inputs[:bound])
            if not (v.uses or is_monad(v.type) or v is function.result)
        }  # fmt: skip
        if unused:
            dropped = True
            function.inputs = [v for i, v in enumerate(function.inputs) if i not in unused]
            for partial in partials[function]:
                partial.set_operands([v for i, v in enumerate(partial.operands) if i - 1 not in unused])
    if dropped:
        Effects(graph).commit()
