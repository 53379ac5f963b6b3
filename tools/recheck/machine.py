"""Runs a graph on the numbers of :mod:`.field`, in one of two orders that its operands and tokens allow."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from graphlib import TopologicalSorter
from typing import Any

from ...ir.analysis.effects.tokens import orders_only
from ...ir.analysis.training.network import BACKWARD
from ...ir.core.attributes import MonadValue
from ...ir.core.errors import Error
from ...ir.core.graph import Constant, Graph, GraphRef, Node, State, Value
from ...ir.core.op import CALL
from ...ir.core.predicates import is_effect, is_random, rests, written_operands
from ...ir.core.prime_field import Num, made, mixed
from ...ir.core.primitives import Family, facts
from ...ir.core.types import TensorType, TupleType, is_monad
from ...ir.core.walk import live_nodes, walk
from .field import Field, Val, constant, flat, is_scalar


class Place(str):
    """A place in memory, by name: a state, or a tensor that a graph made and writes."""

    __slots__ = ()


class Machine:
    """``memory``: what each state holds. ``known``: what stands for numbers that are known. ``parts``: of the original,
    which nodes are the network; ``mean``: what a gradient becomes that leaves it; ``network_only``: the update side
    writes nothing; ``update``: what an optimizer takes instead of its operands. ``late``: nodes run as late as they
    may, and who takes a loaded value reads the state then. ``open_``: functions whose calls are not followed. ``cpu``:
    whether they run on CPU."""

    def __init__(
        self, field: Field, memory: Mapping[str, Val], known: Mapping[Any, Num] | None = None, *,
        parts: Mapping[Node, str] | None = None, mean: Callable[[Node, Num], Val] | None = None,
        network_only: bool = False, late: bool = False, open_: Sequence[Graph] = (),
        update: Callable[[Node, str, list[Any]], list[Any]] | None = None, cpu: bool = False,
    ):  # fmt: skip
        self.field, self.known, self.parts, self.mean = field, known or {}, parts or {}, mean
        self.network_only, self.late, self.open, self.update = network_only, late, open_, update
        self.memory: dict[str, Val] = dict(memory)
        self.cpu = cpu
        self.draws: dict[Any, int] = {}
        self.first: dict[Any, Num] = {}
        """Results of which an element can be computed again from the others, by what tells them (:meth:`again`)."""

    def body(self, graph: Graph, given: Sequence[Any]) -> Any:
        env: dict[Value, Any] = dict(zip(graph.inputs, given, strict=True))
        live = live_nodes([graph.result])
        order = [n for n in graph if n in live]
        if self.late:
            order = list(TopologicalSorter({n: [u for u in n.users if u in live] for n in order}).static_order())[::-1]
        for node in order:
            env[node] = None
            if node.op.name == "UpdateState":
                continue
            value = self.node(node, [self.operand(env, node, i) for i in range(node.num_operands)])
            if isinstance(value, Num):
                value = self.known.get(flat(value), value)
                if any(i in written_operands(user) for user, i in node.use_sites()):
                    place = Place(f"\0{len(self.memory)}")
                    self.memory[place], value = value, place
            env[node] = value
        return self.operand(env, graph._return, 0)

    def operand(self, env: Mapping[Value, Any], node: Node, i: int) -> Any:
        v = node._operands[i]
        if isinstance(v, Constant):
            return None if isinstance(v.value, MonadValue) else constant(v.value)
        if isinstance(v, (State, GraphRef)):
            return Place(v.name) if isinstance(v, State) else partial(self.enter, v.graph)
        leaves = self.mean is not None and isinstance(v, Node) and self.parts.get(v) == BACKWARD
        if leaves and node not in self.parts and node.op.name != "Return" and not orders_only(node, i):
            return self.averaged(v, self.value(env[v]))
        return env[v]

    def averaged(self, node: Value, value: Any) -> Any:
        if isinstance(value, tuple):
            return tuple(self.averaged(node, v) for v in value)
        return self.mean(node, value) if isinstance(node, Node) and isinstance(value, Num) and self.mean else value

    def node(self, node: Node, a: Any) -> Any:
        name, known = node.op.name, facts(node.op)
        if name == "Depend" or (name == "Load" and self.late):
            return a[0]
        if known.family is Family.TUPLE and name not in ("TupleGetItem", "list_getitem"):
            return tuple(a)
        if name == "Partial":
            return partial(*a)
        if name == "Switch":
            return self.chosen(self.value(a[0]), a[1], a[2])
        if node.op is CALL:
            return self.loop(*a) if isinstance(a[0], Num) else a[0](*a[1:])
        taken = [self.value(x) for x, v in zip(a, node._operands, strict=True) if not is_monad(v.type)]
        if name == "Load" or (known.family is Family.COPY and not known.writes and len(taken) == 1):
            return taken[0]
        if known.family is Family.TUPLE:
            whole, at = taken[0], int(taken[1].exact)
            return whole[at] if isinstance(whole, tuple) else mixed(whole, "item", at)
        if is_random(node):
            drawn = (name, *(flat(x) for i, x in enumerate(taken) if i not in known.seeds))
            self.draws[drawn] = self.draws.get(drawn, -1) + 1
            whole = made("draw", drawn, self.draws[drawn])
            if name == "Dropout" and len(taken) > 1:
                self.first[name, flat((taken[0], mixed(whole, "item", 1), taken[1]))] = whole
            return whole
        again = self.again(node, taken)
        if again is not None:
            return again
        if self.network_only and is_effect(node) and node not in self.parts:
            return made("left out", node.name)
        writes = [] if rests(node) else sorted({*written_operands(node), *known.statistics})
        if not all(isinstance(a[i], Place) for i in writes):
            raise Error(f"the checker cannot follow {node!r}: it writes what is no state")
        if self.update is not None and writes and known.gradient is not None:
            taken = self.update(node, a[writes[0]], taken)
        plain = [taken[1]] if name == "Assign" and len(taken) == 2 else None
        new = plain or [self.field.apply(node, known.pure or (name, k), taken) for k in range(len(writes))]
        self.memory.update((a[i], value) for i, value in zip(writes, new, strict=True))
        aliased = writes and isinstance(node.type, TensorType) and node.type.ref
        if aliased:
            return a[writes[0]]
        found = self.field.apply(node, name, taken)
        if name == "BatchNorm" and writes and isinstance(found, Num):
            learned = (mixed(found, "item", 3), mixed(found, "item", 4))
            self.first[name, flat((*taken[:3], *learned, taken[6]))] = found
        return found

    def again(self, node: Node, taken: Sequence[Val]) -> Val | None:
        """What a node computes again that an earlier one computed: DropoutGrad of the mask of a Dropout its first
        result, and so, on CPU, a BatchNorm at rest on the mean and variance of one in training. None for others."""
        name, kind = node.op.name, node.type
        if name == "DropoutGrad" and len(taken) == 2:
            whole = self.first.get(("Dropout", flat((*taken, constant(node.attributes.get("keep_prob"))))))
            return None if whole is None else mixed(whole, "item", 0)
        if name == "BatchNorm" and self.cpu and rests(node) and isinstance(kind, TupleType):
            whole = self.first.get((name, flat((*taken[:5], taken[6]))))
            own = self.field.apply(node, name, taken)
            if whole is not None and isinstance(own, Num):
                return (mixed(whole, "item", 0), *(mixed(own, "item", i) for i in range(1, len(kind.elements))))
        return None

    def value(self, thing: Any) -> Any:
        """What a thing is now: places are read."""
        if isinstance(thing, Place):
            return self.memory[thing]
        return tuple(map(self.value, thing)) if isinstance(thing, tuple) else thing

    def chosen(self, condition: Val, yes: Any, no: Any) -> Any:
        if isinstance(condition, bool):
            return yes if condition else no
        if isinstance(yes, tuple) and isinstance(no, tuple) and len(yes) == len(no):
            return tuple(self.chosen(condition, a, b) for a, b in zip(yes, no, strict=True))
        if isinstance(yes, partial):
            return partial(self.either, condition, yes, no)
        return self.field.choose(condition, self.value(yes), self.value(no))

    def either(self, condition: Val, yes: Any, no: Any, *given: Any) -> Any:
        """Calls two functions, and chooses between what they leave."""
        before = dict(self.memory)
        first = self.value(yes(*given))
        after, self.memory = self.memory, before
        second = self.value(no(*given))
        for place in self.memory.keys() & after.keys():
            self.memory[place] = self.field.choose(condition, after[place], self.memory[place])
        return self.chosen(condition, first, second)

    def enter(self, function: Graph, *given: Any) -> Any:
        """Calls a function. One that may call itself is a hash of what it and all that it calls compute."""
        nest = list(walk([function], _functions_in))
        if function in self.open or not any(function in _functions_in(f) for f in nest):
            return self.loop(function.name, *given) if function in self.open else self.body(function, given)
        if any(is_effect(n) and n.op is not CALL for f in nest for n in f):
            raise Error(f"the checker cannot follow the loop '{function.name}': it writes")
        texts = [function.name]
        for f in sorted(nest, key=lambda f: f.name):
            formals = [made(f.name, i, scalar=is_scalar(v.type)) for i, v in enumerate(f.inputs)]
            texts.append(repr(_flat(Machine(self.field, {}, open_=nest).body(f, formals))))
        return self.loop(tuple(texts), *given)

    def loop(self, function: Any, *given: Any) -> Num:
        return made("loop", _flat(function), *(_flat(self.value(x)) for x in given if x is not None))


def _functions_in(graph: Graph) -> list[Graph]:
    return [v.graph for n in graph for v in n._operands if isinstance(v, GraphRef)]


def _flat(thing: Any) -> Any:
    if isinstance(thing, (tuple, partial)):
        return tuple(map(_flat, thing if isinstance(thing, tuple) else thing.args))
    return thing.name if isinstance(thing, Graph) else flat(thing)
