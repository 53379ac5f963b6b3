"""What updates take of the batch besides gradients: a window of micro-batches has no one value for it.

The loss decides about an update, a rate follows from it, an input is a step size. Such a value is carried to the update
only as the user says. A value that no state depends on is a result for a log, and one that updates ask for nothing but
whether it is finite is finite in the mean if it is in all micro-batches.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from ...core.graph import Graph, Input, Node, Value
from ...core.op import CALL
from ...core.predicates import is_effect, is_random
from ...core.primitives import Family, named
from ...core.types import is_monad
from ...core.walk import carried_operands, walk
from ..effects.state_access import describe, states_behind
from ..functions.calls import picked, switch_behind, targets
from .anatomy import TrainingAnatomy
from .network import BACKWARD, FORWARD

_NETWORK = (FORWARD, BACKWARD)
_TESTING = named(Family.FINITE, Family.OVERFLOWED)


@dataclass(slots=True)
class Dependence:
    """What of the update follows from a value: ``writes``, of the named ``states``. ``tested``: it is asked for nothing
    but whether it is finite. ``gradients``: some of these writes take gradients too."""

    writes: dict[Node, None] = field(default_factory=dict)
    states: dict[str, None] = field(default_factory=dict)
    tested: bool = True
    gradients: bool = False


def dependences(found: TrainingAnatomy) -> dict[Value, Dependence]:
    """The forward values and inputs that differ from batch to batch, and what of the update side follows from them."""
    asked = _Update(found)
    writes = list(asked.writes())
    varying = _varying(found)
    result = {
        value: Dependence()
        for value in walk([v for node, _ in writes for v in asked.taken(node)], asked.behind)
        if value in varying and (found.part(value) == FORWARD if isinstance(value, Node) else isinstance(value, Input))
    }
    for node, states in writes if result else ():
        behind = set(walk(asked.taken(node), asked.behind))
        hit = [v for v in result if v in behind]
        if not hit:
            continue
        untested = set(walk(asked.taken(node), asked.behind_but_tests))
        gradients = any(isinstance(v, Node) and found.part(v) == BACKWARD for v in behind)
        for value in hit:
            dependence = result[value]
            dependence.writes[node] = None
            dependence.states.update(dict.fromkeys(states))
            dependence.tested &= value not in untested
            dependence.gradients |= gradients
    return result


class _Update:
    """The update side, walked from what is written to what that follows from."""

    def __init__(self, found: TrainingAnatomy):
        self.found = found
        self.calls: dict[Graph, list[Node]] = {}
        for node in found.graph.all_nodes():
            if node.op is CALL and found.part(node) not in _NETWORK:
                for target in targets(node) or ():
                    self.calls.setdefault(target.function, []).append(node)

    def writes(self) -> Iterator[tuple[Node, list[str]]]:
        """The nodes that write state, with its names."""
        for node in self.found.graph.all_nodes():
            if self.found.part(node) in _NETWORK or node.op is CALL or not is_effect(node):
                continue
            effect = describe(node, self.found.known)
            if effect is not None and effect.writes:
                yield node, sorted({s.name for v in effect.writes for s in states_behind(v, self.found.bound)})

    def taken(self, write: Node) -> list[Value]:
        """What a write takes, and what decides whether it happens."""
        return [v for v in write.operands if not is_monad(v.type)] + self._deciding(write)

    def _deciding(self, node: Node) -> list[Value]:
        def callers(here: Node) -> Sequence[Node]:
            return self.calls.get(here.graph, ()) if here.graph is not None else ()

        return [v for call in walk([node], callers) if call is not node for v in _condition(call)]

    def behind(self, value: Value) -> Sequence[Value]:
        if isinstance(value, Input):
            return self.found.bound.get(value, ())
        if not isinstance(value, Node) or self.found.part(value) in _NETWORK:
            return ()
        items = picked(value, self.found.bound)
        if items is not None:
            return [*items, *self._conditions(value)]
        if value.op is CALL and (reached := targets(value)):
            return [*(t.function.result for t in reached if t.function.has_result), *_condition(value)]
        return carried_operands(value)

    def _conditions(self, item: Node) -> list[Value]:
        """What chooses between the tuples that an element is taken of."""
        source = item.operand(0)
        return _condition(source) if isinstance(source, Node) and source.op is CALL else []

    def behind_but_tests(self, value: Value) -> Sequence[Value]:
        return () if isinstance(value, Node) and value.op.name in _TESTING else self.behind(value)


def _condition(call: Node) -> list[Value]:
    switch = switch_behind(call.operand(0))
    return [] if switch is None else [switch.operand(0)]


def _varying(found: TrainingAnatomy) -> set[Value]:
    """What may differ from one micro-batch to the next. Linear in nodes for each state that passes it on."""
    varying: set[Value] = {v for v in found.graph.inputs if not is_monad(v.type)}
    while True:
        before = len(varying)
        for node in found.graph:
            if node not in varying and (is_random(node) or not varying.isdisjoint(carried_operands(node))):
                varying.add(node)
        for effect in found.effects.writes():
            if effect.node in varying and found.part(effect.node) in _NETWORK:
                varying |= effect.writes
        if len(varying) == before:
            return varying
