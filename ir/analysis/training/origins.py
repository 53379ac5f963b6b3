"""Where the results of a graph come from, through the tuples, branches and calls that merely pass them on.

What follows an ``if`` in a training cell stands in the branches: MindSpore moves the rest of ``construct``, its
``return`` too, into the functions that a Switch calls. So a loss may come out of a call that updates the weights, or
may be computed in each branch (``loss / scale``), though it depends on no update.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from ...core.attributes import bits
from ...core.graph import Constant, Graph, Input, Node, State, Value
from ...core.op import CALL
from ...core.predicates import is_pure
from ...core.primitives import Family, facts
from ...core.types import TupleType, Type, is_monad
from ...core.walk import carried_operands, result_value, walk, without_order
from ..effects.state_access import Summary, describe, state_behind, states_behind, summarize
from ..functions.calls import Calls, actuals, bindings, entered, items_within, picked_within, targets

NETWORK = ("forward", "backward")

Place = tuple[Value, Calls]
"""A value, and the calls that were entered on the way to it."""


@dataclass(frozen=True, slots=True, eq=False)
class Computed:
    """A pure computation of functions from values of the main graph; one object for all branches that compute the same.
    ``node`` is one of the nodes that do."""

    node: Node
    operands: tuple[Origin, ...]


Origin = Value | Computed


@dataclass(frozen=True, slots=True)
class Result:
    """One of the values that a graph returns, those of nested tuples each for itself. ``path``: the indices that lead
    to it. ``origin``: None where branches differ in it, or where an effect gives it. ``state``: the one that it is
    read from, before or after a write, in every branch."""

    path: tuple[int, ...]
    type: Type
    origin: Origin | None
    state: State | None


class Origins:
    """The origins of values of one main graph. ``parts``: what is known to be forward or backward; such nodes are
    looked into no further. Linear in the nodes behind what is asked for.

    A node of the main graph is its own origin, unless it takes something out of functions that has another one."""

    def __init__(
        self,
        graph: Graph,
        parts: Mapping[Node, str],
        bound: Mapping[Input, Sequence[Value]] | None = None,
        known: dict[str, Summary] | None = None,
    ):
        self.graph = graph
        self.parts = parts
        self.bound = (bindings(graph) if graph.functions else {}) if bound is None else bound
        self._summaries = known
        self._inputs = set(graph.inputs)
        self._known: dict[Place, Origin | None] = {}
        self._constants: dict[Hashable, Constant] = {}
        self._computed: dict[Hashable, Computed] = {}
        self._states: set[Value] | None = None

    def results(self) -> list[Result]:
        """The results of the graph."""
        found: list[Result] = []
        stack: list[tuple[tuple[int, ...], Type, list[Place] | None]] = [
            ((), self.graph.result.type, [(result_value(self.graph), ())])
        ]
        while stack:
            path, type_, places = stack.pop()
            if isinstance(type_, TupleType) and not type_.dynamic:
                stack.extend(
                    ((*path, i), type_.elements[i], self._items(places, i))
                    for i in reversed(range(len(type_.elements)))
                )
            else:
                found.append(Result(path, type_, self._common(places), self._read_from(places or ())))
        return found

    def _read_from(self, places: Sequence[Place]) -> State | None:
        """The state that all places read or copy."""

        def behind(place: Place) -> list[Place]:
            value, calls = place
            if isinstance(value, Node) and (value.op.name == "Load" or facts(value.op).family is Family.COPY):
                return [(value.operand(0), calls)]
            if isinstance(value, Node) and not self._passes_on(value):
                return []
            sources = self._behind(value, calls)
            return sources if isinstance(sources, list) else []

        ends = {state_behind(place[0]) for place in walk(places, behind) if not behind(place)}
        return ends.pop() if len(ends) == 1 else None

    def _items(self, places: list[Place] | None, i: int) -> list[Place] | None:
        found: dict[Place, None] = {}
        for value, calls in places or ():
            items = items_within(value, i, calls, self.bound)
            if items is None:
                return None
            found.update(dict.fromkeys(items))
        return list(found) or None

    def _common(self, places: Sequence[Place] | None) -> Origin | None:
        origins = {self.of(*place) for place in places or ()}
        return origins.pop() if len(origins) == 1 else None

    def of(self, value: Value, calls: Calls = ()) -> Origin | None:
        """The value of the main graph that ``value`` is, or what functions compute from such; None where neither can
        be told."""
        stack: list[Place] = [(value, calls)]
        opened: set[Place] = set()
        while stack:
            place = stack[-1]
            behind = None if place in self._known else self._behind(*place)
            if isinstance(behind, list):
                missing = [p for p in behind if p not in self._known]
                if missing and place not in opened:
                    opened.add(place)
                    stack.extend(missing)
                    continue
                # What is missing still depends on the place itself: a loop.
                for p in missing:
                    self._known[p] = None
                self._known[place] = self._joined(place[0], behind)
            elif place not in self._known:
                self._known[place] = behind
            stack.pop()
        return self._known[(value, calls)]

    def _behind(self, value: Value, calls: Calls) -> Value | list[Place] | None:
        """The origin of a value, or the places that it is made from, see :meth:`_joined`; None: it cannot be told."""
        if isinstance(value, Constant):
            return None if is_monad(value.type) else self._constants.setdefault((bits(value.value), value.type), value)
        if isinstance(value, State) or value in self._inputs:
            return value
        if isinstance(value, Input):
            return actuals(value, calls, self.bound) or None
        if not isinstance(value, Node):
            return None
        outside = value.graph is self.graph
        if outside and self.parts.get(value) in NETWORK:
            return value
        if value.op.name == "Depend":
            return [(value.operand(0), calls)]
        if (items := picked_within(value, calls, self.bound)) is not None:
            return items
        if value.op is CALL and (reached := targets(value)) and all(t.function.has_result for t in reached):
            within = entered(calls, value)
            return [(t.function.result, within) for t in reached]
        if value.op.name == "Load" and not outside:
            return [(value.operand(0), calls)]
        if is_pure(value) and value.op is not CALL and value.num_operands:
            return [(v, calls) for v in value._operands]
        return value if outside else None

    def _joined(self, value: Value, places: Sequence[Place]) -> Origin | None:
        """A value made from known places: they must be the same where ``value`` passes one of them on."""
        origins = [self._known[place] for place in places]
        outside = isinstance(value, Node) and value.graph is self.graph
        if not isinstance(value, Node) or self._passes_on(value):
            same = all(o is origins[0] for o in origins) and origins[0] is not None
            return origins[0] if same else value if outside else None
        if any(o is None for o in origins):
            return value if outside else None
        if outside and all(
            o is without_order(v) or isinstance(o, Constant) for o, v in zip(origins, value._operands, strict=True)
        ):
            return value
        if value.op.name == "Load" and not self._is_steady(origins[0]):
            return None
        key = (value.op.key, tuple(map(id, origins)), value.type)
        return self._computed.setdefault(key, Computed(value, tuple(o for o in origins if o is not None)))

    def _passes_on(self, node: Node) -> bool:
        if node.op.name == "TupleGetItem":
            return picked_within(node, (), self.bound) is not None
        return node.op is CALL or node.op.name == "Depend"

    def _is_steady(self, origin: Origin | None) -> bool:
        """Whether this is a state that nothing in the graph writes."""
        if self._states is None:
            known = summarize(self.graph) if self._summaries is None else self._summaries
            effects = (describe(node, known) for node in self.graph)
            writes = (value for effect in effects if effect is not None for value in effect.writes)
            self._states = {state for value in writes for state in states_behind(value, self.bound)}
        return isinstance(origin, State) and origin not in self._states

    def is_forward(self, origin: Origin | None) -> bool:
        """Whether this is computed from inputs and values of the forward part, with constants and with state that
        nothing writes: every micro-batch has it, whether or not it ends with an update."""
        fed = False
        for here in walk([] if origin is None else [origin], self._derived_from):
            if isinstance(here, Node):
                part = self.parts.get(here)
                fed |= part == "forward"
                if part == "backward" or (part != "forward" and not self._is_derived(here)):
                    return False
            elif not isinstance(here, (Computed, Constant, Input)):
                return False
            fed |= isinstance(here, Input)
        return fed

    def _derived_from(self, origin: Origin) -> Sequence[Origin]:
        if isinstance(origin, Computed):
            return origin.operands if origin.node.op.name != "Load" else ()
        if isinstance(origin, Node) and (origin.op.name == "Load" or self.parts.get(origin) == "forward"):
            return ()
        return carried_operands(origin)

    def _is_derived(self, node: Node) -> bool:
        if node.op.name == "Load":
            return self._is_steady(node.operand(0))
        return is_pure(node) and node.op is not CALL

    def leaves(self) -> Iterator[Value]:
        """The values of the main graph that its results are, or are computed from in functions."""
        origins = [r.origin for r in self.results() if r.origin is not None]
        for here in walk(origins, lambda o: o.operands if isinstance(o, Computed) else ()):
            if not isinstance(here, Computed):
                yield here
