"""Training anatomy: what each part of an exported training graph is for. Passes ask here; none matches scope names
itself.

How it is found. Forward and backward are what :mod:`.network` tells. Everything else is the update side: loss scaling,
reduction over ranks, clipping, weight decay, the optimizer. From there:

* an *update* is an in-place write that is not part of forward or backward;
* walking up from the value it writes, through the update side only and along operands of the same shape, leads to
  the first backward nodes: the *gradient* (several where a weight is used in several places and the sum is formed on
  the update side);
* a state that an update with a gradient writes and that forward or backward reads is a *weight*; without such a
  reader a *slot*; a state that forward writes is a *statistic*; what else the update side reads or writes is a
  *hyperparameter*.

The walk crosses functions: a function's input stands for what its callers pass (Partial, Switch, direct calls).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from typing import NoReturn

from ...core.attributes import TensorValue
from ...core.errors import AnatomyError
from ...core.graph import Constant, Graph, Input, Node, State, Value
from ...core.op import CALL
from ...core.predicates import is_effect, is_optimizer
from ...core.primitives import Family, facts, named
from ...core.types import TensorType, TupleType
from ...core.walk import carried_operands, through
from ..effects.effect_list import EffectList, list_effects
from ..effects.state_access import Effect, Summary, describe, states_behind, summarize
from ..functions.calls import Calls, actuals, bindings, called_functions, entered, picked_within, targets
from .loss import find_loss
from .network import BACKWARD, FORWARD, OPTIMIZER, OTHER, image, network_parts
from .origins import Computed, Origins

DIVIDING = named(Family.QUOTIENT)
ASSIGNING = frozenset({"Assign", "AssignAdd", "AssignSub"})
RESHAPING = named(Family.RESHAPE, Family.TRANSPOSE, Family.TUPLE) | {"Depend", "call"}
LINEAR = (
    RESHAPING
    | DIVIDING
    | ASSIGNING
    | named(Family.COPY, Family.CAST, Family.SUM, Family.DIFFERENCE, Family.PRODUCT, Family.CLAMP, Family.CHOICE)
    | {"Neg", "MatMul", "AllReduce", "ReduceScatter", "AllGather", "LARSUpdate", "Centralization", "Load"}
)
"""Ops through which a gradient passes as a gradient; others (squares, norms, signs) make something else of it."""
JUDGING = named(*(Family.FINITE, Family.OVERFLOWED, Family.STATUS, Family.LOGICAL, Family.TOTAL, Family.NORM)) | {
    "ReduceMax"
}
"""Ops that ask something of a gradient (is it finite, how long is it): what follows is no gradient any more."""

HOW_TO_EXPORT = (
    "boost-compile needs a training graph: forward, backward and optimizer in one file. Export the training cell:\n"
    "    net = nn.TrainOneStepCell(nn.WithLossCell(network, loss_fn), optimizer).set_train()\n"
    "    mindspore.export(net, inputs, labels, file_name='train', file_format='MINDIR')\n"
    "Or let boost-compile differentiate a forward graph: --optimizer 'momentum{lr=0.01,momentum=0.9}', and "
    "--loss softmax-cross-entropy unless it returns its loss."
)


@dataclass(frozen=True, slots=True)
class WeightInfo:
    """One trained weight. ``gradient``: the backward values whose sum is its gradient. ``updates``: the nodes that
    write it. ``slots``: state that the same update keeps. A weight on which the loss does not depend, or depends
    linearly, has no ``gradient``: its update takes the ``fixed`` constants. What stands between gradient and update:
    gradient_path.py."""

    name: str
    gradient: tuple[Node, ...]
    updates: tuple[Node, ...]
    slots: tuple[str, ...]
    fixed: tuple[Value, ...] = ()


@dataclass
class TrainingAnatomy:
    """``roles`` maps every state name to its role. ``seeds`` are the backward nodes that take no other backward
    value: there the derivative of the loss enters."""

    graph: Graph
    loss: Value | None
    """None where the graph returns none: training needs the gradients alone. Where branches compute it after the update
    (``loss / scale``), a node of one of them."""
    loss_path: tuple[int, ...] | None
    """Where it stands among the results: the indices that lead to it through tuples."""
    weights: list[WeightInfo]
    roles: dict[str, str]
    seeds: list[Node]
    parts: dict[Node, str] = field(repr=False)
    bound: dict[Input, list[Value]] = field(repr=False)
    """Function inputs and the caller's values that they stand for."""
    known: dict[str, Summary] = field(repr=False)
    """What each function does to state."""

    @cached_property
    def effects(self) -> EffectList:
        """The effects of the graph as it was analysed: to be asked for before it is changed."""
        return list_effects(self.graph, self.known)

    def image(self, value: Value) -> Value | None:
        """The forward or backward value of the main graph that ``value`` merely passes on (through Depend, tuples
        and the calls of the update side); None where the update side computes it."""
        return image(self.graph, self.parts, self.bound, value)

    def part(self, node: Node) -> str:
        """``forward``, ``backward``, ``optimizer`` (the update side) or ``other`` (order and packaging)."""
        return self.parts.get(node, OTHER)

    def weight(self, name: str) -> WeightInfo:
        for info in self.weights:
            if info.name == name:
                return info
        raise AnatomyError(f"'{name}' is no trained weight of graph '{self.graph.name}'")


