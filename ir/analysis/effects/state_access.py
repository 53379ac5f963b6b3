"""Effects on state: which state a node reads, which it writes in place, through functions and views too.

A location is what a value names: a state, an input of a function that stands for one, or, for tensors written in
place, the node that made them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from ...core.graph import Constant, Graph, Input, Node, State, Value
from ...core.op import CALL
from ...core.predicates import has_token, is_effect, written_operands
from ...core.types import IOMONAD, UMONAD, is_monad
from ...core.walk import through, walk
from ..functions.calls import callees_first, targets

_NOTHING: frozenset[Value] = frozenset()


@dataclass(slots=True, eq=False)
class Effect:
    """One effect: what it reads and writes (state values, or a function's inputs that stand for state). Nobody changes
    one; that is not enforced, which would double the time that a list of them takes.

    ``everything``: it may touch any state (an unknown closure). ``passive``: it changes nothing and lives only while
    its value is used (Load, a call that only reads, a Depend in mid-graph). ``initial``: a Load of what the state holds
    before all writes, wherever it stands in a list that is being edited.
    """

    node: Node
    reads: frozenset[Value] = _NOTHING
    writes: frozenset[Value] = _NOTHING
    everything: bool = False
    io: bool = False
    passive: bool = False
    initial: bool = False

    @property
    def touched(self) -> frozenset[Value]:
        return self.reads | self.writes if self.writes else self.reads

    def moved(self, twin: Mapping[Value, Value]) -> Effect:
        """The same effect in a clone; ``twin`` as :meth:`Graph.clone` gives it. What was not cloned still tells one
        memory from another."""
        node = twin[self.node]
        assert isinstance(node, Node)
        reads = frozenset([twin.get(v, v) for v in self.reads])
        writes = frozenset([twin.get(v, v) for v in self.writes]) if self.writes else self.writes
        return Effect(node, reads, writes, self.everything, self.io, self.passive, self.initial)


@dataclass(slots=True)
class Summary:
    """The effects of a function, by position of its inputs."""

    reads: set[int] = field(default_factory=set)
    writes: set[int] = field(default_factory=set)
    everything: bool = False
    io: bool = False


def location(value: Value) -> Value | None:
    """The state that a value names, through Depend and in-place writes (their result is the state); None for none."""
    if isinstance(value, State):  # this and the next are what most operands are, so they are told at once
        return value
    if isinstance(value, Node) and value.op.name != "Depend" and not getattr(value.type, "ref", ""):
        return None
    where = place(value)
    return None if isinstance(where, Node) else where


def state_behind(value: Value) -> State | None:
    """The state that a value is, or is a Load or a copy of; None if it is neither."""
    where = location(through(value, ("Load", "Depend", "TensorMove")))
    return where if isinstance(where, State) else None


def place(value: Value) -> Value | None:
    """The memory behind a value written in place: a state, or the node that made the tensor (as in ``x += y``)."""
    if isinstance(value, State):
        return value
    while isinstance(value, Node):
        if value.op.name == "Depend":
            value = value.operand(0)
        elif getattr(value.type, "ref", "") and is_effect(value) and (at := written_operands(value)):
            value = value.operand(at[0])
        else:
            return value
    return value if isinstance(value, (State, Input)) and not is_monad(value.type) else None


def states_behind(value: Value, bound: Mapping[Input, Sequence[Value]]) -> list[State]:
    """The states that a location stands for, through function inputs (``bound``: :func:`.calls.bindings`)."""
    start = location(value)
    if isinstance(start, State):
        return [start]

    def following(here: Value) -> list[Value]:
        given = bound.get(here, ()) if isinstance(here, Input) else ()
        return [where for v in given if (where := location(v)) is not None]

    return [here for here in walk([] if start is None else [start], following) if isinstance(here, State)]


def summarize(main: Graph) -> dict[str, Summary]:
    """The effects of each function of ``main`` on its inputs: the least fixed point, so recursion (loops) is exact."""
    known = {name: Summary() for name in main.functions}
    order = callees_first(main)
    changed = True
    while changed:
        changed = False
        for function in order:
            summary = _summary(function, known)
            if summary != known[function.name]:
                known[function.name] = summary
                changed = True
    return known


def _summary(function: Graph, known: dict[str, Summary]) -> Summary:
    summary = Summary()
    position: dict[Value, int] = {v: i for i, v in enumerate(function.inputs)}
    for node in function:
        effect = describe(node, known)
        if effect is None or node.op.name == "Depend":
            continue  # a Depend orders inside the function, it touches nothing
        summary.everything |= effect.everything
        summary.io |= effect.io
        summary.reads.update(position[v] for v in effect.reads if v in position)
        summary.writes.update(position[v] for v in effect.writes if v in position)
    return summary


def describe(node: Node, known: Mapping[str, Summary]) -> Effect | None:
    """The effect of a node on state; None for a pure node. ``known``: :func:`summarize` of the main graph."""
    op, operands = node.op, node._operands
    if op.deals_in_tokens:
        if op.name == "Load":
            where = place(node.operand(0))
            return Effect(node, _NOTHING if where is None else frozenset((where,)), passive=True)
        # In mid-graph, a Depend on a token waits for all that came before it.
        waits = op.name == "Depend" and is_monad(node.operand(1).type)
        return Effect(node, everything=True, passive=True) if waits else None
    if op is CALL:
        return _describe_call(node, known)
    token = operands[-1].type if has_token(node) else None
    if token is None and not op.acts:
        return None
    reads: list[Value] = []
    for value in operands if token is None else operands[:-1]:
        if value.__class__ is State:  # as most are
            reads.append(value)
        elif value.__class__ is not Constant and (where := location(value)) is not None:
            reads.append(where)
    writes: list[Value] = []
    for i in written_operands(node):
        value = operands[i]
        where = value if value.__class__ is State else place(value)
        if where is not None:
            writes.append(where)
    io = (token is not UMONAD and token == IOMONAD) or (op.acts and bool(op.attributes.get("side_effect_io")))
    return Effect(node, frozenset(reads), frozenset(writes), io=io)


def _describe_call(node: Node, known: Mapping[str, Summary]) -> Effect | None:
    reached = targets(node)
    if reached is None:
        # MindSpore passes a token to every call that may have effects; a closure called without one is pure.
        return Effect(node, everything=True) if has_token(node) else None
    reads: set[Value] = set()
    writes: set[Value] = set()
    everything = io = False
    for target in reached:
        summary = known[target.function.name]
        everything |= summary.everything
        io |= summary.io
        for positions, into in ((summary.reads, reads), (summary.writes, writes)):
            for i in positions:
                where = location(target.arguments[i]) if i < len(target.arguments) else None
                if where is not None:
                    into.add(where)
    if not (reads or writes or everything or io):
        return None
    passive = not (writes or everything or io)
    return Effect(node, frozenset(reads), frozenset(writes), everything, io, passive=passive)
