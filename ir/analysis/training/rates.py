"""What an update multiplies by: the learning rate that it takes, and whether it decays its weight.

An update that is one primitive says which operand is the rate, and which the decay. One that is made of several writes
a sum of terms. The rate is the state by which all terms are multiplied that are not the weight's own. A weight decays
where it stands in the sum times something. For example, ``%rate`` here, and ``%w`` decays::

    state %w: float32[2]
    state %m: float32[2]
    state %rate: float32[]
    graph @step(%x: float32[2]) {
      %w0 = Load(%w, umonad) : float32[2] primal {unique_id = "1"}
      %y = Mul(%w0, %x) : float32[2] primal {unique_id = "2"}
      %g = Mul(%x, %x) : float32[2] primal {forward_unique_id = "2"}
      %m0 = Load(%m, umonad) : float32[2]
      %mean = Add(%m0, %g) : float32[2]
      %kept = Assign(%m, %mean, umonad) : float32[2]
      %decay = Mul(%w0, float32[]<0.1>) : float32[2]
      %direction = Add(%mean, %decay) : float32[2]
      %r0 = Load(%rate, umonad) : float32[]
      %move = Mul(%direction, %r0) : float32[2]
      %new = AssignSub(%w, %move, umonad) : float32[2]
      %t = UpdateState(umonad, %kept, %new)
      %result = Depend(%y, %t)
      return %result
    }
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from ...core.attributes import scalar_of
from ...core.graph import Constant, Graph, Input, Node, State, Use, Value
from ...core.primitives import Family, facts, named
from ...core.program import Program
from ...core.types import TensorType
from ...core.walk import carried_operands, walk
from ..effects.state_access import location, states_behind
from ..functions.calls import bindings
from ..functions.closures import Closures
from .gradient_path import PASSING, gradient_paths
from .gradient_sources import ASSIGNING
from .own_writes import own_writes
from .stages import GradientPath

_PASSING = PASSING | named(Family.RESHAPE) | {"Load", "TensorToScalar"}
_SUMS = named(Family.SUM, Family.DIFFERENCE) | {"Neg", "MakeTuple"}
_OWN = frozenset({"FusedAdaFactor", "FusedAdaFactorWithGlobalNorm"})
"""Optimizers that may have computed the rate by themselves: that is none to be set."""
_PRODUCTS, _QUOTIENTS = named(Family.PRODUCT), named(Family.QUOTIENT)


@dataclass(frozen=True, slots=True)
class _Term:
    """A summand of what an update writes. ``rates``: the states, and the elements of lists, by which it is multiplied.
    ``times``: whether anything multiplies it."""

    use: Use
    rates: frozenset[Value]
    times: bool

    @property
    def value(self) -> Value:
        return self.use[0].operand(self.use[1])


class Updates:
    """The updates of weights in a graph. Its program says which states are hyperparameters. Linear in nodes for each
    update and each product of rates in it."""

    def __init__(self, program: Program, graph: Graph):
        self.program, self.graph = program, graph
        self._closures = Closures(graph)
        self._bound = bindings(graph)

    def rates(self, update: Node) -> list[tuple[Value, Use]]:
        """What an update takes as its learning rate, each with who takes it; several where nothing tells which of them
        it is, or where a function takes another at each call. None where it has none that can be told."""
        at = facts(update.op).rate
        if at is not None:
            own = update.op.name in _OWN
            return [
                (source, use) for source, use in self._sources((update, at)) if not (own and isinstance(source, Node))
            ]
        terms = [term for term in self._terms(update) if not self._is_weight(term.value, update)]
        terms = [term for term in terms if self._follows(term.value)] or terms
        common = frozenset[Value].intersection(*(term.rates for term in terms)) if terms else ()
        return [(rate, use) for rate in common for use in rate.use_sites()]

    def decays(self, weight: str, updates: Sequence[Node]) -> bool:
        """Whether the updates of a weight decay it: by their primitive, by a term of the gradient, or of the sum."""
        own = own_writes(self.graph) if len(updates) > 1 else {}
        return weight in self._decayed or any(self._decays(node) for node in updates if node not in own)

    def _decays(self, update: Node) -> bool:
        at = facts(update.op).decay
        if at is not None:
            return scalar_of(update.operand(at).literal) != 0.0
        if update.op.attributes.get("weight_decay"):
            return True
        moves = update.op.name != "Assign"
        return any((t.times or moves) and self._is_weight(t.value, update) for t in self._terms(update))

    @cached_property
    def _paths(self) -> list[GradientPath]:
        return gradient_paths(self.graph)

    @cached_property
    def _gradients(self) -> set[Value]:
        decays = ("weight-decay", "update")
        return {v for path in self._paths for p in path.points if p.stage not in decays for v in p.values}

    @cached_property
    def _decayed(self) -> set[str]:
        return {path.weight for path in self._paths if path.has("weight-decay")}

    def _is_weight(self, value: Value, update: Node) -> bool:
        """Whether a value is the weight that an update writes."""
        place = location(value.operand(0) if isinstance(value, Node) and value.op.name == "Load" else value)
        written = {s.name for s in states_behind(update.operand(0), self._bound)}
        return isinstance(place, (State, Input)) and any(s.name in written for s in states_behind(place, self._bound))

    def _holds_a_rate(self, source: Value) -> bool:
        """Whether a value is a number that the file keeps, or one of a list, and not a slot or a sum of numbers."""
        if isinstance(source, State):
            variable = self.program.state[source.name]
            return variable.role == "hyperparameter" and variable.dtype.is_float and variable.type.size == 1
        return list_of(source) is not None

    def _terms(self, update: Node) -> Iterator[_Term]:
        """The summands of what an update made of several primitives writes, with products of sums taken apart."""

        def below(term: _Term) -> list[_Term]:
            value = term.value
            if isinstance(value, Input):
                return [replace(term, use=use) for use in self._closures.bound.get(value, ())]
            if not isinstance(value, Node) or value in self._gradients:
                return []
            name = value.op.name
            if name in _PASSING:
                return [replace(term, use=(value, 0))]
            if name in _SUMS:
                return [replace(term, use=(value, k)) for k in range(value.num_operands)]
            if name in _QUOTIENTS:
                return [_Term((value, 0), term.rates, True)]
            return self._factors(term, value) if name in _PRODUCTS else []

        start = [_Term((update, 1), frozenset(), False)] if update.op.name in ASSIGNING else []
        for term in walk(start, below):
            if not below(term):
                yield self._of_primitive(term)

    def _factors(self, term: _Term, product: Node) -> list[_Term]:
        """What is left of a product without its numbers; nothing where it has none."""
        for k in (0, 1):
            number, other = product.operand(1 - k), product.operand(k)
            if _is_number(number) and (not _is_number(other) or self._follows(other)):
                rates = {source for source, _ in self._sources((product, 1 - k)) if self._holds_a_rate(source)}
                rates |= {v for v in walk([number], _multiplied) if self._holds_a_rate(v)}
                return [_Term((product, k), term.rates | rates, True)]
        return []

    def _of_primitive(self, term: _Term) -> _Term:
        """A primitive that computes the step of a weight, and leaves it to others to take it, has multiplied it."""
        at = facts(term.value.op).rate if isinstance(term.value, Node) else None
        if at is None or not isinstance(term.value, Node):
            return term
        return replace(term, rates=term.rates | {source for source, _ in self._sources((term.value, at))})

    def _follows(self, value: Value) -> bool:
        """Whether a value is made of a gradient of this step."""
        return any(v in self._gradients for v in walk([value], self._above))

    def _above(self, value: Value) -> Sequence[Value]:
        if isinstance(value, Input):
            return [user.operand(i) for user, i in self._closures.bound.get(value, ())]
        return () if value in self._gradients else carried_operands(value)

    def _sources(self, start: Use) -> Iterator[tuple[Value, Use]]:
        """What an operand comes from: through what passes it on, and through factors that are constants. Each with who
        takes it."""

        def below(use: Use) -> list[Use]:
            value = use[0].operand(use[1])
            if isinstance(value, Input):
                return list(self._closures.bound.get(value, ()))
            if not isinstance(value, Node):
                return []
            if value.op.name in _PRODUCTS and any(isinstance(o, Constant) for o in value.operands[:2]):
                return [(value, int(isinstance(value.operand(0), Constant)))]
            return [(value, 0)] if value.op.name in _PASSING else []

        return ((user.operand(i), (user, i)) for user, i in walk([start], below) if not below((user, i)))


def list_of(source: Value) -> State | None:
    """The list from which a number is taken (by the number of updates)."""
    if isinstance(source, Node) and facts(source.op).family is Family.LOOKUP:
        rates = source.operand(0)
        where = location(rates.operand(0) if isinstance(rates, Node) and rates.op.name == "Load" else rates)
        return where if isinstance(where, State) else None
    return None


def _is_number(value: Value) -> bool:
    return isinstance(value.type, TensorType) and value.type.is_static and value.type.size == 1


def _multiplied(value: Value) -> Sequence[Value]:
    """The factors of a number, but for what it is divided by."""
    if not isinstance(value, Node) or value.op.name not in _PASSING | _PRODUCTS | _QUOTIENTS:
        return ()
    return value.operands[: 2 if value.op.name in _PRODUCTS else 1]
