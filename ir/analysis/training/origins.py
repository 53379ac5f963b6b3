"""Where the results of a graph come from, through the tuples, branches and calls that merely pass them on.

What follows an ``if`` in a training cell stands in the branches: MindSpore moves the rest of ``construct``, its
``return`` too, into the functions that a Switch calls. So a loss may come out of a call that updates the weights, or
may be computed in each branch (``loss / scale``), though it depends on no update.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from ...core.attributes import bits
from ...core.graph import Constant, Graph, Input, Node, State, Value
from ...core.op import CALL
from ...core.predicates import is_pure
from ...core.primitives import Family, facts
from ...core.types import TupleType, Type
from ...core.walk import carried_operands, walk, without_order
from ..effects.state_access import describe, states_behind, summarize
from ..functions.calls import bindings
from .interpretation import (
    CHOICE,
    LEAF,
    NETWORK,
    NOTHING,
    OPERATION,
    READ,
    Interpretation,
    Term,
    element,
    interpret,
)


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
    looked into no further. ``done``: the update side, if at hand. Linear in the terms behind what is asked for.

    A node of the main graph is its own origin, unless it takes something out of functions that has another one."""

    def __init__(self, graph: Graph, parts: Mapping[Node, str], done: Interpretation | None = None):
        self.graph, self.parts = graph, parts
        self.done = interpret(graph, parts) if done is None else done
        self._known: dict[Term, Origin | None] = {NOTHING: None}
        self._constants: dict[Hashable, Constant] = {}
        self._computed: dict[Hashable, Computed] = {}

    def results(self) -> list[Result]:
        """The results of the graph."""
        found: list[Result] = []
        stack: list[tuple[tuple[int, ...], Type, Term | None]] = [((), self.graph.result.type, self.done.result)]
        while stack:
            path, type_, term = stack.pop()
            if isinstance(type_, TupleType) and not type_.dynamic:
                for i in reversed(range(len(type_.elements))):
                    item = None if term is None else element(term, i, NOTHING.value)
                    stack.append(((*path, i), type_.elements[i], item))
            else:
                origin, state = (None, None) if term is None else (self.of(term), self._read(term))
                found.append(Result(path, type_, origin, state))
        return found

    def _read(self, term: Term) -> State | None:
        """The state that a term reads or copies."""

        def behind(term: Term) -> Sequence[Term]:
            copied = term.kind == OPERATION and facts(term.value.op).family is Family.COPY  # type: ignore[attr-defined]
            if term.state is not None or not (copied or term.kind in (READ, CHOICE)):
                return ()
            return term.operands[1:] if term.kind == CHOICE else term.operands[:1]

        ends = {here.state for here in walk([term], behind) if not behind(here)}
        return ends.pop() if len(ends) == 1 else None

    def of(self, term: Term) -> Origin | None:
        """The value of the main graph that a term is, or what functions compute from such; None where neither can be
        told."""
        new = walk([term], lambda here: () if here in self._known else here.operands)
        for here in sorted((here for here in new if here not in self._known), key=lambda here: here.number):
            self._known[here] = self._origin(here)
        return self._known[term]

    def _origin(self, term: Term) -> Origin | None:
        """The origin of a term, those of its operands being known."""
        value = term.value
        if term.state is not None:
            return term.state
        if term.kind == LEAF:
            if not isinstance(value, Constant):
                return value
            return self._constants.setdefault((bits(value.value), value.type), value)
        itself = value if isinstance(value, Node) and value.graph is self.graph else None
        behind = [self._known[operand] for operand in term.operands]
        if term.kind == CHOICE:
            return behind[1] if behind[1] is behind[2] and behind[1] is not None else itself
        assert isinstance(value, Node)
        if term.kind == READ and value.op.name != "Load":
            return itself if behind[0] is None else behind[0]
        if itself is not None and (not value.num_operands or not is_pure(value) or None in behind):
            return itself
        if None in behind or not (is_pure(value) or self._is_steady(behind[0])):
            return None
        same = (o is without_order(v) or isinstance(o, Constant) for o, v in zip(behind, value._operands, strict=False))
        if itself is not None and all(same):
            return itself
        origins = tuple(o for o in behind if o is not None)
        return self._computed.setdefault((value.op.key, origins, value.type), Computed(value, origins))

    def _is_steady(self, origin: Origin | None) -> bool:
        """Whether this is a state that nothing in the graph writes."""
        return isinstance(origin, State) and origin not in self._written

    @cached_property
    def _written(self) -> set[Value]:
        known, bound = summarize(self.graph), bindings(self.graph)
        effects = (describe(node, known) for node in self.graph)
        writes = (value for effect in effects if effect is not None for value in effect.writes)
        return {state for value in writes for state in states_behind(value, bound)}

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


def image(graph: Graph, parts: Mapping[Node, str], done: Interpretation, value: Value) -> Value | None:
    """The input, or the value of forward or backward, that a value of the main graph merely passes on; None where the
    update side computes it."""

    def is_own(value: Value) -> bool:
        own = isinstance(value, Node) and value.graph is graph and parts.get(value) in NETWORK
        return own or value in graph.inputs

    def passed(term: Term) -> Sequence[Term]:
        if term.kind not in (READ, CHOICE) or term.name == "Load" or is_own(term.value):
            return ()
        return term.operands[-2:]

    thing = done.terms.get(value)
    start = thing if isinstance(thing, Term) else Term(LEAF, value)
    images = {term.value if is_own(term.value) else None for term in walk([start], passed) if not passed(term)}
    return images.pop() if len(images) == 1 else None


def passed_on(graph: Graph, parts: Mapping[Node, str], values: Iterable[Value]) -> list[Value | None]:
    """The :func:`image` of each value."""
    done = interpret(graph, parts)
    return [image(graph, parts, done, value) for value in values]
