"""Runs a graph on the numbers of :mod:`.field`, in any order that its operands and tokens allow."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from heapq import heapify, heappop, heappush
from typing import Any

from ...ir.analysis.effects.tokens import orders_only
from ...ir.analysis.training.network import BACKWARD
from ...ir.core.attributes import MonadValue
from ...ir.core.errors import Error
from ...ir.core.graph import Constant, Graph, GraphRef, Node, State, Value
from ...ir.core.op import CALL
from ...ir.core.predicates import is_effect, is_random, rests, written_operands
from ...ir.core.primitives import Family, facts
from ...ir.core.types import TensorType, is_monad
from ...ir.core.walk import live_nodes
from .field import Field, Num, Val, constant, digest


class Ref(list[Any]):
    """A place in memory, which holds one value; ``name``: of a state."""

    name = ""


class Closure(list[Any]):
    """A function and what is bound to it."""


class Choice(list[Any]):
    """A condition, and the two things that it chooses from."""


class Machine:
    """``parts``: of the original, which nodes are the network; ``mean``: what a gradient becomes that leaves it;
    ``update``: what an optimizer takes instead of its operands;
    ``network_only``: the update side writes nothing. ``known``: gradients by number, and their bits. ``late``: nodes
    run as late as they may, and who takes a loaded value reads the state then."""

    def __init__(
        self, field: Field, known: Mapping[int, int] = {}, parts: Mapping[Node, str] | None = None,
        mean: Callable[[Node, Num], Val] | None = None, *, network_only: bool = False, late: bool = False,
        update: Callable[[Node, str, list[Val]], list[Val]] | None = None,
    ):  # fmt: skip
        self.update = update
        self.field, self.known, self.parts, self.mean = field, known, parts or {}, mean
        self.network_only, self.late = network_only, late
        self.draws: dict[int, int] = {}

    def body(self, graph: Graph, given: Sequence[Any], memory: Mapping[str, Ref], open_: tuple[str, ...] = ()) -> Any:
        env: dict[Value, Any] = dict(zip(graph.inputs, given, strict=True))

        def of(v: Value, node: Node, i: int = 0) -> Any:
            if isinstance(v, State):
                return memory[v.name]
            if isinstance(v, Constant):
                return None if isinstance(v.value, MonadValue) else constant(v.value)
            if isinstance(v, GraphRef):
                return Closure([v.graph, ()])
            if (
                self.mean is not None and isinstance(v, Node) and self.parts.get(v) == BACKWARD
                and node is not graph._return and node not in self.parts and not orders_only(node, i)
            ):  # fmt: skip
                return self.averaged(v, self.value(env[v]))
            return env[v]

        live = live_nodes([graph.result])
        nodes = [n for n in graph if n in live]
        rank = {n: -i if self.late else i for i, n in enumerate(nodes)}
        missing = {n: len({o for o in n._operands if isinstance(o, Node)}) for n in nodes}
        ready = [(rank[n], n.name, n) for n in nodes if not missing[n]]
        heapify(ready)
        while ready:
            node = heappop(ready)[2]
            env[node] = None
            if node.op.name != "UpdateState":
                value = self.noted(
                    self.node(node, [of(v, node, i) for i, v in enumerate(node._operands)], memory, open_)
                )
                in_place = isinstance(value, Num) and any(i in written_operands(u) for u, i in node.use_sites())
                env[node] = Ref([value]) if in_place else value
            for user in node.users:
                if user in missing:
                    missing[user] -= 1
                    if not missing[user]:
                        heappush(ready, (rank[user], user.name, user))
        return of(graph.result, graph._return)

    def averaged(self, node: Node, value: Any) -> Any:
        if isinstance(value, tuple):
            return tuple(self.averaged(node, v) for v in value)
        return self.mean(node, value) if isinstance(value, Num) and self.mean else value

    def node(self, node: Node, a: list[Any], memory: Mapping[str, Ref], open_: tuple[str, ...]) -> Any:
        name, op = node.op.name, node.op
        if name == "Depend" or (name == "Load" and self.late):
            return a[0]
        if name in ("MakeTuple", "MakeList", "make_list"):
            return tuple(a)
        if name == "Partial":
            return Closure([a[0][0], (*a[0][1], *a[1:])])
        if name == "Switch":
            return self.chosen(self.value(a[0]), a[1], a[2])
        if op is CALL:
            return self.call(node, a[0], a[1:], memory, open_)
        taken = [self.value(x) for x, v in zip(a, node._operands, strict=True) if not is_monad(v.type)]
        if name == "Load" or (facts(op).family is Family.COPY and not facts(op).writes and len(taken) == 1):
            return taken[0]
        if name == "TupleGetItem":
            whole, at = taken[0], int(taken[1].exact)
            if isinstance(whole, tuple):
                return whole[at]
            return Num(digest("item", at, whole.number), whole.degree, None, whole.tests)
        if is_random(node):
            return self.draw(node, taken)
        writes = [] if rests(node) else sorted({*written_operands(node), *facts(op).statistics})
        inside = node in self.parts
        if self.network_only and not inside and is_effect(node):
            return Num(digest("left out", node.name))
        if self.update is not None and writes and facts(op).gradient is not None:
            taken = self.update(node, getattr(a[writes[0]], "name", ""), taken)
        made: list[Val] = []
        for k, i in enumerate(writes):
            if not isinstance(a[i], Ref):
                raise Error(f"the checker cannot follow {node!r}: it writes what is no state")
            plain = name == "Assign" and len(taken) == 2
            made.append(taken[1] if plain else self.field.apply(node, facts(op).pure or (name, k), taken))
        for i, new in zip(writes, made, strict=True):
            a[i][:] = [new]
        if writes and isinstance(node.type, TensorType) and node.type.ref:
            return a[writes[0]]
        return self.field.apply(node, name, taken)

    def noted(self, value: Any) -> Any:
        bit = self.known.get(value.number) if isinstance(value, Num) else None
        return value if bit is None else Num(value.number, value.degree, value.exact, bit)

    def draw(self, node: Node, taken: Sequence[Val]) -> Num:
        values = [self.field.flat(x) for i, x in enumerate(taken) if i not in facts(node.op).seeds]
        alike = digest(node.op.name, *values)
        self.draws[alike] = self.draws.get(alike, -1) + 1
        return Num(digest("draw", alike, self.draws[alike]))

    def loop(self, node: Node, function: Num, given: Sequence[Any]) -> Num:
        """A call of a function that may call itself: a hash of its text and of what it takes."""
        if any(
            is_effect(n) and n.op is not CALL
            for f in (node.graph.all_graphs() if node.graph else ())
            if f.owner
            for n in f
        ):
            raise Error(f"the checker cannot follow the loop at {node!r}: it writes")
        parts = [self.field.flat(self.value(x)) for x in given if x is not None]
        return Num(digest("loop", self.field.flat(function), *parts))

    def chosen(self, condition: Val, yes: Any, no: Any) -> Any:
        settled = self.field.settled(condition)
        if settled is not None:
            return yes if settled else no
        if isinstance(yes, tuple) and isinstance(no, tuple) and len(yes) == len(no):
            return tuple(self.chosen(condition, a, b) for a, b in zip(yes, no, strict=True))
        if isinstance(yes, (Closure, Choice)):
            return Choice([condition, yes, no])
        return self.field.choose(condition, self.value(yes), self.value(no))

    def value(self, thing: Any) -> Any:
        if isinstance(thing, Ref):
            return thing[0]
        return tuple(map(self.value, thing)) if isinstance(thing, tuple) else thing

    def call(self, node: Node, callee: Any, extra: list[Any], memory: Mapping[str, Ref], open_: tuple[str, ...]) -> Any:
        if isinstance(callee, Choice):
            places: dict[int, Ref] = {}
            _places((callee, extra), places)
            before = {i: r[0] for i, r in places.items()}
            yes = self.value(self.call(node, callee[1], extra, memory, open_))
            after = {i: r[0] for i, r in places.items()}
            for i, r in places.items():
                r[:] = [before[i]]
            no = self.value(self.call(node, callee[2], extra, memory, open_))
            for i, r in places.items():
                r[:] = [self.field.choose(callee[0], after[i], r[0])]
            return self.chosen(callee[0], yes, no)
        if isinstance(callee, Num):  # a function that a loop made
            return self.loop(node, callee, extra)
        function, bound = callee
        nest = _nest(function)
        if any(
            function is g for f in nest for n in f for v in n._operands if isinstance(v, GraphRef) for g in [v.graph]
        ):
            return self.loop(node, Num(digest("loop", *map(_shape_of, nest))), [*bound, *extra])
        return self.body(function, [*bound, *extra], memory, (*open_, function.name))


def _places(thing: Any, into: dict[int, Ref]) -> None:
    if isinstance(thing, Ref):
        into[id(thing)] = thing
    elif isinstance(thing, (tuple, Closure, Choice, list)) and not isinstance(thing, Graph):
        for x in thing:
            _places(x, into)


def _nest(function: Graph) -> list[Graph]:
    """The functions that a call may reach through references, itself first."""
    found = [function]
    for here in found:
        found += {v.graph: 1 for n in here for v in n._operands if isinstance(v, GraphRef) and v.graph not in found}
    return found


def _shape_of(graph: Graph) -> int:
    """What a function computes, from the operations behind its result; orders and copies do not count."""
    hashes: dict[Value, Hashable] = {v: ("input", i) for i, v in enumerate(graph.inputs)}

    def of(v: Value) -> Hashable:
        return hashes.get(v) or (v.graph.name if isinstance(v, GraphRef) else repr(getattr(v, "value", v.name)))

    for n in graph:
        through = n.op.name in ("Depend", "Load") or facts(n.op).family is Family.COPY
        operands = [of(v) for v in n._operands if not is_monad(v.type)]
        hashes[n] = (
            operands[0] if through and operands else digest(n.op.name, tuple(sorted(map(repr, n.op.key[1]))), *operands)
        )
    return digest(graph.name, of(graph.result))
