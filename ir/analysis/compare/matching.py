"""Which node of one graph is which of another.

1. What computes the same from inputs and state is the same, where each graph has one such node.
2. If these pairs have the same names, names mean the same in both: a pass leaves a node its name, and notes the nodes
   that a new one was made of.
3. What stands in one place is the same: operands by position, users that are alone of their kind.

Each step is linear in nodes and operands.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Callable, Hashable, Iterable, Iterator
from dataclasses import dataclass, field

from ...core.attributes import bits
from ...core.graph import Constant, Graph, GraphRef, Input, Node, State, Value, source_names
from ...core.types import FunctionType, TupleType, Type, is_monad
from .value_numbers import ValueNumbers, notes

Pair = tuple[Node, Node]
Groups = dict[Hashable, list[Node]]


@dataclass(slots=True)
class Matching:
    """The pairs of two graphs with their functions. ``functions``: names in the second graph by those in the first."""

    a: Graph
    b: Graph
    nodes: dict[Node, Node] = field(default_factory=dict)
    back: dict[Node, Node] = field(default_factory=dict)
    functions: dict[str, str] = field(default_factory=dict)
    inputs: tuple[dict[Input, Hashable], dict[Input, Hashable]] = field(default_factory=lambda: ({}, {}))
    _taken: set[str] = field(default_factory=set)

    def pair(self, x: Node, y: Node) -> None:
        self.nodes[x] = y
        self.back[y] = x

    def pair_functions(self, f: Graph, g: Graph) -> bool:
        """Whether both were free."""
        if f.name in self.functions or g.name in self._taken:
            return False
        self.functions[f.name] = g.name
        self._taken.add(g.name)
        self.pair_inputs(f, g)
        return True

    def pair_inputs(self, f: Graph, g: Graph) -> None:
        """Inputs of a main graph by name, those of functions by position; the rest by position."""
        named = {v.name: v for v in g.inputs} if f.owner is None or len(f.inputs) != len(g.inputs) else {}
        pairs = [(v, named[v.name]) for v in f.inputs if v.name in named]
        left, right = {v for v, _ in pairs}, {w for _, w in pairs}
        rest = zip([v for v in f.inputs if v not in left], [w for w in g.inputs if w not in right], strict=False)
        for i, (v, w) in enumerate([*pairs, *rest]):
            self.inputs[0][v] = self.inputs[1][w] = (f.name, i)

    def same(self, x: Value, y: Value) -> bool:
        """Whether a value of the first graph is this one of the second."""
        if isinstance(x, Node):
            return self.nodes.get(x) is y
        return not isinstance(y, Node) and self.key(x, 0) == self.key(y, 1)

    def key(self, value: Value, side: int) -> Hashable:
        """What an input, state, constant or function of the first graph (side 0) or the second (side 1) is in both."""
        if isinstance(value, State):
            return "state", value.name, self.type(value.type, side)
        if isinstance(value, Input):
            return "input", self.inputs[side].get(value, value), self.type(value.type, side)
        if isinstance(value, Constant):
            return "constant", bits(value.value), self.type(value.type, side)
        assert isinstance(value, GraphRef)
        return "function", self._function(value.graph.name, side)

    def type(self, type_: Type, side: int) -> Hashable:
        if isinstance(type_, FunctionType):
            return "function", tuple(self._function(name, side) for name in type_.functions), type_.union
        if isinstance(type_, TupleType):
            return "tuple", tuple(self.type(t, side) for t in type_.elements), type_.is_list, type_.dynamic
        return type_

    def _function(self, name: str, side: int) -> Hashable:
        if side or name not in self.a.functions:
            return name
        return self.functions.get(name, ("gone", name))

    def bodies(self) -> Iterator[tuple[Graph | None, Graph | None]]:
        """The main graphs, the functions by pair, and those that have no counterpart."""
        yield self.a, self.b
        for name, other in self.functions.items():
            yield self.a.functions[name], self.b.functions[other]
        for name, function in self.a.functions.items():
            if name not in self.functions:
                yield function, None
        for name, function in self.b.functions.items():
            if name not in self._taken:
                yield None, function


def match(a: Graph, b: Graph) -> Matching:
    """Matches two main graphs with their functions: those of matched calls, that do the same, or of one name."""
    matching = Matching(a, b)
    matching.pair_inputs(a, b)
    numbers = (ValueNumbers(a, matching.inputs[0]), ValueNumbers(b, matching.inputs[1]))
    same = {number: f for f, number in numbers[1].functions.items()}
    uncalled = [(a.functions[name], b.functions[name]) for name in a.functions if name in b.functions]
    uncalled += [(f, same[number]) for f, number in numbers[0].functions.items() if number in same]
    todo = deque([(a, b)])
    while todo:
        for x, y in _Bodies(matching, *todo.popleft(), numbers).run():
            for v, w in zip(x._operands, y._operands, strict=False):
                if isinstance(v, GraphRef) and isinstance(w, GraphRef) and matching.pair_functions(v.graph, w.graph):
                    todo.append((v.graph, w.graph))
        while not todo and uncalled:
            f, g = uncalled.pop()
            if matching.pair_functions(f, g):
                todo.append((f, g))
    return matching


class _Bodies:
    """Matches the nodes of two graphs, without those of their functions."""

    def __init__(self, matching: Matching, a: Graph, b: Graph, numbers: tuple[ValueNumbers, ValueNumbers]):
        self.m, self.a, self.b = matching, a, b
        self.numbers = {**numbers[0].nodes(a), **numbers[1].nodes(b)}
        self.signature = numbers[0].signature
        self.found: list[Pair] = []

    def run(self) -> list[Pair]:
        self.m.pair(self.a._return, self.b._return)
        self._only_ones(_groups(self.a, self._alike), _groups(self.b, self._alike))
        self._around([(self.a._return, self.b._return), *self.found], self._alike)
        if all(source_names([x]) == source_names([y]) for x, y in self.found):
            for key in (lambda n: (n.name, n.origin and n.origin.sources), lambda n: (n.op.name, source_names([n]))):
                self._only_ones(_groups(self._left_a(), key), _groups(self._left_b(), key))
        for like in (self.signature, lambda n: n.op.name):
            self._around([(self.a._return, self.b._return), *self.found], like)
        self._in_turn()
        return [(self.a._return, self.b._return), *self.found]

    def _alike(self, node: Node) -> Hashable:
        return self.numbers[node], notes(node)

    def _left_a(self) -> list[Node]:
        return [x for x in self.a if x not in self.m.nodes]

    def _left_b(self) -> list[Node]:
        return [y for y in self.b if y not in self.m.back]

    def _pair(self, x: Node, y: Node) -> Pair:
        self.m.pair(x, y)
        self.found.append((x, y))
        return x, y

    def _may(self, x: Node, y: Node, key: Callable[[Node], Hashable]) -> bool:
        """Both are free and of one key; tokens are matched by what they wait for, not by where they stand."""
        if x in self.m.nodes or y in self.m.back or x.graph is not self.a or y.graph is not self.b:
            return False
        if key(x) != key(y):
            return False
        plain = [[v for v in node._operands if not is_monad(v.type)] for node in (x, y)]
        return x.op.name != "UpdateState" or (len(plain[0]) == len(plain[1]) and all(map(self.m.same, *plain)))

    def _only_ones(self, left: Groups, right: Groups) -> list[Pair]:
        """Pairs nodes that are the only ones of one key on both sides."""
        both = [(few[0], right[key][0]) for key, few in left.items() if len(few) == 1 and len(right.get(key, ())) == 1]
        return [self._pair(x, y) for x, y in both]

    def _around(self, pairs: list[Pair], key: Callable[[Node], Hashable]) -> None:
        """Operands of pairs, place by place, and users alone of their kind, if they have one key; and so on."""
        todo = pairs[::-1]
        while todo:
            x, y = todo.pop()
            places = list(zip(x._operands, y._operands, strict=False))
            if x is not self.a._return:
                left, right = _uses(x, self.m.nodes), _uses(y, self.m.back)
                places += [(v[0], right[k][0]) for k, v in left.items() if len(v) == 1 and len(right.get(k, ())) == 1]
            for v, w in places:
                if isinstance(v, Node) and isinstance(w, Node) and self._may(v, w, key):
                    todo.append(self._pair(v, w))

    def _in_turn(self) -> None:
        """Of several that compute the same: those of one name first, then as they stand."""
        left, right = _groups(self._left_a(), self._alike), _groups(self._left_b(), self._alike)
        for key, several in left.items():
            others = right.get(key, [])
            names = {y.name: y for y in others}
            named = {x: names.pop(x.name) for x in several if x.name in names}
            taken = set(named.values())
            rest = zip([x for x in several if x not in named], [y for y in others if y not in taken], strict=False)
            for x, y in [*named.items(), *rest]:
                if x not in self.m.nodes and y not in self.m.back:
                    self._around([self._pair(x, y)], self._alike)


def _groups(nodes: Iterable[Node], key: Callable[[Node], Hashable]) -> Groups:
    groups: Groups = defaultdict(list)
    for node in nodes:
        groups[key(node)].append(node)
    return groups


def _uses(node: Node, matched: dict[Node, Node]) -> Groups:
    """The users that are not matched, by primitive, scope and operand index."""
    groups: Groups = defaultdict(list)
    for user, i in node.use_sites():
        if user not in matched:
            groups[user.op.name, user.scope, i].append(user)
    return groups
