"""Runs a graph on terms: what it leaves in each state and what it returns, as functions of states, inputs and draws.

The graph is a pure function first (:mod:`..memory.discharge`), so memory and tokens are gone. Nodes run in the order
of the list; what prints or sends keeps it. A random primitive gets a serial number among the draws with the same
operands. A branch runs both ways, and what comes of it is joined by its condition. A function that calls itself is a
term of its body, with its arguments as formal ones.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from ..analysis.effects.tokens import orders_only
from ..analysis.functions.calls import recursive_functions
from ..analysis.training.network import BACKWARD
from ..core.attributes import MonadValue, TensorValue, bits
from ..core.errors import Error
from ..core.graph import Constant, Graph, GraphRef, Input, Node, State, Value
from ..core.op import CALL, MAKE_TUPLE
from ..core.predicates import is_float_tensor, is_random, rests
from ..core.primitives import CPU, Family, facts, make_op
from ..core.primitives.calls import CODES, names_type
from ..core.sites import site
from ..core.types import DType, TupleType, is_monad
from ..memory.discharge import Body, Functional, Undischarged, Write, discharge
from ..rewrite.seeds import SEED_ATTRIBUTES
from .products import product_of
from .terms import AVERAGED, VARIES, Terms
from .things import Choice, Closure, Thing

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


class Execution:
    """Runs graphs on the terms of one proof. ``draws_alike``: the seeds of random primitives do not count. ``target``:
    where the graphs are to run."""

    def __init__(self, terms: Terms, *, draws_alike: bool = False, target: str = CPU):
        self.terms = terms
        self.target = target
        self.draws_alike = draws_alike
        self._pure: dict[Graph, Functional] = {}
        self._constants: dict[Constant, int | None] = {}
        self.functions: dict[Graph, int] = {}
        self._recursive: dict[Graph, set[str]] = {}

    def run(self, graph: Graph, states: Mapping[str, int], inputs: Sequence[int], side: Side | None = None) -> Outcome:
        """:class:`Unproved` for what cannot be followed."""
        pure = self.pure(graph)
        run = _Run(self, pure, side, states)
        main = pure.graph
        returned, *after = run.whole(main, inputs)
        places = pure.bodies[main].places
        left = {place.name: run.term(value) for place, value in zip(places, after, strict=False)}
        after_all = {name: left.get(name, before) for name, before in states.items()}
        return Outcome({**after_all, WORLD: run.world}, run.flat(returned), run.network, run.seams)

    def pure(self, graph: Graph) -> Functional:
        if graph not in self._pure:
            try:
                self._pure[graph] = discharge(graph)
            except Undischarged as error:
                raise Unproved(str(error)) from None
        return self._pure[graph]

    def constant(self, value: Constant) -> int | None:
        if value not in self._constants:
            token = isinstance(value.value, MonadValue)
            self._constants[value] = None if token else self.terms.constant(value.value)
        return self._constants[value]

    def recursive(self, main: Graph) -> set[str]:
        """The functions that may call themselves, through others too."""
        found = self._recursive.get(main)
        if found is None:
            found = self._recursive[main] = recursive_functions(main)
        return found


Packed = Callable[[Graph, Thing], Thing]
"""What a call gives, of a function and what this gave."""


@dataclass(frozen=True)
class Tail:
    """A call that is still to run: the last that its function does. ``packed``: what it gives; ``then``: what follows
    of that."""

    node: Node
    callee: Thing
    extra: tuple[Thing, ...]
    packed: Packed
    then: Callable[[Thing], Thing]

    @property
    def arguments(self) -> tuple[Thing, ...]:
        return (*self.callee.bound, *self.extra) if isinstance(self.callee, Closure) else self.extra

    def finish(self, function: Graph, given: Thing) -> Thing:
        return self.then(self.packed(function, given))


def _same_function(one: Thing | Tail, other: Thing | Tail) -> Graph | None:
    """The function that two calls are of, with as many arguments."""
    if not isinstance(one, Tail) or not isinstance(other, Tail):
        return None
    a, b = one.callee, other.callee
    if not isinstance(a, Closure) or not isinstance(b, Closure) or a.function is not b.function:
        return None
    return a.function if len(one.arguments) == len(other.arguments) else None


class _Run:
    def __init__(self, owner: Execution, pure: Functional, side: Side | None, states: Mapping[str, int]):
        self.owner = owner
        self.terms = owner.terms
        self.side = side
        self.parts: Mapping[Node, str] = {} if side is None else side.parts
        self.pure = pure
        self.main = pure.graph
        self.states = states
        self.network: set[int] = set()
        self.seams: dict[int, Node] = {}
        self.world = self.terms.make(("state", WORLD), traits=VARIES)
        self._draws: dict[tuple[object, ...], int] = {}
        self._steps = 0
        self._most = 40 * (self.main.total_nodes() + 1000)
        self._tails: dict[Graph, Node | None] = {}

    # -- a body ------------------------------------------------------------------------------------------------

    def whole(self, graph: Graph, given: Sequence[Thing]) -> tuple[Thing, ...]:
        """What a body gives: what it returns, then what it leaves."""
        found = self._rest(graph, iter(graph), dict(zip(graph.inputs, given, strict=True)), 0)
        assert isinstance(found, tuple)
        return found

    def _rest(
        self, graph: Graph, nodes: Iterator[Node], env: dict[Value, Thing], depth: int, last: Node | None = None
    ) -> Thing | Tail:
        """Runs these nodes, the last of a body. ``last``: a call that is not run but given back."""
        if depth > _DEEPEST:
            raise Unproved(f"function '{graph.name}' is called more than {_DEEPEST} calls deep")
        body, side = self.pure.bodies[graph], self.side
        for node in nodes:
            self._steps += 1
            if self._steps > self._most:
                raise Unproved("functions call functions too often to follow all calls")
            things = [self._thing(v, env) for v in node._operands]
            inside = self._inside(node)
            if side is not None and side.mean is not None:
                self._cross(node, things, inside)
            if node.op is CALL:
                if node is last:
                    return self._tail(body, node, things, self._resumed(graph, nodes, env, node, depth))
                value = self._followed(self._tail(body, node, things, _given), depth)
            else:
                value = self._node(body, node, things, inside)
            env[node] = value
            if inside and isinstance(value, int):
                self.network.add(value)
        return self._thing(graph.result, env)

    def _resumed(
        self, graph: Graph, nodes: Iterator[Node], env: dict[Value, Thing], call: Node, depth: int
    ) -> Callable[[Thing], Thing]:
        """What a body gives, of what its last call gave."""
        rest = list(nodes)

        def resume(given: Thing) -> Thing:
            env[call] = given
            if self._inside(call) and isinstance(given, int):
                self.network.add(given)
            found = self._rest(graph, iter(rest), env, depth)
            assert not isinstance(found, Tail)
            return found

        return resume

    def _inside(self, node: Node) -> bool:
        return bool(self.parts) and self.pure.source.get(node) in self.parts

    def _thing(self, value: Value, env: Mapping[Value, Thing]) -> Thing:
        if isinstance(value, (Node, Input)):
            return env.get(value)
        if isinstance(value, State):
            if value.name not in self.states:
                raise Unproved(f"state '{value.name}' is not known")
            return self.states[value.name]
        if isinstance(value, Constant):
            return self.owner.constant(value)
        assert isinstance(value, GraphRef)
        return Closure(value.graph, ())

    def _cross(self, node: Node, things: list[Thing], inside: bool) -> None:
        """A gradient that leaves the backward part becomes what the update side is to take for it."""
        if inside:
            if any(isinstance(t, int) and self.terms.traits[t] & AVERAGED for t in things):
                raise Unproved(f"the network takes an averaged gradient (by {site(node)})")
            return
        for i, v in enumerate(node._operands):
            source = self.pure.source.get(v) if isinstance(v, Node) and not is_monad(v.type) else None
            if source is not None and self.parts.get(source) == BACKWARD and not orders_only(node, i):
                things[i] = self._averaged(things[i], source)

    def _averaged(self, thing: Thing, node: Node) -> Thing:
        assert self.side is not None
        assert self.side.mean is not None
        if isinstance(thing, tuple):
            return tuple(self._averaged(t, node) for t in thing)
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

    def _node(self, body: Body, node: Node, things: list[Thing], inside: bool) -> Thing:
        name = node.op.name
        if name == "Depend":
            return things[0]
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
            return self._chosen(self.term(things[0]), things[1], things[2])
        return self._primitive(body, node, things, inside)

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
                whole.condition, self._element(whole.yes, index, node), self._element(whole.no, index, node)
            )
        if not isinstance(whole, int):
            raise Unproved(f"{taker} takes an element of what is no tuple")
        terms = self.terms
        if terms.heads[whole][0] == "tuple":
            return terms.arguments[whole][index]
        if terms.heads[whole][0] == "ite":
            condition, yes, no = terms.arguments[whole]
            return self._chosen(condition, self._element(yes, index, node), self._element(no, index, node))
        shape = None if node is None else terms.type(node.type)[1]
        return terms.make(("item", index), (whole,), shape, node and self.source(node))

    def source(self, node: Node) -> Node:
        """The node of the graph that was run."""
        return self.pure.source[node]

    def _primitive(self, body: Body, node: Node, things: list[Thing], inside: bool) -> Thing:
        terms, known, op, name = self.terms, facts(node.op), node.op, node.op.name
        operands = node._operands
        taken = [i for i, v in enumerate(operands) if not is_monad(v.type)]
        arguments = tuple(self.term(things[i]) for i in taken)
        if not terms.rounds:
            arguments = tuple(self._named_type(node, i, a) for i, a in zip(taken, arguments, strict=True))
            if (product := product_of(node, arguments, terms)) is not None:
                return product
        write, made_by = body.writes.get(node), self.source(node)
        said, shape = terms.type(node.type if write is None else write.result)
        copies = known.family is Family.COPY and not known.writes and len(arguments) == 1
        if copies or (not terms.rounds and _is_cast(node)):
            return arguments[0]
        if is_random(node):
            head = ("draw", name, *self._drawn(node, arguments), said)
            key = (head, arguments)
            serial = self._draws[key] = self._draws.get(key, -1) + 1
            if self.owner.draws_alike and known.seeds:
                arguments = tuple(a for i, a in zip(taken, arguments, strict=True) if i not in known.seeds)
            return terms.make((*head, serial), arguments, shape, made_by, VARIES)
        if write is None:
            made = terms.make(("op", name, terms.op(op), said), arguments, shape, made_by)
            return self._again(node, name, arguments, made)
        if self.side is not None and self.side.only and not inside:
            left_out = terms.make(("left out", name, node.name), arguments, shape, made_by, AVERAGED)
            return (left_out, *(things[i] for i in write.taken)) if write.taken else left_out
        return self._effect(node, write, arguments, inside)

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

    def _effect(self, node: Node, write: Write, arguments: tuple[int, ...], inside: bool) -> Thing:
        """The result of an effect, and what it leaves in what it writes."""
        terms, known, name, source = self.terms, facts(node.op), node.op.name, self.source(node)
        said, shape = terms.type(write.result)
        head: tuple[object, ...] = (name, terms.op(node.op))
        if write.outside:
            arguments = (*arguments, self.world)
            self.world = terms.make(("written", *head, "output"), arguments, None, source, VARIES)
        left: list[int] = []
        for k, at in enumerate(write.taken):
            of, form = terms.type(node._operands[at].type)
            if name == "Assign" and len(arguments) == 2:
                new = arguments[1]
                if terms.shapes[new] != form:
                    new = terms.make(("written", *head, k, of), arguments, form, source)
            elif known.pure and len(arguments) in (2, 3):
                new = terms.make(("op", known.pure, terms.op(make_op(known.pure)), of), arguments, form, source)
            else:
                new = terms.make(("written", *head, k, of), arguments, form, source)
            left.append(new)
            if inside:
                self.network.add(new)
        result = terms.make(("op", *head, said), arguments, shape, source)
        return (result, *left) if left else result

    # -- calls -------------------------------------------------------------------------------------------------

    def _tail(self, body: Body, node: Node, things: Sequence[Thing], then: Callable[[Thing], Thing]) -> Tail:
        """A call. It takes what it may write behind its other operands."""
        write = body.writes.get(node)
        count = 0 if write is None else len(write.taken)
        own = things[1 : len(things) - count]
        held = things[len(things) - count :]

        def packed(function: Graph, given: Thing) -> Thing:
            places = self.pure.bodies[function].places
            formals = (None,) * count if write is None else write.formals.get(function.name)
            if formals is None or {*places} - {function.inputs[i] for i in formals if i is not None}:
                raise Unproved(f"{site(node)} calls '{function.name}', which writes what cannot be followed")
            assert isinstance(given, tuple)
            left = [h if i is None else given[1 + places.index(function.inputs[i])]
                    for i, h in zip(formals, held, strict=True)]  # fmt: skip
            return (given[0], *left) if count else given[0]

        return Tail(node, things[0], tuple(own), packed, then)

    def _followed(self, call: Thing | Tail, depth: int) -> Thing:
        """What a call gives, and the calls that functions end with."""
        inside = False
        while isinstance(call, Tail):
            inside |= self._inside(call.node)
            call = self._step(call, depth)
        if inside and isinstance(call, int):
            self.network.add(call)
        return call

    def _step(self, call: Tail, depth: int) -> Thing | Tail:
        """Runs a function up to the call that it ends with."""
        node, callee = call.node, call.callee
        if isinstance(callee, Choice):
            return self._both(call, callee, depth)
        if isinstance(callee, int) and self.terms.name(callee) in ("item", "apply"):
            return call.then(self._apply(node, callee, call.extra))  # a function that a loop made
        if not isinstance(callee, Closure):
            raise Unproved(f"{site(node)} calls a function that cannot be followed")
        function, given = callee.function, (*callee.bound, *call.extra)
        if len(function.inputs) != len(given):
            raise Unproved(f"{site(node)} calls '{function.name}' with {len(given)} arguments, and it takes "
                           f"{len(function.inputs)}")  # fmt: skip
        if function.name in self.owner.recursive(self.main):
            return call.then(self._apply(node, self._function(function), given))
        env = dict[Value, Thing](zip(function.inputs, given, strict=True))
        found = self._rest(function, iter(function), env, depth + 1, self._tail_of(function))
        if not isinstance(found, Tail):
            return call.finish(function, found)
        resume = found.then
        return Tail(found.node, found.callee, found.extra, found.packed, lambda v: call.finish(function, resume(v)))

    def _both(self, call: Tail, choice: Choice, depth: int) -> Thing | Tail:
        """Both branches. Where they end with a call of one function, it is called once, on what they leave: each
        choice after another would otherwise double what is run."""
        condition, before = choice.condition, self.world
        yes = self._step(Tail(call.node, choice.yes, call.extra, call.packed, _given), depth)
        after, self.world = self.world, before
        no = self._step(Tail(call.node, choice.no, call.extra, call.packed, _given), depth)
        if (function := _same_function(yes, no)) is not None:
            one, other = yes, no
            assert isinstance(one, Tail)
            assert isinstance(other, Tail)
            self.world = ite(self.terms, condition, after, self.world)
            pairs = zip(one.arguments, other.arguments, strict=True)
            given = tuple(self._either(condition, a, b) for a, b in pairs)

            def packed(function: Graph, found: Thing) -> Thing:
                return self._chosen(condition, one.finish(function, found), other.finish(function, found))

            return Tail(one.node, Closure(function, ()), given, packed, call.then)
        without, self.world = self.world, after
        yes = self._followed(yes, depth)
        after, self.world = self.world, without
        no = self._followed(no, depth)
        self.world = ite(self.terms, condition, after, self.world)
        return call.then(self._chosen(condition, yes, no))

    def _either(self, condition: int, yes: Thing, no: Thing) -> Thing:
        """An argument that two branches give on."""
        if isinstance(yes, tuple) and isinstance(no, tuple) and len(yes) == len(no):
            return tuple(self._either(condition, a, b) for a, b in zip(yes, no, strict=True))
        return yes if yes == no else self._chosen(condition, yes, no)

    def _tail_of(self, graph: Graph) -> Node | None:
        """The call that a function ends with: what follows only takes its result apart."""
        if graph not in self._tails:
            tail = None
            for node in reversed(graph):
                if node.op is CALL:
                    tail = node
                    break
                if node.op.name not in ("TupleGetItem", "Depend") and node is not graph.result:
                    break
            self._tails[graph] = tail
        return self._tails[graph]

    def _apply(self, node: Node, function: int, given: tuple[Thing, ...]) -> int:
        terms = self.terms
        arguments = (function, *(self._value(t) for t in given if t is not None))
        serial = 0
        if terms.traits[function] & VARIES:  # it draws
            key = ("apply", arguments)
            serial = self._draws[key] = self._draws.get(key, -1) + 1
        return terms.make(("apply", serial), arguments, terms.type(node.type)[1], self.source(node))

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
        for name, function in reached.items():
            pure = self.pure.bodies[function]
            if pure.places or any(write.outside for write in pure.writes.values()):
                raise Unproved(f"the loop '{entry.name}' writes state (in '{name}'): law missing")
        bodies = []
        for name in sorted(reached):
            body = self._summary(reached[name])
            bodies.append(self.terms.make(("body", name), (body,)))
        found = self.owner.functions[entry] = self.terms.make(("function", entry.name), tuple(bodies))
        return found

    def _summary(self, graph: Graph) -> int:
        """The result of a function that writes nothing, of formal arguments; what it calls stays a call."""
        terms, body = self.terms, self.pure.bodies[graph]
        env: dict[Value, Thing] = {}
        for i, v in enumerate(graph.inputs):
            said, shape = terms.type(v.type)
            env[v] = None if is_monad(v.type) else terms.make(("formal", graph.name, i, said), (), shape)
        for node in graph:
            things = [self._thing(v, env) for v in node._operands]
            name = node.op.name
            if name in ("Partial", "Switch") or node.op is CALL:
                parts = tuple(self._value(t) for t in things if t is not None)
                env[node] = terms.make(("applies", name), parts, terms.type(node.type)[1], self.source(node))
            else:
                env[node] = self._node(body, node, things, False)
        found = self._thing(graph.result, env)
        assert isinstance(found, tuple)
        return self._value(found[0])

    def _value(self, thing: Thing) -> int:
        """A thing as an argument of a function that is not followed."""
        terms = self.terms
        if isinstance(thing, tuple):
            return terms.make(("tuple",), tuple(self._value(t) for t in thing if t is not None))
        if isinstance(thing, Closure):
            bound = tuple(self._value(t) for t in thing.bound if t is not None)
            return terms.make(("closure", thing.function.name), bound)
        if isinstance(thing, Choice):
            return ite(terms, thing.condition, self._value(thing.yes), self._value(thing.no))
        return self.term(thing)

    # -- values ------------------------------------------------------------------------------------------------

    def term(self, thing: Thing) -> int:
        if isinstance(thing, int):
            return thing
        if isinstance(thing, tuple):
            return self.terms.make(("tuple",), tuple(map(self.term, thing)))
        if thing is None:
            return self.terms.make(("token",))
        raise Unproved("a primitive takes a function")

    def flat(self, thing: Thing) -> list[int]:
        """The terms in a tuple, and in tuples in it."""
        if isinstance(thing, tuple):
            return [x for t in thing for x in self.flat(t)]
        return [self.term(thing)]

    def _chosen(self, condition: int, yes: Thing, no: Thing) -> Thing:
        if yes is no or (yes is None and no is None):
            return yes
        if isinstance(yes, tuple) and isinstance(no, int):
            no = tuple(self._element(no, i, None) for i in range(len(yes)))
        if isinstance(no, tuple) and isinstance(yes, int):
            yes = tuple(self._element(yes, i, None) for i in range(len(no)))
        if isinstance(yes, tuple) and isinstance(no, tuple) and len(yes) == len(no):
            return tuple(self._chosen(condition, a, b) for a, b in zip(yes, no, strict=True))
        if isinstance(yes, int) and isinstance(no, int):
            return ite(self.terms, condition, yes, no)
        held = self.terms.values.get(condition)
        if isinstance(held, bool):
            return yes if held else no
        return Choice(condition, yes, no)


def _given(thing: Thing) -> Thing:
    return thing


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
