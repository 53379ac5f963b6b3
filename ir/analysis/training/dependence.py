"""What updates take of the batch besides gradients: a window of micro-batches has no one value for it.

The loss decides about an update, a rate follows from it, an input is a step size. Such a value is carried to the update
only as the user says. A value that no state depends on is a result for a log, and one that updates ask for nothing but
whether it is finite is finite in the mean if it is in all micro-batches.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from ...core.graph import Input, Node, Value
from ...core.predicates import is_random
from ...core.primitives import Family, named
from ...core.types import is_monad
from ...core.walk import carried_operands, walk
from .anatomy import TrainingAnatomy
from .interpretation import Term
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
    varying = _varying(found)
    writes = [(write, [*write.versions[0].operands, *write.guards]) for write in found.side.done.writes]
    result = {
        term.value: Dependence()
        for term in walk([term for _, taken in writes for term in taken], _behind)
        if term.value in varying and _is_given(term.value, found)
    }
    for write, taken in writes if result else ():
        behind = {term.value for term in walk(taken, _behind)}
        hit = [value for value in result if value in behind]
        if not hit:
            continue
        untested = {term.value for term in walk(taken, _behind_but_tests)}
        gradients = any(isinstance(v, Node) and found.part(v) == BACKWARD for v in behind)
        for value in hit:
            dependence = result[value]
            dependence.writes[write.node] = None
            dependence.states.update(dict.fromkeys(sorted(v.state.name for v in write.versions if v.state)))
            dependence.tested &= value not in untested
            dependence.gradients |= gradients
    return result


def _is_given(value: Value, found: TrainingAnatomy) -> bool:
    """Whether this is an input or a value of the forward part."""
    return isinstance(value, Input) or (isinstance(value, Node) and found.part(value) == FORWARD)


def _behind(term: Term) -> Sequence[Term]:
    """What a value is computed from, but for what was put into state: that is judged where it was put there."""
    return () if term.state is not None else term.operands


def _behind_but_tests(term: Term) -> Sequence[Term]:
    return () if term.name in _TESTING else _behind(term)


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
