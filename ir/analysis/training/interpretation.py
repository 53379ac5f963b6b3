"""The update side of a step as a pure function: each value of it a term, without memory, tokens, calls and branches.

Nodes run in the order of the list. A place in memory holds a *version*: what it held when the step began, or what an
effect left there. A function runs once for each call, with the terms that it is given; a branch runs both ways, and
what comes of it is chosen by its condition. Forward and backward are taken as they are: their values are leaves. For
example::

    %m0 = Load(%m, umonad)                                             // reads: state m
    %mean = Add(%m0, %g)                                               // computes: Add(m, %g)
    %kept = Assign(%m, %mean, umonad)                                  // leaves: a version of m
    %t = UpdateState(umonad, %kept)
    %m1 = Load(%m, %t)                                                 // reads: that version
    %new = AssignSub(%w, %m1, %t)                                      // leaves: a version of w

A function that calls itself is followed once; what it gives itself is a term of what it takes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import count

from ...core.graph import Constant, Graph, GraphRef, Input, Node, State, Value
from ...core.op import CALL, MAKE_TUPLE
from ...core.predicates import is_effect, written_operands
from ...core.types import TensorType, Type, is_monad
from ...core.walk import walk, without_order
from ..effects.state_access import place

LEAF, READ, OPERATION, VERSION, CHOICE = "leaf", "read", "operation", "version", "choice"
"""A value that is not looked into; one that is passed on as it is; a primitive; what an effect leaves in a place; one
of two values, by a condition, which is the first operand."""
_PICKING = frozenset({"TupleGetItem", "list_getitem"})
NETWORK = ("forward", "backward")
_DEEPEST = 100


@dataclass(slots=True, eq=False)
class Term:
    """A value as it is computed in one call of its function. ``operands`` stand where those of the node do, and those
    that are tokens or functions are :data:`NOTHING`; of a call, the one is what it gives. ``state``: the place of a
    version, None for a tensor of the graph; the first version of a state is a leaf, which is the state."""

    kind: str
    value: Value
    operands: tuple[Term, ...] = ()
    state: State | None = None
    number: int = field(default_factory=count().__next__)

    @property
    def name(self) -> str:
        """The primitive, "" for a leaf."""
        return self.value.op.name if self.kind != LEAF and isinstance(self.value, Node) else ""

    @property
    def type(self) -> Type:
        if self.state is not None:
            return self.state.type
        return self.operands[1].type if self.kind == CHOICE else self.value.type


NOTHING = Term(LEAF, Constant("", None))


@dataclass(frozen=True, slots=True)
class Closure:
    function: Graph
    bound: tuple[Thing, ...] = ()


@dataclass(frozen=True, slots=True, eq=False)
class Choice:
    """One of two functions."""

    condition: Term
    yes: Thing
    no: Thing


@dataclass(frozen=True, slots=True)
class Tail:
    """A call with which a function ends, that is still to run. ``within``: the functions that end with it."""

    call: Node
    callee: Thing
    extra: tuple[Thing, ...]
    within: frozenset[Graph] = frozenset()


Thing = Term | State | Closure | Choice | None
"""What an operand is: a value, a place in memory, a function, a token."""


@dataclass(frozen=True, slots=True)
class Write:
    """An effect that leaves ``versions``, one for each place that it writes. ``guards``: the conditions on which it
    happens."""

    node: Node
    versions: tuple[Term, ...]
    guards: tuple[Term, ...]


@dataclass(slots=True)
class Interpretation:
    """``writes`` of the update side, in the order of the list, those of functions last; ``terms`` of the nodes of the
    main graph; ``result``: what it returns; ``decisions``: the conditions of all branches;
    ``closed``: a call that may write and was not followed, for functions call functions too often."""

    writes: list[Write] = field(default_factory=list)
    terms: dict[Value, Thing] = field(default_factory=dict)
    decisions: list[Term] = field(default_factory=list)
    closed: Node | None = None
    result: Term = NOTHING

    def versions(self) -> dict[str, list[Term]]:
        """What is left in each state that the update side writes, in order."""
        found: dict[str, list[Term]] = {}
        for write in self.writes:
            for version in write.versions:
                if version.state is not None:
                    found.setdefault(version.state.name, []).append(version)
        return found

    def followed(self, weights: Iterable[str]) -> set[Value]:
        """All on the update side that the updates of ``weights`` are computed from, by way of other state too, and all
        that a branch is chosen by. A cell may compute other things of its gradients, such as a norm to return."""
        versions = self.versions()

        def above(term: Term) -> Sequence[Term]:
            first = term.kind == LEAF and term.state is not None  # as the step before left it
            return versions.get(term.value.name, ()) if first else term.operands

        updates = [version for weight in weights for version in versions.get(weight, ())]
        return {term.value for term in walk([*updates, *self.decisions], above)}


def interpret(graph: Graph, parts: Mapping[Node, str]) -> Interpretation:
    """Runs the update side of a main graph. ``parts``: its forward and backward nodes. Linear in nodes for each call of
    the function in which they stand, and at most 40 times as many."""
    run = _Run(graph, parts)
    run.found.result = run.term(run.finish(run.body(graph, run.found.terms)))
    if graph.functions:
        place = {node: k for k, node in enumerate(graph.all_nodes())}
        run.found.writes.sort(key=lambda write: place[write.node])
    return run.found


class _Run:
    def __init__(self, graph: Graph, parts: Mapping[Node, str]):
        self.network = {node for node, part in parts.items() if part in NETWORK}
        self.found = Interpretation()
        self.leaves: dict[Value, Term] = {}
        self.functions: dict[Term, Closure | Choice] = {}
        """What terms of functions stand for."""
        self.memory: list[dict[State, Term]] = [{}]
        """What states hold; the changes that each open branch has made stand behind."""
        self.guards: tuple[Term, ...] = ()
        self.writes: dict[Graph, bool] = {}
        """Whether functions that have run write memory."""
        self.open: list[Graph] = []
        """The functions that are running."""
        self.left = 40 * (graph.total_nodes() + 1000)

    # -- values ------------------------------------------------------------------------------------------------

    def leaf(self, value: Value) -> Term:
        if value not in self.leaves:
            self.leaves[value] = Term(LEAF, value, (), value if isinstance(value, State) else None)
        return self.leaves[value]

    def held(self, state: State) -> Term:
        """What a state holds now."""
        for changes in reversed(self.memory):
            if state in changes:
                return changes[state]
        return self.leaf(state)

    def thing(self, value: Value, env: dict[Value, Thing]) -> Thing:
        if isinstance(value, (Node, Input)):
            if value in env:
                return env[value]
            if is_monad(value.type):
                return None
            if isinstance(value, Input) or value in self.network:
                return self.leaf(value)
            self.late(value, env)
            return env[value]
        if isinstance(value, State):
            return value
        if isinstance(value, GraphRef):
            return Closure(value.graph)
        return None if is_monad(value.type) else self.leaf(value)

    def term(self, thing: Thing) -> Term:
        if isinstance(thing, Term):
            return thing
        if isinstance(thing, (Closure, Choice)):  # in a tuple, say: a call may take it from there
            self.functions[found := Term(LEAF, NOTHING.value)] = thing
            return found
        return NOTHING if thing is None else self.held(thing)

    def function(self, thing: Thing) -> Thing:
        """What a call calls."""
        while isinstance(thing, Term) and thing.kind == READ:
            thing = thing.operands[0]
        if isinstance(thing, Term) and thing.kind == CHOICE:
            return Choice(*thing.operands)
        return self.functions.get(thing) if isinstance(thing, Term) else thing

    # -- a body ------------------------------------------------------------------------------------------------

    def body(self, graph: Graph, env: dict[Value, Thing], *, tail: bool = False) -> Thing | Tail:
        """What a body returns. ``tail``: the call with which it ends is given back."""
        last = without_order(graph.result) if tail else None
        self.left -= len(graph)
        for node in graph:
            if (node in self.network and node.op.name != "Load") or node in env:
                continue
            if node is last and node.op is CALL:
                return self.tail(node, env)
            self.node(node, env)
        return self.thing(graph.result, env)

    def late(self, node: Node, env: dict[Value, Thing]) -> None:
        """Runs a node that a pass has put behind who takes it, the list not being sorted yet, and what it takes."""
        stack = [node]
        while stack:
            given = (v for v in stack[-1]._operands if isinstance(v, Node) and not is_monad(v.type))
            missing = [v for v in given if v not in env and v not in self.network]
            if missing:
                stack += missing
            elif (here := stack.pop()) not in env:
                self.node(here, env)

    def tail(self, call: Node, env: dict[Value, Thing]) -> Tail:
        callee, *extra = [self.thing(v, env) for v in call._operands]
        return Tail(call, callee, tuple(extra))

    def node(self, node: Node, env: dict[Value, Thing]) -> None:
        name = node.op.name
        if name == "UpdateState":
            env[node] = None  # a file may give it a type that is not a token's
            return
        if node.op is CALL:
            env[node] = self.call(self.tail(node, env))
            return
        operands = [self.thing(v, env) for v in node._operands]
        first = operands[0] if operands else None
        if name == "Depend":
            env[node] = Term(READ, node, (first,)) if isinstance(first, Term) else first
        elif name == "Load":
            env[node] = Term(READ, node, (self.term(first),))
        elif name == "Partial":
            env[node] = Closure(first.function, (*first.bound, *operands[1:])) if isinstance(first, Closure) else None
        elif name == "Switch" and len(operands) == 3 and isinstance(operands[1], (Closure, Choice)):
            condition = self.term(first)
            self.found.decisions.append(condition)
            env[node] = self.either(node, condition, operands[1], operands[2])
        elif name in _PICKING:
            env[node] = self.picked(node, self.term(first), self.term(operands[1]))
        else:
            env[node] = self.primitive(node, operands, env)

    def primitive(self, node: Node, operands: Sequence[Thing], env: dict[Value, Thing]) -> Thing:
        taken = tuple([o if o.__class__ is Term else self.term(o) for o in operands])
        if not is_effect(node):
            return Term(OPERATION, node, taken)
        versions: list[Term] = []
        for i in written_operands(node):
            at = operands[i]
            state = at if isinstance(at, State) else None
            versions.append(version := Term(VERSION, node, taken, state))
            if state is not None:
                self.memory[-1][state] = version
            elif (made := place(node.operand(i))) is not None:  # a tensor: who reads it from now on reads this
                env[made] = env[node.operand(i)] = version
        if versions:
            self.found.writes.append(Write(node, tuple(versions), self.guards))
        itself = isinstance(node.type, TensorType) and bool(node.type.ref)
        return (versions[0].state or versions[0]) if versions and itself else Term(OPERATION, node, taken)

    @staticmethod
    def picked(node: Node, whole: Term, at: Term) -> Term:
        """An element of a tuple."""
        index = at.value.literal
        item = element(whole, index, node) if isinstance(index, int) else None
        return Term(OPERATION, node, (whole, at)) if item is None else Term(READ, node, (item,))

    # -- calls -------------------------------------------------------------------------------------------------

    def call(self, call: Tail) -> Thing:
        given = self.finish(self.enter(call))
        return Term(READ, call.call, (given,)) if isinstance(given, Term) else given

    def finish(self, given: Thing | Tail) -> Thing:
        while isinstance(given, Tail):
            given = self.enter(given)
        return given

    def enter(self, call: Tail) -> Thing | Tail:
        """Runs a function, up to the call with which it ends."""
        callee = self.function(call.callee)
        if isinstance(callee, Choice):
            self.left -= 10
            if self.left >= 0:
                return self.choose(call, callee)
            self.found.closed = call.call  # choices of choices: any function may be among them
        if not isinstance(callee, Closure) or callee.function in self.open or callee.function in call.within:
            return Term(OPERATION, call.call, (NOTHING, *map(self.term, call.extra)))
        function, given = callee.function, (*callee.bound, *call.extra)
        if (self.left < 0 and function in self.writes) or len(self.open) > _DEEPEST:
            self.found.closed = call.call if self.writes.get(function, True) else self.found.closed
            return Term(OPERATION, call.call, (NOTHING, *map(self.term, call.extra)))
        env: dict[Value, Thing] = dict(zip(function.inputs, given, strict=False))
        before = len(self.found.writes)
        self.open.append(function)
        found = self.body(function, env, tail=True)
        self.open.pop()
        self.writes[function] = len(self.found.writes) > before or isinstance(found, Tail)
        return replace(found, within=call.within | {function}) if isinstance(found, Tail) else found

    def choose(self, call: Tail, choice: Choice) -> Thing | Tail:
        """Runs both branches. Where they end with a call of one function, that runs once, on what they leave: each
        choice after another would double what is to be run."""
        outside, condition = self.guards, choice.condition
        self.guards = (*outside, condition)
        found: list[Thing | Tail] = []
        changes: list[dict[State, Term]] = []
        for callee in (choice.yes, choice.no):
            self.memory.append({})
            found.append(self.enter(replace(call, callee=callee)))
            changes.append(self.memory.pop())
        one, other = found
        if not _same_function(one, other):
            for k, end in enumerate(found):
                self.memory.append(changes[k])
                found[k] = self.finish(end)
                self.memory.pop()
        self.guards = outside
        for state in dict.fromkeys([*changes[0], *changes[1]]):
            before = self.held(state)
            both = [change.get(state, before) for change in changes]
            self.memory[-1][state] = Term(CHOICE, call.call, (condition, *both), state)
        one, other = found
        if isinstance(one, Tail) and isinstance(other, Tail):
            assert isinstance(one.callee, Closure)
            assert isinstance(other.callee, Closure)
            pairs = zip((*one.callee.bound, *one.extra), (*other.callee.bound, *other.extra), strict=True)
            given = tuple(self.either(one.call, condition, a, b) for a, b in pairs)
            return Tail(one.call, Closure(one.callee.function), given, one.within | other.within)
        assert not isinstance(one, Tail)
        assert not isinstance(other, Tail)
        return self.either(call.call, condition, one, other)

    def either(self, call: Node, condition: Term, yes: Thing, no: Thing) -> Thing:
        if yes is no or yes == no:
            return yes
        if isinstance(yes, (Closure, Choice)) or isinstance(no, (Closure, Choice)):
            return Choice(condition, yes, no)
        return Term(CHOICE, call, (condition, self.term(yes), self.term(no)))


def element(whole: Term, index: int, node: Value) -> Term | None:
    """An element of a tuple that the update side packs; None where it cannot be followed. ``node``: what takes it, of
    which the choice between two of them is."""
    while whole.kind == READ:
        whole = whole.operands[0]
    if whole.kind == CHOICE:
        yes, no = (element(one, index, node) for one in whole.operands[1:])
        if yes is None or no is None:
            return None
        return yes if yes is no else Term(CHOICE, node, (whole.operands[0], yes, no))
    if whole.name not in MAKE_TUPLE or not -len(whole.operands) <= index < len(whole.operands):
        return None
    return whole.operands[index]


def _same_function(one: Thing | Tail, other: Thing | Tail) -> bool:
    """Whether these are calls of one function, with as many arguments."""
    if not isinstance(one, Tail) or not isinstance(other, Tail):
        return False
    a, b = one.callee, other.callee
    if not isinstance(a, Closure) or not isinstance(b, Closure) or a.function is not b.function:
        return False
    return len(a.bound) + len(one.extra) == len(b.bound) + len(other.extra)
