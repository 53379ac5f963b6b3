"""Runs a graph on terms: what it leaves in each state and what it returns, as functions of states, inputs and draws.

Nodes run in the order of the list. That is the order of their effects where no two of them race
(:mod:`..analysis.effects.races`), so tokens say nothing more and drop out. A random primitive gets a serial number
among the draws with the same operands. A branch runs both ways, and what comes of it is joined by its condition. A
function that calls itself is a term of its body, with its arguments as formal ones.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from ..analysis.effects.state_access import summarize
from ..analysis.effects.tokens import orders_only
from ..analysis.functions.calls import recursive_functions
from ..analysis.training.network import BACKWARD
from ..core.attributes import MonadValue, TensorValue, bits
from ..core.errors import Error
from ..core.graph import Constant, Graph, GraphRef, Input, Node, State, Value
from ..core.op import CALL, MAKE_TUPLE
from ..core.predicates import is_effect, is_float_tensor, is_random, rests, written_operands
from ..core.primitives import CPU, Family, facts, make_op
from ..core.primitives.calls import CODES, names_type
from ..core.sites import site
from ..core.types import IOMONAD, DType, TensorType, TupleType, is_monad
from ..core.walk import live_nodes
from ..rewrite.seeds import SEED_ATTRIBUTES
from .products import product_of
from .terms import AVERAGED, VARIES, Terms
from .things import Choice, Closure, Memory, Ref, Thing

WORLD = "\0output"
"""The state that stands for what a graph prints and sends."""
_DEEPEST = 60
_FLOATS = {code for dtype, code in CODES.items() if dtype.is_float}


class Unproved(Error):
    """Something that the prover does not follow: no verdict, not an error of the user's."""


@dataclass(frozen=True)
class Side:
    """How a run tells the network from the update side. ``parts``: the nodes of forward and backward. ``mean`` makes
    of a gradient, where it leaves the backward part, what the update side takes for it. ``only``: effects of the update
    side do not happen."""

    parts: Mapping[Node, str]
    mean: Callable[[int, Node], int] | None = None
    only: bool = False


@dataclass
class Outcome:
    """``states`` after the run, by name; ``result`` as the graph returns it, its tuples taken apart; ``network``: the
    terms of the nodes of forward and backward; ``seams``: the gradients where they leave the backward part."""

    states: dict[str, int]
    result: list[int]
    network: set[int]
    seams: dict[int, Node]
    writer: dict[str, str] = field(default_factory=dict)


class Execution:
    """Runs graphs on the terms of one proof. ``draws_alike``: the seeds of random primitives do not count. ``target``:
    where the graphs are to run."""

    def __init__(self, terms: Terms, *, draws_alike: bool = False, target: str = CPU):
        self.terms = terms
        self.target = target
        self.draws_alike = draws_alike
        self._lives: dict[Graph, list[Node]] = {}
        self._constants: dict[Constant, int | None] = {}
        self.functions: dict[Graph, int] = {}
        self._recursive: dict[Graph, set[str]] = {}

    def run(self, graph: Graph, states: Mapping[str, int], inputs: Sequence[int], side: Side | None = None) -> Outcome:
        """:class:`Unproved` for what cannot be followed."""
        run = _Run(self, graph, side)
        world = self.terms.make(("state", WORLD), traits=VARIES)
        held: dict[str | int, int] = {WORLD: world}
        held.update(states)
        memory = Memory(held)
        result = run.body(graph, dict(zip(graph.inputs, inputs, strict=True)), memory, 0)
        assert not isinstance(result, Tail)
        after = {str(name): memory.held[name] for name in [*states, WORLD]}
        return Outcome(after, run.flat(result, memory), run.network, run.seams, run.writer)

    def constant(self, value: Constant) -> int | None:
        if value not in self._constants:
            token = isinstance(value.value, MonadValue)
            self._constants[value] = None if token else self.terms.constant(value.value)
        return self._constants[value]

    def live(self, graph: Graph) -> list[Node]:
        found = self._lives.get(graph)
        if found is None:
            live = live_nodes([graph.result])
            found = self._lives[graph] = [n for n in graph if n in live]
        return found

    def recursive(self, main: Graph) -> set[str]:
        """The functions that may call themselves, through others too."""
        found = self._recursive.get(main)
        if found is None:
            found = self._recursive[main] = recursive_functions(main)
        return found


