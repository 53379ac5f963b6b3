"""A graph becomes a pure function: what it reads of its memory comes in as values, what it writes goes out as values.

The nodes of a body run in the order of the list, which is that of their effects where no two of them race
(:mod:`..analysis.effects.races`). What a place in memory holds then is a value: a *version*. A State, or a function's
input, stands for what the place holds at first. An effect takes the versions that it overwrites as operands, and gives
those that it leaves as elements of its result::

    %old = Load(%w, %u)                          %n = Neg(%w)
    %n = Neg(%old)                               %both = AssignAdd(%w, %g)       // (its result, what w holds now)
    %t = UpdateState(%u, %n)                     %next = TupleGetItem(%both, 1)
    %new = AssignAdd(%w, %g, %t)            =>   %sum = Add(%n, %next)
    %v = UpdateState(%t, %new)                   %all = MakeTuple(%sum, %next)   // the result, and w behind the step
    %now = Load(%w, %v)                          return %all
    %sum = Add(%n, %now)
    return Depend(%sum, %v)

Loads, tokens, and Depends on them are gone: where a primitive or a function takes a token, it takes a constant that
orders nothing. A Load does not copy on every target, so who takes one behind a write reads what is there then, through
views too. A tensor of the graph that is written in place is a place as well. There no Load says when it is read: a
reader runs behind the writes that it waits for, and what decides nothing is refused.

Functions stay functions. A call takes the versions of what the function may write behind its other operands, and gives
what they are afterwards, as an effect does. What prints or sends stays in the order of the list: the result holds it.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

from ..analysis.effects.state_access import Summary, describe, place, summarize
from ..analysis.functions.calls import forget_unreached, targets
from ..analysis.training.network import network_parts
from ..core.attributes import MonadValue
from ..core.errors import Error
from ..core.graph import Constant, Graph, Input, Node, State, Value
from ..core.op import CALL, MAKE_TUPLE, RETURN
from ..core.predicates import has_token, is_effect, may_act, rests, written_operands
from ..core.primitives import BINDING, PASSING, PRIMITIVES, VIEWS, facts
from ..core.sites import site
from ..core.types import IOMONAD, TensorType, TupleType, Type, is_monad
from ..core.walk import needed_nodes, walk


class Undischarged(Error):
    """Memory that cannot be told: which place it is, or what it holds when a node reads it."""


@dataclass(frozen=True, slots=True)
class Write:
    """What an effect of a pure graph writes. ``taken``: the operands that are overwritten; what they become are the
    elements 1, 2… of its result. ``places``: what was written, the node that made it for a tensor of the graph.
    ``result``: the type of element 0, as it is in memory. ``outside``: it prints or sends. ``formals``: of a call, for
    each function, the inputs that stand for what is overwritten; None for what the function leaves alone."""

    taken: tuple[int, ...]
    places: tuple[Value, ...]
    result: Type
    outside: bool = False
    formals: Mapping[str, tuple[int | None, ...]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Body:
    """A pure graph. Its result is a tuple: what it returned, what each of ``places`` holds behind it (States, or inputs
    of a function), then what prints or sends, in order. ``memory``: the States and inputs that are places, written or
    not; ``direct``: the operands that were one of these, and not a Load of it."""

    graph: Graph
    memory: tuple[Value, ...]
    places: tuple[Value, ...]
    writes: Mapping[Node, Write]
    direct: Mapping[Node, tuple[int, ...]]


@dataclass(frozen=True, slots=True)
class Functional:
    """A main graph and its functions. ``source``: for each node, that of the original. ``renamed``: the effects of
    which someone read what they wrote by another name than their result."""

    graph: Graph
    bodies: Mapping[Graph, Body]
    source: Mapping[Node, Node]
    renamed: set[Node]


def discharge(main: Graph, *, copy: bool = True) -> Functional:
    """``main`` and the functions that it reaches, as pure functions; ``copy``: ``main`` itself is not changed.
    :class:`Undischarged` for what cannot be told."""
    source: dict[Node, Node] = {node: node for node in main.all_nodes()}
    graph = main
    if copy:
        graph, twin = main.clone()
        source = {there: here for here, there in twin.items() if isinstance(here, Node) and isinstance(there, Node)}
    forget_unreached(graph)
    known = summarize(graph)
    made: dict[Node, Node] = {}
    renamed: set[Node] = set()
    found = [_Discharge(body, known, made, renamed) for body in graph.all_graphs()]
    network = network_parts(graph).keys() if any(body.now.keys() - body.places.keys() for body in found) else ()
    bodies = {body.graph: body.run(network) for body in found}
    source.update({node: source[of] for node, of in made.items()})
    return Functional(graph, bodies, source, renamed)


_LEARNING = frozenset(name for name, known in PRIMITIVES.items() if known.statistics)
"""Primitives that write without a token."""


def written_by(node: Node) -> list[int]:
    """The operands that a node other than a call writes; also what a BatchNorm without a token learns."""
    if rests(node):
        return []
    written = list(written_operands(node)) if is_effect(node) else []
    return sorted({*written, *learned}) if (learned := facts(node.op).statistics) else written


def plain(type_: Type) -> Type:
    """The type of a value that is no memory."""
    return TensorType(type_.dtype, type_.shape) if isinstance(type_, TensorType) and type_.ref else type_


def _orders(value: Value) -> bool:
    """Whether a Depend on this value only says what comes first in memory."""
    if is_monad(value.type):
        return True
    if not isinstance(value, Node):
        return False
    if value.op.name in MAKE_TUPLE:
        return bool(value._operands) and all(map(_orders, value._operands))
    return value.op.name == "Load" or (is_effect(value) and (value.op is not CALL or has_token(value)))


class _Discharge:
    """The discharge of one body, in its place."""

    def __init__(self, graph: Graph, known: Mapping[str, Summary], made: dict[Node, Node], renamed: set[Node]):
        self.graph, self.known, self.renamed = graph, known, renamed
        self.made = made
        """Nodes that are new, and what each is made of."""
        needed = set(needed_nodes(graph))
        graph.erase_all([node for node in graph if node not in needed])
        self.nodes = list(graph)
        self.writes: dict[Node, Write] = {}
        self.direct: dict[Node, tuple[int, ...]] = {}
        self.outside: list[Node] = []
        self.calls: dict[Node, tuple[bool, Mapping[str, tuple[int | None, ...]]]] = {}
        """The calls that touch memory: whether they print or send, and :attr:`Write.formals`."""
        self.written: dict[Node, list[Value]] = {}
        """By effect: the places that it writes."""
        self.acting: set[Node] = set()
        """What reads memory at its place in the list: effects, Loads, calls that read."""
        self.now: dict[Value, Value] = {}
        """What each place that is written holds, by State, input, or the node that made the tensor."""
        self.pure: dict[Value, Value] = {}
        """What stands for a node of the original."""
        self.named: dict[Value, dict[Value, Value]] = {}
        """By value that is memory, or a view of it: each place, and what this held when the value was made."""
        self.viewed: dict[Value, Sequence[Value]] = {}
        """What such a view took in the original."""
        self._unit = graph.constant(MonadValue("umonad"), "u"), graph.constant(MonadValue("iomonad"), "io")
        self._find_places()
        self._tensors: _Tensors | None = None

    def _find_places(self) -> None:
        for node in self.nodes:
            if not may_act(node) and node.op.name not in _LEARNING:
                continue
            if node.op.name == "Load":
                self.acting.add(node)
            elif node.op is CALL:
                effect = describe(node, self.known)
                if effect is not None:
                    self.acting.add(node)
                if effect is not None and effect.everything:
                    raise Undischarged(f"{site(node)} calls a function that cannot be followed, and may write any")
                places = self._written_by_call(node) if effect is None or not effect.passive else []
                if places or (effect is not None and effect.io):
                    self.written[node] = places
                    self.calls[node] = effect is not None and effect.io, self._formals(node, places)
            elif is_effect(node) or node.op.name in _LEARNING:
                self.written[node] = [self._place(node, i) for i in written_by(node)]
                if len(set(self.written[node])) < len(self.written[node]):
                    raise Undischarged(f"{site(node)} writes one state as two of its operands")
        self.written = {node: places for node, places in self.written.items() if places or is_effect(node)}
        self.acting |= self.written.keys()
        graph, does = self.graph, self.known[self.graph.name] if self.graph.owner else Summary()
        self.places: dict[Value, None] = dict.fromkeys(graph.inputs[i] for i in sorted(does.writes))
        touched = {*does.reads, *does.writes, *(i for i, v in enumerate(graph.inputs) if getattr(v.type, "ref", ""))}
        self.memory = dict.fromkeys([*graph.states.values(), *(graph.inputs[i] for i in sorted(touched))])
        """The States and inputs that are places."""
        for places in self.written.values():
            for at in places:
                self.now[at] = at
                if isinstance(at, State):
                    self.places[at] = None
                elif isinstance(at, Node) and at.op.name in VIEWS and is_effect(at):
                    raise Undischarged(f"{site(at)} is a view that is written: what it is a view of cannot be told")
                elif isinstance(at, Input) and at not in self.places and graph.owner is not None:
                    raise Undischarged(f"graph '{graph.name}' writes its input %{at.name}, which is not a state")

    def _place(self, node: Node, i: int) -> Value:
        found = place(node.operand(i))
        while isinstance(found, Node) and found.op.name == "Load":  # it does not copy
            found = place(found.operand(0))
        if found is None or isinstance(found, Constant):
            raise Undischarged(f"{site(node)} writes what is not a state, and not a tensor of its own graph")
        return found

    # -- what a value holds ------------------------------------------------------------------------------------

    def _holds(self, at: Value, reader: Node) -> Value:
        """What a place holds when ``reader`` runs."""
        return self.now[at] if self._tensors is None else self._tensors.holds(at, reader)

    def _of(self, value: Value, reader: Node) -> Value:
        """What ``reader`` takes for an operand of the original."""
        if is_monad(value.type):
            return self._unit[value.type == IOMONAD]
        named = self.named.get(value)
        if named is None:
            first = self.pure.get(value, value)
            held = self._holds(value, reader) if value in self.now else first
            if held is not first and isinstance(held, Node) and reader.op is not RETURN:
                self.renamed.add(self.made.get(held, held))
            return held
        holds = {at: self._holds(at, reader) for at in named}
        if holds != named:
            self.renamed.update(self.made.get(v, v) for v in holds.values() if isinstance(v, Node))
            assert isinstance(value, Node)
            if value in self.written:
                (held,) = holds.values()
                return held
            if value.op.name in ("Load", "Depend"):
                self.pure[value] = self._of(value.operand(0), reader)
            else:
                twin = self.pure[value] = value.twin()
                self.made[twin] = self.made.get(value, value)
                if value in self.direct:
                    self.direct[twin] = self.direct[value]
                self.graph.insert(twin, reader)
                twin._take([self._of(v, reader) for v in self.viewed[value]])
            self.named[value] = holds
        return self.pure.get(value, value)

    def _is_memory(self, value: Value) -> bool:
        return value in self.memory or (value in self.written and value in self.named)

    def _names(self, node: Node, operands: Sequence[Value]) -> None:
        """Notes that ``node`` is memory, or a view of it, where one of these is."""
        found: dict[Value, Value] = {}
        for v in operands:
            if v in self.named:
                found.update(self.named[v])
            elif v in self.now:
                found[v] = self._holds(v, node)
        if found:
            self.named[node] = {at: self._holds(at, node) for at in found}
            self.viewed[node] = operands

    # -- the nodes ---------------------------------------------------------------------------------------------

    def run(self, network: Collection[Node]) -> Body:
        if self.now.keys() - self.places.keys():
            self._tensors = _Tensors(self, network)
        touched = {*self.memory, *self.now}
        for node in self.nodes:
            if touched.isdisjoint(node._operands) and node not in self.written and not may_act(node):
                continue  # as nearly all
            name = node.op.name
            if name == "UpdateState":
                continue
            if name == "Load" or (name == "Depend" and _orders(node.operand(1))):
                self.pure[node] = self._of(node.operand(0), node)
                self._names(node, node._operands[:1])
                touched.add(node)
                continue
            operands = [self._of(v, node) for v in node._operands]
            if direct := tuple(i for i, v in enumerate(node._operands) if self._is_memory(v)):
                self.direct[node] = direct
            views = list(node._operands) if name in VIEWS else ()
            if node in self.written:
                self._effect(node, operands)
                touched.add(node)
                continue
            self._take(node, operands)
            node.type = plain(node.type)
            self._names(node, views)
            if node in self.named:
                touched.add(node)
        self._finish()
        return Body(self.graph, tuple(self.memory), tuple(self.places), self.writes, self.direct)

    @staticmethod
    def _take(node: Node, operands: Sequence[Value]) -> None:
        for i, (old, new) in enumerate(zip(node.operands, operands, strict=True)):
            if old is not new:
                node.set_operand(i, new)

    def _effect(self, node: Node, operands: list[Value]) -> None:
        places, result = self.written[node], node.type
        formals: Mapping[str, tuple[int | None, ...]] = {}
        if node in self.calls:
            outside, formals = self.calls[node]
            taken = tuple(range(len(operands), len(operands) + len(places)))
            operands += [self._holds(at, node) for at in places]
        else:
            taken = tuple(written_by(node))
            last = node._operands[-1].type if node._operands else None
            outside = last == IOMONAD or bool(node.op.attributes.get("side_effect_io")) or not places
        itself = bool(places) and node.op is not CALL and isinstance(result, TensorType) and bool(result.ref)
        self.writes[node] = Write(taken, tuple(places), result, outside, formals)
        if node in self.calls:
            node.set_operands(operands)
        else:
            self._take(node, operands)
        if outside:
            self.outside.append(node)
        if not places:
            return
        left = [plain(operands[i].type) for i in taken]
        node.type = TupleType((plain(result), *left))
        with self.graph.inserting_after(node):
            for k, (at, type_) in enumerate(zip(places, left, strict=True), start=1):
                self.now[at] = self._element(node, k, type_)
                if self._tensors is not None:
                    self._tensors.wrote(at, node, self.now[at])
            if itself:
                self.pure[node] = self.now[places[0]]
                self.named[node] = {places[0]: self.now[places[0]]}
            else:
                self.pure[node] = self._element(node, 0, plain(result))

    def _element(self, node: Node, k: int, type_: Type) -> Node:
        operands = [node, self.graph.constant(k)]
        element = self.graph.create("TupleGetItem", operands, type_, scope=node.scope, sources=[node])
        self.made[element] = node
        return element

    def _written_by_call(self, call: Node) -> list[Value]:
        places: dict[Value, None] = {}
        for target in targets(call) or ():
            for i in sorted(self.known[target.function.name].writes):
                if i < len(target.arguments):
                    if (at := place(target.arguments[i])) is None:
                        raise Undischarged(f"{site(call)} hands '{target.function.name}' a constant that it writes")
                    places[at] = None
        return list(places)

    def _formals(self, call: Node, places: Sequence[Value]) -> dict[str, tuple[int | None, ...]]:
        """As :attr:`Write.formals`."""
        found: dict[str, tuple[int | None, ...]] = {}
        for target in targets(call) or ():
            where = [place(v) for v in target.arguments]
            writes = self.known[target.function.name].writes
            at: list[int | None] = []
            for one in places:
                given = [i for i, w in enumerate(where) if w is one]
                mine = [i for i in given if i in writes]
                if mine and len(given) > 1:
                    raise Undischarged(
                        f"{site(call)} hands %{one.name} to '{target.function.name}' twice, which writes it"
                    )
                at.append(mine[0] if mine else None)
            found[target.function.name] = tuple(at)
        return found

    def _finish(self) -> None:
        graph, value = self.graph, self.graph.result
        at_end = value in self.now or value in self.written
        returned = self._of(value, graph._return) if at_end else self.pure.get(value, value)
        packed = graph.create("MakeTuple", [returned, *(self.now[at] for at in self.places), *self.outside])
        if self._is_memory(value):
            self.direct[packed] = (0,)
        graph.result = packed
        needed = set(needed_nodes(graph))
        graph.erase_all([node for node in graph if node not in needed])
        self.writes = {node: write for node, write in self.writes.items() if node in needed}


class _Tensors:
    """The tensors of a body that it writes in place: a reader runs behind the writes that it waits for. The network ran
    before all that it does not wait for; any other reader must come before the next write."""

    def __init__(self, owner: _Discharge, network: Collection[Node]):
        self.owner, self.network = owner, network
        self.versions: dict[Value, list[tuple[Node, Value]]] = {}
        writes: dict[Value, list[Node]] = {}
        for node, places in owner.written.items():
            for at in places:
                if at not in owner.places:
                    writes.setdefault(at, []).append(node)
        self.writes = writes
        order = {node: k for k, node in enumerate(dict.fromkeys(w for of in writes.values() for w in of))}
        self.behind: dict[Value, int] = {}
        """The writes that a node waits for, as bits."""
        for node in owner.nodes:
            waits = 1 << order[node] if node in order else 0
            for operand in node._operands:
                waits |= self.behind.get(operand, 0)
            if waits:
                self.behind[node] = waits
        place_of = {node: k for k, node in enumerate(owner.nodes)}
        self.ahead: dict[Node, int] = {}
        """The place of the first write that waits for a node."""
        for write in sorted(order, key=place_of.__getitem__):
            for node in walk(
                [write], lambda n: [v for v in n._operands if isinstance(v, Node) and v not in self.ahead]
            ):
                self.ahead.setdefault(node, place_of[write])
        self.bits = {node: 1 << k for node, k in order.items()}
        self.place_of = place_of

    def wrote(self, at: Value, node: Node, version: Value) -> None:
        self.versions.setdefault(at, []).append((node, version))

    def holds(self, at: Value, reader: Node) -> Value:
        owner = self.owner
        if at not in self.writes:
            return owner.now[at]
        first, writes = owner.pure.get(at, at), self.writes[at]
        done = self.versions.get(at, ())
        if reader in owner.acting or reader is owner.graph._return:
            return done[-1][1] if done else first
        waits = self.behind.get(reader, 0)
        count = max((k for k, (node, _) in enumerate(done, start=1) if waits & self.bits[node]), default=0)
        packs = reader.op.name in PASSING or reader.op.name in BINDING  # who takes the result reads
        if count < len(writes) and reader not in self.network and not packs:
            following = writes[count]
            if self.ahead.get(reader, len(owner.nodes)) > self.place_of[following]:
                raise Undischarged(
                    f"graph '{owner.graph.name}': {site(following)} writes a tensor in place that {site(reader)} "
                    "reads, and nothing in the graph says which comes first: assign the result of the operation "
                    "(g = g * factor) and use that"
                )
        return done[count - 1][1] if count else first