def anatomy(graph: Graph) -> TrainingAnatomy:
    """The anatomy of a training graph; :class:`AnatomyError` where it is none or cannot be told. Linear in nodes."""
    return _Analysis(graph).run()


class _Analysis:
    def __init__(self, graph: Graph):
        self.graph = graph
        self.bound = bindings(graph)
        self.known = summarize(graph)
        self.parts = network_parts(graph, self.known)
        self.callers: dict[str, list[Node]] = {}
        for body in graph.all_graphs():
            for node in body:
                if node.op is CALL:
                    for function in called_functions(node):
                        self.callers.setdefault(function.name, []).append(node)

    def run(self) -> TrainingAnatomy:
        updates = self._updates()
        if not any(p == BACKWARD for p in self.parts.values()):
            self._refuse_forward(updates)
        if not updates:
            raise AnatomyError(
                f"'{self.graph.name}' computes gradients but updates no state: no optimizer. {HOW_TO_EXPORT}"
            )
        loss, loss_path = self._loss(updates)
        self._extend_optimizer(updates)
        self.read = self._read_by_network()
        written = self.written = self._written_states(updates)
        self.depth = self._depths()
        weights = self._weights(written)
        if not weights:
            names = ", ".join(list(written)[:5])
            raise AnatomyError(
                f"graph '{self.graph.name}' updates state ({names}), but none of it from a gradient. {HOW_TO_EXPORT}"
            )
        roles = self._roles(weights, written)
        seeds = [
            n for n, p in self.parts.items()
            if p == BACKWARD and not any(isinstance(o, Node) and self.parts.get(o) == BACKWARD for o in n._operands)
        ]  # fmt: skip
        return TrainingAnatomy(self.graph, loss, loss_path, weights, roles, seeds, self.parts, self.bound, self.known)

    def _refuse_forward(self, updates: list[Effect]) -> NoReturn:
        """An optimizer may well stand in a graph without a backward part: it updates from something else."""
        for effect in updates:
            if not is_optimizer(effect.node):
                continue
            at = facts(effect.node.op).gradient
            states = states_behind(effect.node.operand(0), self.bound)
            weight = states[0].name if states else effect.node.name
            raise AnatomyError(
                f"graph '{self.graph.name}' updates '{weight}' (by {effect.node!r}) but "
                f"holds no backward part: what it updates from is {self._given(effect.node, at)}, no gradient of a "
                f"loss that MindSpore derived. {HOW_TO_EXPORT}"
            )
        raise AnatomyError(f"'{self.graph.name}' is a forward graph: it holds no backward part. {HOW_TO_EXPORT}")

    def _given(self, update: Node, at: int | None) -> str:
        """What an update takes for a gradient."""
        value = None if at is None else through(update.operand(at), ("Cast", "Depend", "Load", "Reshape"))
        if isinstance(value, Input) and len(passed := self.bound.get(value, [])) == 1:
            value = passed[0]
        if isinstance(value, Constant):
            return "a constant of the file"
        if isinstance(value, Input):
            return f"the input '{value.name}'"
        if isinstance(value, State):
            return f"the state '{value.name}'"
        return "something else" if value is None else f"{value!r}"

    # -- updates ---------------------------------------------------------------------------------------------

    def _updates(self) -> list[Effect]:
        """In-place writes that are part of neither forward nor backward, in main graph and functions."""
        found = []
        for graph in self.graph.all_graphs():
            for node in graph:
                if node not in self.parts and node.op is not CALL and is_effect(node):
                    effect = describe(node, self.known)
                    if effect is not None and effect.writes:
                        found.append(effect)
        return found

    def _extend_optimizer(self, updates: list[Effect]) -> None:
        """Everything unmarked that an update needs belongs to the update side, and calls that lead to updates."""
        stack: list[Value] = [e.node for e in updates]
        functions = {e.node.graph.name for e in updates if e.node.graph is not None}
        stack.extend(call for name in functions for call in self.callers.get(name, ()))
        while stack:
            value = stack.pop()
            if not isinstance(value, Node) or value in self.parts or value.op.name == "UpdateState":
                continue
            self.parts[value] = OPTIMIZER
            stack.extend(value._operands)
            owner = value.graph
            if owner is not None and owner is not self.graph:
                stack.extend(self.callers.get(owner.name, ()))
            if value.op is CALL:
                stack.extend(f.result for f in called_functions(value) if f.has_result)

    # -- loss ------------------------------------------------------------------------------------------------

    def _loss(self, updates: list[Effect]) -> tuple[Value | None, tuple[int, ...] | None]:
        origins = Origins(self.graph, self.parts, self.bound, self.known)
        written = {state for e in updates for v in e.writes for state in states_behind(v, self.bound)}
        found = find_loss(origins, origins.results(), written)
        if found is None:
            return None, None
        return (found.origin.node if isinstance(found.origin, Computed) else found.origin), found.path

    # -- weights ---------------------------------------------------------------------------------------------

    def _written_states(self, updates: list[Effect]) -> dict[str, list[Node]]:
        written: dict[str, list[Node]] = {}
        for effect in updates:
            for value in sorted(effect.writes, key=lambda v: v.name):
                for state in states_behind(value, self.bound):
                    nodes = written.setdefault(state.name, [])
                    if not nodes or nodes[-1] is not effect.node:
                        nodes.append(effect.node)
        return written

    def _depths(self) -> dict[Node, int]:
        """How many tokens stand before each node: a write precedes a Load of the same state if its depth is less."""
        depth: dict[Node, int] = {}
        for graph in self.graph.all_graphs():
            for node in graph:
                before = max((depth.get(v, 0) for v in node._operands if isinstance(v, Node)), default=0)
                depth[node] = before + (node.op.name == "UpdateState")
        return depth

    def _read_by_network(self) -> set[str]:
        """Names of states that forward or backward reads, be it through copies or casts that carry no mark."""
        names: set[str] = set()
        stack: list[Value] = [n for n, part in self.parts.items() if part in (FORWARD, BACKWARD)]
        seen: set[Value] = set(stack)
        while stack:
            value = stack.pop()
            if isinstance(value, State):
                names.add(value.name)
                continue
            following = carried_operands(value) if isinstance(value, Node) else self.bound.get(value, ())  # type: ignore[call-overload]
            for v in following:
                if v not in seen and not (isinstance(v, Node) and v.op.name == "UpdateState"):
                    seen.add(v)
                    stack.append(v)
        return names

    def _weights(self, written: dict[str, list[Node]]) -> list[WeightInfo]:
        hits: dict[str, dict[Node, None]] = {}
        fixed: dict[str, tuple[Value, ...]] = {}
        for name, nodes in written.items():
            parameter = any(self._is_parameter(n, self.graph.states[name]) for n in nodes)
            if name not in self.read and not parameter:
                continue
            found = {g: None for node in nodes for g in self._gradients(node, linear=True)}
            if not found and parameter:
                self._refuse_accumulated(name, nodes)
            if not found:
                found = {g: None for node in nodes for g in self._gradients(node, linear=False)}
            if not found and parameter:
                fixed[name] = self._fixed(nodes)
            if found or fixed.get(name) or (parameter and self._takes_nothing(nodes)):
                hits[name] = found
            elif parameter:
                seen = ", ".join(repr(n) for n in nodes[:3])
                raise AnatomyError(f"weight '{name}': no gradient was found behind its update ({seen})")
        self._disentangle(hits)
        slots = self._slots(written, hits)
        return [
            WeightInfo(
                name,
                tuple(found),
                tuple(written[name]),
                tuple(slots.get(name, ())),
                fixed.get(name, ()),
            )
            for name, found in hits.items()
        ]

    def _refuse_accumulated(self, weight: str, updates: list[Node]) -> None:
        """AnatomyError where the updates take state to which this step adds gradients: the cell accumulates by
        itself."""
        stack: list[tuple[Value, Calls]] = [(v, ()) for n in updates for v in self._gradient_operands(n)]
        seen = set(stack)
        while stack:
            value, calls = stack.pop()
            following: list[tuple[Value, Calls]] = []
            if isinstance(value, State) and value.name not in self.read:
                adding = [n for n in self.written.get(value.name, ()) if self._gradients(n, linear=True)]
                if adding and len(self.written[value.name]) > 1:
                    raise AnatomyError(
                        f"graph '{self.graph.name}' accumulates already: it adds gradients up in state '{value.name}' "
                        f"(by {adding[0]!r}) and updates '{weight}' from there. Export the training cell without "
                        "accumulation of its own, and ask for gradient-accumulation; or leave out the passes that work "
                        "on gradients."
                    )
            elif isinstance(value, Input):
                following = actuals(value, calls, self.bound)
            elif isinstance(value, Node) and self.parts.get(value) not in (FORWARD, BACKWARD):
                if value.op.name == "Load":
                    following = [(value.operand(0), calls)]
                else:
                    following = self._upward(value, calls, linear=True)
            for v in following:
                if v not in seen:
                    seen.add(v)
                    stack.append(v)

    def _fixed(self, updates: list[Node]) -> tuple[Value, ...]:
        """The constants that stand where gradients should: the loss does not depend on the weight, or is linear in
        it."""
        stack: list[tuple[Value, Calls]] = [(v, ()) for n in updates for v in self._gradient_operands(n)]
        seen = dict.fromkeys(stack)
        while stack:
            value, calls = stack.pop()
            following = actuals(value, calls, self.bound) if isinstance(value, Input) else []
            if isinstance(value, Node) and value.op.name != "Load":
                if self.parts.get(value) in (FORWARD, BACKWARD):
                    return ()
                following = self._upward(value, calls, linear=True)
            for v in following:
                if v not in seen:
                    seen[v] = None
                    stack.append(v)
        values = dict.fromkeys(v for v, _ in seen)
        return tuple(v for v in values if isinstance(v, Constant) and isinstance(v.value, TensorValue))

    def _takes_nothing(self, updates: list[Node]) -> bool:
        """Whether the updates take no value of this step's forward or backward: the loss does not depend on the
        weight, and the exporter put a constant in the place of its gradient."""
        stack = [v for n in updates for v in self._gradient_operands(n)]
        seen: set[Value] = set(stack)
        while stack:
            value = stack.pop()
            if isinstance(value, Input):
                following: Iterable[Value] = self.bound.get(value, ())
                if not following:
                    return False
            elif isinstance(value, Node) and value.op.name != "Load":
                if self.parts.get(value) in (FORWARD, BACKWARD) or value.op is CALL:
                    return False
                following = value._operands
            else:
                continue
            for v in following:
                if v not in seen and not (isinstance(v, Node) and v.op.name == "UpdateState"):
                    seen.add(v)
                    stack.append(v)
        return True

    def _is_parameter(self, node: Node, state: State) -> bool:
        """Whether ``node`` is an optimizer primitive and ``state`` the weight it updates."""
        fact = facts(node.op)
        if node.op.name == "AdamNoUpdateParam":
            return False  # it writes slots alone
        return (
            fact.gradient is not None
            and bool(fact.writes)
            and state in states_behind(node.operand(fact.writes[0]), self.bound)
        )

    def _gradients(self, update: Node, *, linear: bool) -> list[Node]:
        """Backward nodes that the value written by ``update`` is made from."""
        return [n for n in self._sources(update, linear=linear) if self.parts.get(n) == BACKWARD]

    def _sources(self, update: Node, *, linear: bool) -> Iterator[Node]:
        """Where the value written by ``update`` comes from, walking up through the update side only: backward nodes,
        and Loads."""
        stack: list[tuple[Value, Calls]] = [(v, ()) for v in reversed(self._gradient_operands(update))]
        seen = set(stack)
        while stack:
            value, calls = stack.pop()
            if isinstance(value, Node):
                part = self.parts.get(value)
                if part == BACKWARD or value.op.name == "Load":
                    yield value
                if part is not None and part != OPTIMIZER:
                    continue
                following = self._upward(value, calls, linear)
            elif isinstance(value, Input):
                following = actuals(value, calls, self.bound)
            else:
                continue
            for v in reversed(following):
                if v not in seen:
                    seen.add(v)
                    stack.append(v)

    def _written_before(self, load: Node) -> Node | None:
        """The write whose value a Load sees, where this step's update side wrote it: a slot that is updated first
        and then used (a hand-written momentum). A weight's own value is no gradient, whoever wrote it."""
        found: Node | None = None
        for state in states_behind(load.operand(0), self.bound):
            if state.name in self.read:
                continue
            for node in self.written.get(state.name, ()):
                if node.graph is load.graph and self.depth[node] < self.depth[load]:
                    found = node if found is None or self.depth[node] > self.depth[found] else found
        return found

    def _gradient_operands(self, update: Node) -> list[Value]:
        fact = facts(update.op)
        if fact.gradient is not None and fact.gradient < update.num_operands:
            return [update.operand(fact.gradient)]
        if update.op.name in ASSIGNING:
            return [update.operand(1)]
        shape = getattr(update.operand(0).type, "shape", None)
        return [v for v in update.operands[1:] if isinstance(v.type, TensorType) and v.type.shape == shape]

    def _upward(self, node: Node, calls: Calls, linear: bool) -> list[tuple[Value, Calls]]:
        """The values behind an update-side node that carry the gradient on, and the calls that each is behind: a
        function that several weights share (a clipping) is left where it was entered."""
        if (items := picked_within(node, calls, self.bound)) is not None:
            return items
        if node.op is CALL:
            inside = entered(calls, node)
            return [(t.function.result, inside) for t in targets(node) or () if t.function.has_result]
        return [(v, calls) for v in self._carrying(node, linear)]

    def _carrying(self, node: Node, linear: bool) -> list[Value]:
        """The operands of an update-side node that carry the gradient on: of its own shape. ``linear``: as a
        gradient still, in a float type; else in any form (a sign, a comparison)."""
        name = node.op.name
        if name == "Depend":
            return [node.operand(0)]
        if name == "Load":
            written = self._written_before(node)
            return [] if written is None else [written]
        fact = facts(node.op)
        if fact.gradient is not None and fact.gradient < node.num_operands:
            return [node.operand(fact.gradient)]
        if name in JUDGING or (linear and name not in LINEAR):
            return []
        operands = list(node._operands)
        if name == "Select" and linear:
            operands = operands[1:]
        elif name in ASSIGNING:
            operands = operands[1:2]
        elif name in DIVIDING and linear:
            operands = operands[:1]
        free = name in RESHAPING or isinstance(node.type, TupleType)
        out: list[Value] = []
        for operand in operands:
            t = operand.type
            if isinstance(t, TupleType):
                # AddN takes a tuple of summands; a collective may take one too.
                out.append(operand)
            elif not isinstance(t, TensorType) or (linear and not t.dtype.is_float):
                continue
            elif free or t.shape == getattr(node.type, "shape", None):
                out.append(operand)
        return out

    def _disentangle(self, hits: dict[str, dict[Node, None]]) -> None:
        """A gradient belongs to one weight. Where weights of one shape meet on the update side (a norm over
        scalars), a value that is the only candidate of another weight is not this one's."""
        changed = True
        while changed:
            changed = False
            sole = {next(iter(found)): name for name, found in hits.items() if len(found) == 1}
            for name, found in hits.items():
                if len(found) > 1:
                    foreign = [g for g in found if g in sole and sole[g] != name]
                    if foreign and len(foreign) < len(found):
                        for g in foreign:
                            del found[g]
                        changed = True
        owners: dict[Node, str] = {}
        for name, found in hits.items():
            for g in found:
                other = owners.setdefault(g, name)
                if other != name and not _same_summands(hits[other], found):
                    nodes = ", ".join(f"%{n.name}" for n in found)
                    raise AnatomyError(
                        f"weights '{other}' and '{name}' both seem to use gradient {g!r} (candidates: {nodes})"
                    )

    def _slots(self, written: dict[str, list[Node]], hits: dict[str, dict[Node, None]]) -> dict[str, list[str]]:
        """Slots by weight: the other states that its update writes, and those whose own updates take its gradient or
        itself. A state that several weights share is a hyperparameter of the optimizer, not a slot."""
        owner_of_gradient = {g: name for name, found in hits.items() for g in found}
        owner_of_update = {node: name for name in hits for node in written[name]}
        slots: dict[str, list[str]] = {}
        for name, nodes in written.items():
            if name in hits:
                continue
            owners = {owner_of_update[n] for n in nodes if n in owner_of_update}
            if not owners:
                for node in nodes:
                    for source in self._sources(node, linear=False):
                        if source in owner_of_gradient:
                            owners.add(owner_of_gradient[source])
                        elif source.op.name == "Load":
                            owners.update(
                                s.name for s in states_behind(source.operand(0), self.bound) if s.name in hits
                            )
            if len(owners) == 1:
                slots.setdefault(owners.pop(), []).append(name)
        return slots

    # -- roles -----------------------------------------------------------------------------------------------

    def _roles(self, weights: list[WeightInfo], written: dict[str, list[Node]]) -> dict[str, str]:
        trained = {w.name for w in weights}
        slots = {s for w in weights for s in w.slots}
        statistics: set[str] = set()
        for graph in self.graph.all_graphs():
            for node in graph:
                if self.parts.get(node) in (FORWARD, BACKWARD) and is_effect(node):
                    effect = describe(node, self.known)
                    if effect is not None:
                        statistics.update(s.name for v in effect.writes for s in states_behind(v, self.bound))
        roles: dict[str, str] = {}
        for name in self.graph.states:
            if name in trained:
                roles[name] = "weight"
            elif name in slots:
                roles[name] = "slot"
            elif name in statistics:
                roles[name] = "statistic"
            elif name in written or name not in self.read:
                roles[name] = "hyperparameter"
            else:
                roles[name] = "weight"  # read by the network, never updated: a frozen weight
        return roles


def _same_summands(a: dict[Node, None], b: dict[Node, None]) -> bool:
    """Two states that one sum updates alike, as a weight and its tied copy."""
    return a.keys() == b.keys()
