"""Which of the states that an update side writes are weights, with their gradients and slots.

A state is a weight if forward or backward reads it, or an optimizer's primitive takes it for one, and a gradient stands
behind what is written: first one that is still a gradient, else anything that is made of one. For example::

    state %w: float32[2]
    state %m: float32[2]
    graph @step(%x: float32[2]) {
      %w0 = Load(%w, umonad) : float32[2] primal {unique_id = "1"}
      %y = Mul(%w0, %x) : float32[2] primal {unique_id = "2"}
      %loss = ReduceSum(%y, (), false, false) : float32[] primal {unique_id = "3"}
      %g = Mul(%x, %x) : float32[2] primal {forward_unique_id = "2"}     // the gradient of w
      %mean = AssignAdd(%m, %g, umonad) : float32[2]                     // a slot of w: the network does not read m
      %t0 = UpdateState(umonad, %mean)
      %m1 = Load(%m, %t0) : float32[2]
      %new = AssignSub(%w, %m1, %t0) : float32[2]                        // the update of w, by way of m
      %t = UpdateState(%t0, %new)
      %result = Depend(%loss, %t)
      return %result
    }
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from ...core.attributes import TensorValue
from ...core.errors import AnatomyError
from ...core.graph import Constant, Input, Node, State, Value
from ...core.op import CALL
from ...core.primitives import Family, facts, named
from ...core.sites import site
from ...core.types import TensorType
from ...core.walk import carried_operands, walk
from ..effects.state_access import states_behind
from ..functions.calls import actuals
from .gradient_sources import GradientSources, Place
from .network import BACKWARD, FORWARD
from .update_side import UpdateSide

_SUMMING = named(Family.SUM, Family.CAST, Family.COPY, Family.TUPLE) | {"Depend"}


@dataclass(frozen=True, slots=True)
class WeightInfo:
    """One trained weight. ``gradient``: the backward values whose sum is its gradient. ``updates``: the nodes that
    write it. ``slots``: state that the same update keeps. ``copies``: state that the network reads, and that the update
    side writes from the weight (a target network). A weight on which the loss does not depend, or depends linearly, may
    have no ``gradient``: its update takes ``fixed`` values that no backward node made, constants or of the forward part
    (:mod:`ir.rewrite.settle_gradients` makes such a one a gradient). ``sparse``: the gradient is rows, which indices
    bring to their places: the same place may come twice."""

    name: str
    gradient: tuple[Node, ...]
    updates: tuple[Node, ...]
    slots: tuple[str, ...]
    fixed: tuple[Value, ...] = ()
    copies: tuple[str, ...] = ()
    sparse: bool = False


def find_weights(side: UpdateSide) -> list[WeightInfo]:
    """The trained weights of a graph; AnatomyError where a gradient cannot be told."""
    return _Weights(side).find()


class _Weights:
    def __init__(self, side: UpdateSide):
        self.side = side
        self.sources = GradientSources(side)

    def find(self) -> list[WeightInfo]:
        written = self.side.written
        hits: dict[str, dict[Node, None]] = {}
        fixed: dict[str, tuple[Value, ...]] = {}
        for name, nodes in written.items():
            parameter = any(self._is_parameter(n, self.side.graph.states[name]) for n in nodes)
            if name not in self.side.read and not parameter:
                continue
            found = {g: None for node in nodes for g in self.sources.gradients(node, linear=True)}
            if not found and parameter:
                self._refuse_accumulated(name, nodes)
            if not found:
                found = {g: None for node in nodes for g in self.sources.gradients(node, linear=False)}
            if not found and parameter:
                fixed[name] = self._handed(name, nodes)
            if found or fixed.get(name) or (parameter and self._takes_nothing(nodes)):
                hits[name] = found
            elif parameter:
                raise AnatomyError(self._no_gradient(name, nodes))
        self._disentangle(hits)
        served = self._served(hits)
        read = self.side.read
        return [
            WeightInfo(
                name,
                tuple(found),
                tuple(written[name]),
                tuple(s for s in served.get(name, ()) if s not in read),
                fixed.get(name, ()),
                tuple(s for s in served.get(name, ()) if s in read),
                any(map(self.sources.brings_rows, written[name])),
            )
            for name, found in hits.items()
        ]

    def _refuse_accumulated(self, weight: str, updates: list[Node]) -> None:
        """AnatomyError where updates take state to which this step adds gradients: the cell accumulates by itself."""
        for value, _ in walk(self._starts(updates), self._through_loads):
            if isinstance(value, State) and value.name not in self.side.read:
                writes = self.side.written.get(value.name, ())
                adding = [n for n in writes if self.sources.gradients(n, linear=True)]
                if adding and len(writes) > 1:
                    raise AnatomyError(
                        f"graph '{self.side.graph.name}' accumulates already: it adds gradients up in state "
                        f"'{value.name}' (by %{adding[0].name}) and updates '{weight}' from there. Export the training "
                        "cell without accumulation of its own, and ask for gradient-accumulation; or leave out "
                        "the passes that work on gradients."
                    )

    def _no_gradient(self, weight: str, updates: list[Node]) -> str:
        """Why an update has no gradient: the cell puts gradients into another shape, or takes none."""

        def following(value: Value) -> Iterable[Value]:
            if isinstance(value, Input):
                return self.side.bound.get(value, ())
            own = isinstance(value, Node) and self.side.parts.get(value) not in (FORWARD, BACKWARD)
            return carried_operands(value) if own else ()

        above = walk([v for n in updates for v in self.sources.operands(n)], following)
        update = f"weight '{weight}': its update by {site(updates[0])}"
        if any(isinstance(v, Node) and self.side.parts.get(v) == BACKWARD for v in above):
            return (
                f"{update} takes what the cell makes of gradients in other shapes (joined to one tensor, say), and "
                "which part of it is the weight's gradient cannot be told: work on each gradient in its own shape, or "
                "leave out the passes that work on gradients"
            )
        return (
            f"{update} takes no gradient that MindSpore derived from the loss: take it by ops.value_and_grad or "
            "ops.GradOperation, or leave out the passes that work on gradients"
        )

    def _starts(self, updates: list[Node]) -> list[Place]:
        return [(v, ()) for n in updates for v in self.sources.operands(n)]

    def _through_loads(self, place: Place) -> list[Place]:
        """The values above one of the update side, the states that it reads included."""
        value, calls = place
        if isinstance(value, Input):
            return actuals(value, calls, self.side.bound)
        if not isinstance(value, Node) or self.side.parts.get(value) in (FORWARD, BACKWARD):
            return []
        return (
            [(value.operand(0), calls)] if value.op.name == "Load" else self.sources.upward(value, calls, linear=True)
        )

    def _handed(self, weight: str, updates: list[Node]) -> tuple[Value, ...]:
        """What an update is handed where autodiff had nothing left to compute: a value of the forward part or an input,
        as a loss that is linear in the weight has for a derivative, another weight, or itself; else constants."""
        own = self.side.graph.states[weight]
        taking = [node for node in updates if self._is_parameter(node, own)]
        computed: list[Value] = []
        itself: list[Value] = []
        constants: list[Value] = []
        kept = False  # the cell hands on what it has kept: the weight beside it is a decay
        bare = set(walk([v for node in taking for v in self.sources.operands(node)], _summands))
        for value in dict.fromkeys(value for value, _ in walk(self._starts(taking), self._computed)):
            if isinstance(value, Constant) and isinstance(value.value, TensorValue):
                constants.append(value)
            elif isinstance(value, Input) and value in self.side.graph.inputs and isinstance(value.type, TensorType):
                computed.append(value)
            elif isinstance(value, Node) and self.side.parts.get(value) in (FORWARD, BACKWARD):
                loads = value.op.name == "Load" and own in states_behind(value.operand(0), self.side.bound)
                if not loads:
                    computed.append(value)
                elif value in bare:  # one that is multiplied by something is a decay
                    itself.append(value)
            elif isinstance(value, State):  # its memory, as it is when the update comes
                (itself if value is own else computed).append(value)
            elif isinstance(value, Node) and value.op.name == "Load":
                kept = kept or own not in states_behind(value.operand(0), self.side.bound)
        return tuple(computed or (() if kept else itself or constants))

    def _computed(self, place: Place) -> list[Place]:
        """As :meth:`_through_loads`, but for what stands behind a Load."""
        value, _ = place
        return [] if isinstance(value, Node) and value.op.name == "Load" else self._through_loads(place)

    def _takes_nothing(self, updates: list[Node]) -> bool:
        """Whether the updates take no value of this step's forward or backward: the loss does not depend on the
        weight, and the exporter put a constant in the place of its gradient."""

        def following(value: Value) -> Iterable[Value]:
            if isinstance(value, Input):
                return self.side.bound.get(value, ())
            return value._operands if isinstance(value, Node) and value.op.name not in ("Load", "UpdateState") else ()

        def gives(value: Value) -> bool:
            if isinstance(value, Input):
                return not self.side.bound.get(value)
            computes = isinstance(value, Node) and value.op.name not in ("Load", "UpdateState")
            return computes and (self.side.parts.get(value) in (FORWARD, BACKWARD) or value.op is CALL)  # type: ignore[call-overload, attr-defined]

        return not any(map(gives, walk([v for n in updates for v in self.sources.operands(n)], following)))

    def _is_parameter(self, node: Node, state: State) -> bool:
        """Whether ``node`` is an optimizer primitive and ``state`` the weight it updates."""
        fact = facts(node.op)
        slots_alone = node.op.name == "AdamNoUpdateParam"
        if fact.gradient is None or not fact.writes or slots_alone:
            return False
        return state in states_behind(node.operand(fact.writes[0]), self.side.bound)

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
                if other != name and hits[other].keys() != found.keys():  # a weight and its tied copy share one sum
                    nodes = ", ".join(site(n) for n in found)
                    raise AnatomyError(
                        f"weights '{other}' and '{name}' both seem to use gradient {site(g)} (candidates: {nodes})"
                    )

    def _served(self, hits: dict[str, dict[Node, None]]) -> dict[str, list[str]]:
        """Slots and copies by weight: the other states that its update writes, and those whose own updates take its
        gradient or itself. A state that several weights share is a hyperparameter of the optimizer, not a slot."""
        written = self.side.written
        owner_of_gradient = {g: name for name, found in hits.items() for g in found}
        owner_of_update = {node: name for name in hits for node in written[name]}
        takers = _Takers(self.sources, written, hits)
        served: dict[str, list[str]] = {}
        for name, nodes in written.items():
            if name in hits:
                continue
            owners = {owner_of_update[n] for n in nodes if n in owner_of_update}
            # First what keeps its shape (moments). A slot may have another one: sums over rows, a preconditioner.
            for reshaped in (False, True):
                if owners:
                    break
                for node in nodes:
                    for source in self.sources.sources(node, linear=False, reshaped=reshaped):
                        if source in owner_of_gradient:
                            owners.add(owner_of_gradient[source])
                        elif source.op.name == "Load":
                            owners.update(
                                s.name for s in states_behind(source.operand(0), self.side.bound) if s.name in hits
                            )
            if len(owners or (owners := takers.of(name))) == 1:
                served.setdefault(next(iter(owners)), []).append(name)
        return served


def _summands(value: Value) -> Sequence[Value]:
    """What a value is a copy, or the sum, of."""
    return carried_operands(value) if isinstance(value, Node) and value.op.name in _SUMMING else ()


class _Takers:
    """Which weights' updates take a state of many elements, each for its own: a slot that is made of the gradient by
    way of other shapes (AdaMax's, of a row of two). One number may be anything that weights share (a loss scale)."""

    def __init__(self, sources: GradientSources, written: Mapping[str, Sequence[Node]], weights: Iterable[str]):
        self.sources, self.written, self.weights = sources, written, list(weights)

    def of(self, name: str) -> set[str]:
        type_ = self.sources.side.graph.states[name].type
        if not isinstance(type_, TensorType) or type_.size == 1:
            return set()
        return self._found.get(name, set())

    @cached_property
    def _found(self) -> dict[str, set[str]]:
        found: dict[str, set[str]] = {}
        for weight in self.weights:
            for node in self.written[weight]:
                for source in self.sources.sources(node, linear=False):
                    if source.op.name == "Load":
                        for state in states_behind(source.operand(0), self.sources.side.bound):
                            found.setdefault(state.name, set()).add(weight)
        return found