@dataclass(frozen=True)
class Tail:
    """A call that is still to run: the last that its function does."""

    node: Node
    callee: Thing
    extra: tuple[Thing, ...]

    @property
    def arguments(self) -> tuple[Thing, ...]:
        return (*self.callee.bound, *self.extra) if isinstance(self.callee, Closure) else self.extra


def _same_function(one: Thing | Tail, other: Thing | Tail) -> Graph | None:
    """The function that two calls are of, with as many arguments."""
    if not isinstance(one, Tail) or not isinstance(other, Tail):
        return None
    a, b = one.callee, other.callee
    if not isinstance(a, Closure) or not isinstance(b, Closure) or a.function is not b.function:
        return None
    return a.function if len(one.arguments) == len(other.arguments) else None


class _Run:
    def __init__(self, owner: Execution, main: Graph, side: Side | None):
        self.owner = owner
        self.terms = owner.terms
        self.side = side
        self.main = main
        self.network: set[int] = set()
        self.seams: dict[int, Node] = {}
        self.writer: dict[str, str] = {}
        self._draws: dict[tuple[object, ...], int] = {}
        self._places = 0
        self._steps = 0
        self._most = 40 * (main.total_nodes() + 1000)
        self._written: dict[Graph, set[Value]] = {}
        self._tails: dict[Graph, Node | None] = {}

    # -- a body ------------------------------------------------------------------------------------------------

    def body(
        self, graph: Graph, given: Mapping[Input, Thing], memory: Memory, depth: int, last: Node | None = None
    ) -> Thing | Tail:
        """``last``: a call that is not run but given back."""
        if depth > _DEEPEST:
            raise Unproved(f"function '{graph.name}' is called more than {_DEEPEST} calls deep")
        env = dict[Value, Thing]()
        for formal, thing in given.items():
            env[formal] = thing
        side = self.side
        parts = None if side is None else side.parts
        places = self._places_of(graph)
        for node in self.owner.live(graph):
            name = node.op.name
            if name == "UpdateState":
                continue
            self._steps += 1
            if self._steps > self._most:
                raise Unproved("functions call functions too often to follow all calls")
            things = [self._thing(v, env) for v in node._operands]
            inside = parts is not None and node in parts
            if side is not None and side.mean is not None:
                self._cross(node, things, inside, memory)
            if node is last:
                return Tail(node, things[0], tuple(things[1:]))
            value = self._node(node, name, things, memory, inside, depth)
            if node in places and isinstance(value, int):
                self._places += 1
                memory.held[self._places] = value
                value = Ref(self._places)
            env[node] = value
            if inside and isinstance(value, int):
                self.network.add(value)
        return self._thing(graph.result, env)

    def _places_of(self, graph: Graph) -> set[Value]:
        """Tensors that the graph makes and then writes in place."""
        found = self._written.get(graph)
        if found is None:
            found = set()
            for node in graph:
                for i in written_operands(node) if is_effect(node) else ():
                    value = node.operand(i)
                    while isinstance(value, Node) and (
                        value.op.name == "Depend" or (is_effect(value) and bool(getattr(value.type, "ref", "")))
                    ):
                        at = written_operands(value) if value.op.name != "Depend" else (0,)
                        if not at:
                            break
                        value = value.operand(at[0])
                    if isinstance(value, Node):
                        found.add(value)
            self._written[graph] = found
        return found

    def _thing(self, value: Value, env: Mapping[Value, Thing]) -> Thing:
        if isinstance(value, (Node, Input)):
            return env.get(value)  # a token that only orders has no entry
        if isinstance(value, State):
            return Ref(value.name)
        if isinstance(value, Constant):
            return self.owner.constant(value)
        assert isinstance(value, GraphRef)
        return Closure(value.graph, ())

    def _cross(self, node: Node, things: list[Thing], inside: bool, memory: Memory) -> None:
        """A gradient that leaves the backward part becomes what the update side is to take for it."""
        assert self.side is not None
        if inside:
            if any(isinstance(t, int) and self.terms.traits[t] & AVERAGED for t in things):
                raise Unproved(f"the network takes an averaged gradient (by {site(node)})")
            return
        for i, v in enumerate(node._operands):
            backward = isinstance(v, Node) and self.side.parts.get(v) == BACKWARD and not is_monad(v.type)
            if backward and not orders_only(node, i):
                things[i] = self._averaged(things[i], v, memory)  # type: ignore[arg-type]

    def _averaged(self, thing: Thing, node: Node, memory: Memory) -> Thing:
        assert self.side is not None
        assert self.side.mean is not None
        if isinstance(thing, tuple):
            return tuple(self._averaged(t, node, memory) for t in thing)
        if isinstance(thing, int) and self.terms.heads[thing][0] in ("mean", "all"):
            return thing
        if isinstance(thing, int):
            if not self.terms.traits[thing] & AVERAGED:
                self.seams.setdefault(thing, node)
                return self.side.mean(thing, node)
            raise Unproved(f"an averaged gradient goes back into the backward part (at {site(node)})")
        if isinstance(thing, (Closure, Choice)):
            raise Unproved(f"the update side calls a function of the backward part ({site(node)})")
        return thing

    # -- a node ------------------------------------------------------------------------------------------------

    def _node(self, node: Node, name: str, things: list[Thing], memory: Memory, inside: bool, depth: int) -> Thing:
        if name == "Depend":
            return things[0]
        if name == "Load":
            return self._read(things[0], memory) if isinstance(things[0], Ref) else things[0]
        if name in MAKE_TUPLE:
            return tuple(things)
        if name in ("TupleGetItem", "list_getitem"):
            return self._item(node, things)
        if name == "Partial":
            function = things[0]
            if not isinstance(function, Closure):
                raise Unproved(f"a function that cannot be followed ({site(node)})")
            return Closure(function.function, (*function.bound, *things[1:]))
        if name == "Switch":
            return self._chosen(self._term(things[0], memory), things[1], things[2], memory)
        if node.op is CALL:
            return self._call(node, things[0], tuple(things[1:]), memory, depth)
        return self._primitive(node, name, things, memory, inside)

    def _item(self, node: Node, things: list[Thing]) -> Thing:
        whole, at = things
        index = self.terms.values.get(at) if isinstance(at, int) else None
        if not isinstance(index, int):
            raise Unproved(f"{site(node)} takes an element that the graph does not name")
        return self._element(whole, index, node)

    def _element(self, whole: Thing, index: int, node: Node | None) -> Thing:
        taker = "a choice" if node is None else site(node)
        if isinstance(whole, tuple):
            if not -len(whole) <= index < len(whole):
                raise Unproved(f"{taker} takes element {index} of {len(whole)}")
            return whole[index]
        if isinstance(whole, Choice):
            return self._chosen(
                whole.condition, self._element(whole.yes, index, node), self._element(whole.no, index, node), None
            )
        if not isinstance(whole, int):
            raise Unproved(f"{taker} takes an element of what is no tuple")
        terms = self.terms
        if terms.heads[whole][0] == "tuple":
            return terms.arguments[whole][index]
        if terms.heads[whole][0] == "ite":
            condition, yes, no = terms.arguments[whole]
            return self._chosen(condition, self._element(yes, index, node), self._element(no, index, node), None)
        shape = None if node is None else terms.type(node.type)[1]
        return terms.make(("item", index), (whole,), shape, node)

    def _primitive(self, node: Node, name: str, things: list[Thing], memory: Memory, inside: bool) -> Thing:
        terms, known, op = self.terms, facts(node.op), node.op
        operands = node._operands
        taken = [i for i, v in enumerate(operands) if not is_monad(v.type)]
        arguments = tuple(self._term(things[i], memory) for i in taken)
        if not terms.rounds:
            arguments = tuple(self._named_type(node, i, a) for i, a in zip(taken, arguments, strict=True))
            if (product := product_of(node, arguments, terms)) is not None:
                return product
        said, shape = terms.type(node.type)
        copies = known.family is Family.COPY and not known.writes and len(arguments) == 1
        if copies or (not terms.rounds and _is_cast(node)):
            return arguments[0]
        if is_random(node):
            head = ("draw", name, *self._drawn(node, arguments), said)
            key = (head, arguments)
            serial = self._draws[key] = self._draws.get(key, -1) + 1
            if self.owner.draws_alike and known.seeds:
                arguments = tuple(a for i, a in zip(taken, arguments, strict=True) if i not in known.seeds)
            return terms.make((*head, serial), arguments, shape, node, VARIES)
        effect = is_effect(node)
        written = list(written_operands(node)) if effect else []
        if rests(node):
            written = []
        elif known.statistics:
            written = sorted({*written, *known.statistics})
        if not effect and not written:
            made = terms.make(("op", name, terms.op(op), said), arguments, shape, node)
            return self._again(node, name, arguments, made)
        if self.side is not None and self.side.only and not inside:
            return terms.make(("left out", name, node.name), arguments, shape, node, AVERAGED)
        return self._effect(node, name, things, taken, arguments, written, memory, inside)

    def _named_type(self, node: Node, i: int, argument: int) -> int:
        """An operand; where it is the number of a type of floating-point numbers, that of the one type that is left."""
        value = self.terms.values.get(argument)
        if isinstance(value, int) and value in _FLOATS and names_type(node.op.name, i):
            return self.terms.constant(CODES[DType.FLOAT32])
        return argument

    def _again(self, node: Node, name: str, arguments: tuple[int, ...], made: int) -> Thing:
        """``made``; its first element by the laws ``mask`` and ``at rest``, where it is that of an earlier result."""
        if name == "DropoutGrad" and len(arguments) == 2:
            first = self._whole(arguments[1], 1, "Dropout")
            if first is not None and self._keeps(first, node) and self.terms.arguments[first][0] == arguments[0]:
                return self._element(first, 0, None)
        if name == "BatchNorm" and self.owner.target == CPU and rests(node) and len(arguments) > 6:
            first, other = self._whole(arguments[3], 3, name), self._whole(arguments[4], 4, name)
            if first is not None and first == other and self._normalised(first, arguments):
                assert isinstance(node.type, TupleType)
                rest = (self._element(made, i, None) for i in range(1, len(node.type.elements)))
                return (self._element(first, 0, None), *rest)
        return made

    def _whole(self, item: int, at: int, name: str) -> int | None:
        """The result of a primitive of which a term is element ``at``; None if it is none."""
        terms = self.terms
        if terms.heads[item] != ("item", at):
            return None
        whole = terms.arguments[item][0]
        return whole if terms.heads[whole][1:2] == (name,) else None

    def _keeps(self, dropout: int, node: Node) -> bool:
        """Whether a Dropout keeps the share that a DropoutGrad names."""
        given = self.terms.arguments[dropout]
        share, named = self.terms.values.get(given[1]) if len(given) > 1 else None, node.attributes.get("keep_prob")
        return share is not None and named is not None and bits(share) == bits(named)

    def _normalised(self, first: int, arguments: tuple[int, ...]) -> bool:
        """Whether a BatchNorm in training took what one at rest takes."""
        given = self.terms.arguments[first]
        if len(given) <= 6 or self.terms.values.get(given[5]) is not True:
            return False
        return given[:3] == arguments[:3] and given[6] == arguments[6]

    def _drawn(self, node: Node, arguments: tuple[int, ...]) -> tuple[object, ...]:
        if not self.owner.draws_alike:
            return (self.terms.op(node.op),)
        left = {n for pair in SEED_ATTRIBUTES for n in pair}
        return (frozenset((k, v) for k, v in node.op.key[1] if k not in left),)

    def _effect(
        self, node: Node, name: str, things: list[Thing], taken: list[int], arguments: tuple[int, ...],
        written: list[int], memory: Memory, inside: bool,
    ) -> Thing:  # fmt: skip
        terms, known = self.terms, facts(node.op)
        said, shape = terms.type(node.type)
        places: list[Ref] = []
        for i in written:
            thing = things[i]
            if not isinstance(thing, Ref):
                raise Unproved(f"{site(node)} writes what is no state and no tensor of its own graph")
            places.append(thing)
        if len({p.place for p in places}) < len(places):
            raise Unproved(f"{site(node)} writes one state as two of its operands")
        head: tuple[object, ...] = (name, terms.op(node.op))
        outside = self._prints(node) or not places
        if outside:
            arguments = (*arguments, self._read(Ref(WORLD), memory))
            memory.held[WORLD] = terms.make(("written", *head, "output"), arguments, None, node, VARIES)
        for k, (place, at) in enumerate(zip(places, written, strict=True)):
            value = node._operands[at].type
            of, form = terms.type(value)
            if name == "Assign" and len(arguments) == 2:
                new = arguments[1]
                if terms.shapes[new] != form:
                    new = terms.make(("written", *head, k, of), arguments, form, node)
            elif known.pure and len(arguments) in (2, 3):
                new = terms.make(("op", known.pure, terms.op(make_op(known.pure)), of), arguments, form, node)
            else:
                new = terms.make(("written", *head, k, of), arguments, form, node)
            memory.held[place.place] = new
            if isinstance(place.place, str):
                part = "network" if inside else "update"
                self.writer[place.place] = part if self.writer.get(place.place, part) == part else "both"
            if inside:
                self.network.add(new)
        if places and isinstance(node.type, TensorType) and node.type.ref:
            return places[0]
        return terms.make(("op", *head, said), arguments, shape, node)

    @staticmethod
    def _prints(node: Node) -> bool:
        last = node._operands[-1].type if node._operands else None
        return last == IOMONAD or bool(node.op.attributes.get("side_effect_io"))

    # -- calls -------------------------------------------------------------------------------------------------

    def _call(self, node: Node, callee: Thing, extra: tuple[Thing, ...], memory: Memory, depth: int) -> Thing:
        mine = Memory({}, memory)
        result = self._settled(self._followed(Tail(node, callee, extra), mine, depth), mine)
        for place, value in mine.held.items():
            if isinstance(place, str) or memory.read(place) is not None:
                memory.held[place] = value
        return result

    def _followed(self, call: Thing | Tail, memory: Memory, depth: int) -> Thing:
        """What a call returns, and the calls that functions end with."""
        inside = False
        while isinstance(call, Tail):
            inside |= self.side is not None and call.node in self.side.parts
            call = self._step(call, memory, depth)
        if inside and isinstance(call, int):
            self.network.add(call)
        return call

    def _step(self, call: Tail, memory: Memory, depth: int) -> Thing | Tail:
        """Runs a function up to the call that it ends with."""
        node, callee = call.node, call.callee
        if isinstance(callee, Choice):
            return self._both(call, callee, memory, depth)
        if isinstance(callee, int) and self.terms.name(callee) in ("item", "apply"):
            return self._apply(node, callee, call.extra, memory)  # a function that a loop made
        if not isinstance(callee, Closure):
            raise Unproved(f"{site(node)} calls a function that cannot be followed")
        function, given = callee.function, (*callee.bound, *call.extra)
        if len(function.inputs) != len(given):
            raise Unproved(f"{site(node)} calls '{function.name}' with {len(given)} arguments, and it takes "
                           f"{len(function.inputs)}")  # fmt: skip
        if function.name in self.owner.recursive(self.main):
            return self._loop(node, function, given, memory)
        arguments = dict(zip(function.inputs, given, strict=True))
        return self.body(function, arguments, memory, depth + 1, self._tail_of(function))

    def _both(self, call: Tail, choice: Choice, memory: Memory, depth: int) -> Thing | Tail:
        """Both branches. Where they end with a call of one function, it is called once, on what they leave: each
        choice after another would otherwise double what is run."""
        condition, one, other = choice.condition, Memory({}, memory), Memory({}, memory)
        yes = self._step(Tail(call.node, choice.yes, call.extra), one, depth)
        no = self._step(Tail(call.node, choice.no, call.extra), other, depth)
        if (function := _same_function(yes, no)) is not None:
            assert isinstance(yes, Tail)
            assert isinstance(no, Tail)
            pairs = zip(yes.arguments, no.arguments, strict=True)
            given = tuple(self._either(condition, a, b, one, other) for a, b in pairs)
            self._join(condition, one, other, memory)
            return Tail(yes.node, Closure(function, ()), given)
        yes, no = self._followed(yes, one, depth), self._followed(no, other, depth)
        yes, no = self._settled(yes, one), self._settled(no, other)
        self._join(condition, one, other, memory)
        return self._chosen(condition, yes, no, memory)

    def _join(self, condition: int, one: Memory, other: Memory, memory: Memory) -> None:
        """What two branches left in each place."""
        for place in {**one.held, **other.held}:
            if isinstance(place, int) and memory.read(place) is None:
                continue  # a tensor that a branch made for itself
            memory.held[place] = self._ite(condition, self._read(Ref(place), one), self._read(Ref(place), other))

    def _either(self, condition: int, yes: Thing, no: Thing, one: Memory, other: Memory) -> Thing:
        """An argument that two branches give on."""
        if isinstance(yes, tuple) and isinstance(no, tuple) and len(yes) == len(no):
            return tuple(self._either(condition, a, b, one, other) for a, b in zip(yes, no, strict=True))
        if yes == no:
            return yes
        yes = self._read(yes, one) if isinstance(yes, Ref) else yes
        no = self._read(no, other) if isinstance(no, Ref) else no
        return self._chosen(condition, yes, no, None)

    def _tail_of(self, graph: Graph) -> Node | None:
        """The call that a function ends with: its result is that of the function, and only tokens stand behind it."""
        if graph not in self._tails:
            live, value, passed = self.owner.live(graph), graph.result, set[Node]()
            while isinstance(value, Node) and value.op.name == "Depend":
                passed.add(value)
                value = value.operand(0)
            tail = value if isinstance(value, Node) and value.op is CALL and value.graph is graph else None
            if tail is not None:
                behind = {n for n in live[live.index(tail) + 1 :] if n.op.name != "UpdateState"}
                parts = {} if self.side is None else self.side.parts
                if behind - passed or any(parts.get(n) != parts.get(tail) for n in passed):
                    tail = None
            self._tails[graph] = tail
        return self._tails[graph]

    def _settled(self, thing: Thing, memory: Memory) -> Thing:
        """What leaves a function holds no place that only the function has."""
        if isinstance(thing, tuple):
            return tuple(self._settled(t, memory) for t in thing)
        if isinstance(thing, Ref) and isinstance(thing.place, int):
            return self._read(thing, memory)
        return thing

    def _loop(self, node: Node, function: Graph, given: tuple[Thing, ...], memory: Memory) -> Thing:
        """A call of a function that may call itself: a primitive of its own, named by what the bodies compute."""
        return self._apply(node, self._function(function), given, memory)

    def _apply(self, node: Node, function: int, given: tuple[Thing, ...], memory: Memory) -> int:
        terms = self.terms
        arguments = (function, *(self._value(t, memory) for t in given if t is not None))
        serial = 0
        if terms.traits[function] & VARIES:  # it draws
            key = ("apply", arguments)
            serial = self._draws[key] = self._draws.get(key, -1) + 1
        return terms.make(("apply", serial), arguments, terms.type(node.type)[1], node)

    def _function(self, entry: Graph) -> int:
        """A term of what a function computes, and all that it may reach; functions in it are named, so a name stands
        for the same in two programs only where all of these bodies are equal."""
        found = self.owner.functions.get(entry)
        if found is not None:
            return found
        reached = {entry.name: entry}
        stack = [entry]
        while stack:
            for node in stack.pop():
                for v in node._operands:
                    if isinstance(v, GraphRef) and v.graph.name not in reached:
                        reached[v.graph.name] = v.graph
                        stack.append(v.graph)
        known = summarize(self.main)
        for name in reached:
            does = known[name]
            if does.writes or does.everything or does.io:
                raise Unproved(f"the loop '{entry.name}' writes state (in '{name}'): law missing")
        bodies = []
        for name in sorted(reached):
            body = self._summary(reached[name])
            bodies.append(self.terms.make(("body", name), (body,)))
        found = self.owner.functions[entry] = self.terms.make(("function", entry.name), tuple(bodies))
        return found

    def _summary(self, graph: Graph) -> int:
        """The result of a function that writes nothing, of formal arguments; what it calls stays a call."""
        terms, memory = self.terms, Memory({})
        env: dict[Value, Thing] = {}
        for i, v in enumerate(graph.inputs):
            said, shape = terms.type(v.type)
            env[v] = None if is_monad(v.type) else terms.make(("formal", graph.name, i, said), (), shape)
        for node in self.owner.live(graph):
            name = node.op.name
            if name == "UpdateState":
                continue
            things = [self._thing(v, env) for v in node._operands]
            if name in ("Depend", "Load"):
                env[node] = things[0]
            elif name in ("Partial", "Switch") or node.op is CALL:
                parts = tuple(self._value(t, memory) for t in things if t is not None)
                env[node] = terms.make(("applies", name), parts, terms.type(node.type)[1], node)
            elif name == "MakeTuple":
                env[node] = tuple(things)
            elif name == "TupleGetItem":
                env[node] = self._item(node, things)
            else:
                env[node] = self._primitive(node, name, things, memory, False)
        return self._value(self._thing(graph.result, env), memory)

    def _value(self, thing: Thing, memory: Memory) -> int:
        """A thing as an argument of a function that is not followed."""
        terms = self.terms
        if isinstance(thing, tuple):
            return terms.make(("tuple",), tuple(self._value(t, memory) for t in thing if t is not None))
        if isinstance(thing, Closure):
            bound = tuple(self._value(t, memory) for t in thing.bound if t is not None)
            return terms.make(("closure", thing.function.name), bound)
        if isinstance(thing, Choice):
            return ite(terms, thing.condition, self._value(thing.yes, memory), self._value(thing.no, memory))
        return self._term(thing, memory)

    # -- values ------------------------------------------------------------------------------------------------

    def _read(self, ref: Ref, memory: Memory) -> int:
        found = memory.read(ref.place)
        if found is None:
            raise Unproved(f"state '{ref.place}' is not known")
        return found

    def _term(self, thing: Thing, memory: Memory) -> int:
        if isinstance(thing, int):
            return thing
        if isinstance(thing, Ref):
            return self._read(thing, memory)
        if isinstance(thing, tuple):
            return self.terms.make(("tuple",), tuple(self._term(t, memory) for t in thing))
        if thing is None:
            return self.terms.make(("token",))
        raise Unproved("a primitive takes a function")

    def flat(self, thing: Thing, memory: Memory) -> list[int]:
        """The terms in a tuple, and in tuples in it."""
        if isinstance(thing, tuple):
            return [x for t in thing for x in self.flat(t, memory)]
        return [self._term(thing, memory)]

    def _chosen(self, condition: int, yes: Thing, no: Thing, memory: Memory | None) -> Thing:
        if yes is no:
            return yes
        if isinstance(yes, Ref) and memory is not None and yes != no:
            yes = self._read(yes, memory)
        if isinstance(no, Ref) and memory is not None and yes != no:
            no = self._read(no, memory)
        if isinstance(yes, tuple) and isinstance(no, int):
            no = tuple(self._element(no, i, None) for i in range(len(yes)))
        if isinstance(no, tuple) and isinstance(yes, int):
            yes = tuple(self._element(yes, i, None) for i in range(len(no)))
        if isinstance(yes, tuple) and isinstance(no, tuple) and len(yes) == len(no):
            return tuple(self._chosen(condition, a, b, memory) for a, b in zip(yes, no, strict=True))
        if isinstance(yes, int) and isinstance(no, int):
            return self._ite(condition, yes, no)
        if yes == no and isinstance(yes, (Ref, type(None))):
            return yes
        held = self.terms.values.get(condition)
        if isinstance(held, bool):
            return yes if held else no
        return Choice(condition, yes, no)

    def _ite(self, condition: int, yes: int, no: int) -> int:
        return ite(self.terms, condition, yes, no)


def _is_cast(node: Node) -> bool:
    """Whether a node casts between types of floating-point numbers."""
    return facts(node.op).family is Family.CAST and is_float_tensor(node) and is_float_tensor(node.operand(0))


def ite(terms: Terms, condition: int, yes: int, no: int) -> int:
    """One of two values, by a condition."""
    if yes == no:
        return yes
    held = terms.values.get(condition)
    if isinstance(held, bool):
        return yes if held else no
    if isinstance(held, TensorValue) and held.data.nbytes == 1:
        return no if held.data.is_zero() else yes
    if terms.heads[yes][0] == "ite" and terms.arguments[yes][0] == condition:
        yes = terms.arguments[yes][1]
    if terms.heads[no][0] == "ite" and terms.arguments[no][0] == condition:
        no = terms.arguments[no][2]
    if yes == no:
        return yes
    return terms.make(("ite",), (condition, yes, no), terms.shapes[yes])
