"""Which node of one graph is which of another: found by structure first, by what nodes are called last.

1. Nodes that are computed from the same and used for the same are the same (:func:`.fingerprint.colours`).
2. What a change separates from one side is found from the other: from operands that are matched (a node that computes
   the same from the same), and from users (what stands where the other stood). Effect tokens count in 1 only.
3. Scopes and origins of nodes help; origins where the nodes matched so far show that names mean the same in both.
4. What is left is paired with what has the same primitive and a neighbour in common.

Each step is linear in nodes and operands, also on wide nodes.
"""

from __future__ import annotations

from collections import Counter, defaultdict, deque
from collections.abc import Callable, Hashable, Iterable, Iterator
from dataclasses import dataclass, field
from itertools import islice

from ...core.graph import Graph, GraphRef, Input, Node, State, Value, source_names
from ...core.types import is_monad
from .fingerprint import Keys, body_hash, colours, notes

Pair = tuple[Node, Node]
Groups = dict[Hashable, list[Node]]
_ROUNDS = 3
_ALIKE = 8
"""Of so many nodes of one colour the best is chosen; of more, the first."""


@dataclass(slots=True)
class Matching:
    """The pairs of two graphs with their functions. ``functions``: names in the second graph by those in the first."""

    a: Graph
    b: Graph
    nodes: dict[Node, Node] = field(default_factory=dict)
    back: dict[Node, Node] = field(default_factory=dict)
    functions: dict[str, str] = field(default_factory=dict)
    keys: tuple[Keys, Keys] = field(default=(Keys({}, {}), Keys({}, {})))
    _names: tuple[dict[str, Hashable], dict[str, Hashable]] = field(default_factory=lambda: ({}, {}))
    _inputs: tuple[dict[Input, Hashable], dict[Input, Hashable]] = field(default_factory=lambda: ({}, {}))

    def pair(self, x: Node, y: Node) -> None:
        self.nodes[x] = y
        self.back[y] = x

    def pair_functions(self, f: Graph, g: Graph, key: Hashable = None) -> None:
        """``key``: the same for functions that are all alike, so that each may stand for each."""
        self.functions[f.name] = g.name
        self._names[0][f.name] = self._names[1][g.name] = ("alike", key) if key is not None else ("pair", f.name)
        self._pair_inputs(f, g)

    def same(self, x: Value, y: Value) -> bool:
        """Whether a value of the first graph is this one of the second."""
        if isinstance(x, Node):
            return self.nodes.get(x) is y
        return not isinstance(y, Node) and self.keys[0].leaf(x) == self.keys[1].leaf(y)

    def bodies(self) -> Iterator[tuple[Graph | None, Graph | None]]:
        """The main graphs, the functions by pair, and those that have no counterpart."""
        yield self.a, self.b
        for name, other in self.functions.items():
            yield self.a.functions[name], self.b.functions[other]
        for name, function in self.a.functions.items():
            if name not in self.functions:
                yield function, None
        found = set(self.functions.values())
        for name, function in self.b.functions.items():
            if name not in found:
                yield None, function

    def renew_keys(self) -> None:
        """To be called after functions were paired: keys mention them."""
        self.keys = (Keys(self._names[0], self._inputs[0]), Keys(self._names[1], self._inputs[1]))

    def _pair_inputs(self, f: Graph, g: Graph) -> None:
        """Inputs of a main graph by name, those of functions by position; the rest by position."""
        main = f.owner is None
        alike = len(f.inputs) == len(g.inputs)
        named = {v.name: v for v in g.inputs} if main or not alike else {}
        pairs = [(v, named[v.name]) for v in f.inputs if v.name in named]
        left, right = {v for v, _ in pairs}, {w for _, w in pairs}
        rest = zip([v for v in f.inputs if v not in left], [w for w in g.inputs if w not in right], strict=False)
        for i, (v, w) in enumerate([*pairs, *rest]):
            self._inputs[0][v] = self._inputs[1][w] = (f.name, i)


def match(a: Graph, b: Graph) -> Matching:
    """Matches two main graphs with their functions."""
    matching = Matching(a, b)
    matching.pair_functions(a, b)
    del matching.functions[a.name]
    _match_functions(matching)
    matching.renew_keys()
    todo: deque[tuple[Graph, Graph]] = deque([(a, b)])
    todo.extend((a.functions[x], b.functions[y]) for x, y in matching.functions.items())
    taken = set(matching.functions.values())
    while todo:
        for x, y in _Bodies(matching, *todo.popleft()).run():
            # A function that has changed and has another name is known by who calls it.
            for v, w in zip(x._operands, y._operands, strict=False):
                if (
                    isinstance(v, GraphRef)
                    and isinstance(w, GraphRef)
                    and v.graph.name not in matching.functions
                    and w.graph.name not in taken
                ):
                    taken.add(w.graph.name)
                    matching.pair_functions(v.graph, w.graph)
                    matching.renew_keys()
                    todo.append((v.graph, w.graph))
    return matching


def _match_functions(matching: Matching) -> None:
    """Functions that do the same; then those of one name."""
    sides = (matching.a.functions, matching.b.functions)
    exact = (_body_hashes(sides[0]), _body_hashes(sides[1]))
    free = (dict(sides[0]), dict(sides[1]))

    def pair_by(left: Callable[[str], Hashable], right: Callable[[str], Hashable], alike: bool = False) -> None:
        candidates: dict[Hashable, deque[str]] = defaultdict(deque)
        for name in free[1]:
            candidates[right(name)].append(name)
        for name in list(free[0]):
            found = candidates.get(left(name))
            if found:
                other = found.popleft()
                matching.pair_functions(free[0].pop(name), free[1].pop(other), exact[0][name] if alike else None)

    pair_by(lambda n: (exact[0][n], n), lambda n: (exact[1][n], n), alike=True)
    pair_by(lambda n: exact[0][n], lambda n: exact[1][n], alike=True)
    pair_by(lambda n: n, lambda n: n)


def _body_hashes(functions: dict[str, Graph]) -> dict[str, Hashable]:
    """A hash of each function that does not depend on names of functions: as deep as calls go, up to some rounds."""
    hashes: dict[str, Hashable] = dict.fromkeys(functions, "function")
    inputs: dict[Input, Hashable] = {v: i for f in functions.values() for i, v in enumerate(f.inputs)}
    for _ in range(_ROUNDS):
        keys = Keys(hashes, inputs)
        hashes = {name: body_hash(f, keys) for name, f in functions.items()}
    return hashes


class _Bodies:
    """Matches the nodes of two graphs, without those of their functions."""

    def __init__(self, matching: Matching, a: Graph, b: Graph):
        self.m = matching
        self.a, self.b = a, b
        self.key_a, self.key_b = matching.keys
        self.found: list[Pair] = []

    def run(self) -> list[Pair]:
        self.m.nodes[self.a._return] = self.b._return
        self.m.back[self.b._return] = self.a._return
        self._same_colour()
        if len(self.found) < max(len(self.a), len(self.b)):
            self._around([(self.a._return, self.b._return), *self.found])
            self._by_notes()
            self._by_origin()
            self._by_state()
            for weaker in (self._same_sig, lambda x, y: x.op.name == y.op.name):
                self._by_neighbours(weaker)
            self._in_place()
        return self.found

    # -- what is the same ------------------------------------------------------------------------------------

    def _same_colour(self) -> None:
        colour_a, colour_b = colours(self.a, self.key_a), colours(self.b, self.key_b)
        groups: dict[int, deque[Node]] = defaultdict(deque)
        for y in reversed(self.b):
            groups[colour_b[y]].append(y)
        counts = Counter(colour_a[x] for x in self.a)
        for x in reversed(self.a):
            if x in self.m.nodes:
                continue
            colour = colour_a[x]
            group = groups.get(colour)
            while group and group[0] in self.m.back:
                group.popleft()
            if not group:
                continue
            if len(group) == 1 and counts[colour] == 1:
                self._pair(x, group[0])
                continue
            y = self._most_alike(x, group)
            # Only nodes that no result needs can share a colour: the choice decides on what they are used with.
            self._spread([self._pair(x, y)], lambda v, w: colour_a[v] == colour_b[w], users=True)

    def _agreement(self, x: Node, y: Node) -> int:
        return sum(self.m.same(v, w) for v, w in zip(x._operands, y._operands, strict=False))

    # -- what stands around a change -------------------------------------------------------------------------

    def _around(self, pairs: list[Pair]) -> None:
        """From operands and from users in turn, while that finds anything."""
        while pairs:
            start = len(self.found)
            self._spread(pairs, self._same_sig, users=False)
            self._same_from_same()
            pairs = self.found[start:]

    def _same_from_same(self) -> None:
        """Nodes of one primitive and type with matched operands; of several, by notes, or at least by name."""
        candidates: dict[Hashable, deque[Node]] = defaultdict(deque)
        for y in self._left_b():
            tokens = [w if isinstance(w, Node) else self.key_b.leaf(w) for w in self._plain(y)]
            key = (self.key_b.sig(y), tuple(tokens))
            candidates[key].append(y)
            candidates[key, notes(y)].append(y)
        for picky in (True, False):
            for x in self._left_a():
                known = self._tokens(x)
                if known is None:
                    continue
                key = (self.key_a.sig(x), tuple(known))
                group = candidates.get((key, notes(x)) if picky else key)
                while group and group[0] in self.m.back:
                    group.popleft()
                if group:
                    self._pair(x, self._most_alike(x, group))

    def _tokens(self, x: Node) -> list[Node | int] | None:
        """The operands of a node in the second graph; None if one of them is not known there."""
        tokens = [self.m.nodes.get(v) if isinstance(v, Node) else self.key_a.leaf(v) for v in self._plain(x)]
        return None if None in tokens else tokens  # type: ignore[return-value]

    def _most_alike(self, x: Node, group: Iterable[Node]) -> Node:
        """Of a group that is not all taken."""
        some = islice((y for y in group if y not in self.m.back), _ALIKE)
        return max(some, key=lambda y: (self._agreement(x, y), x.name == y.name))

    def _by_notes(self) -> None:
        """Nodes that share primitive, type and notes alone: scopes tell layers apart, links the nodes of a layer."""
        start = len(self.found)
        sig_a, sig_b = self.key_a.sig, self.key_b.sig
        self._unique(lambda x: (sig_a(x), notes(x)), lambda y: (sig_b(y), notes(y)), lambda x, y: bool(x.scope))
        self._around(self.found[start:])

    def _by_origin(self) -> None:
        """Nodes of one primitive and one origin, or name where a graph's own nodes are: only where names mean the same
        in both, which all pairs so far show, and never against all that is known of operands and users."""
        start = len(self.found)
        if all(source_names([x]) == source_names([y]) for x, y in self.found):
            self._unique(_origin, _origin, self._related)
            self._around(self.found[start:])

    def _by_state(self) -> None:
        """Nodes that differ only in operands that are not matched: an update of one weight, say."""
        start = len(self.found)

        def known(node: Node, matched: dict[Node, Node], keys: Keys, forward: bool) -> Hashable:
            tokens = [
                ((matched[v] if forward else v) if v in matched else None) if isinstance(v, Node) else keys.leaf(v)
                for v in self._plain(node)
            ]
            if not any(isinstance(v, (State, Node)) and t for v, t in zip(self._plain(node), tokens, strict=True)):
                return None
            return (keys.sig(node), tuple(tokens))

        self._unique(
            lambda x: known(x, self.m.nodes, self.key_a, True),
            lambda y: known(y, self.m.back, self.key_b, False),
            lambda x, y: True,
        )
        self._around(self.found[start:])

    def _by_neighbours(self, admit: Callable[[Node, Node], bool]) -> None:
        start = len(self.found)
        touching = [(x, y) for x, y in self.found if self._open(x, self.m.nodes) and self._open(y, self.m.back)]
        self._spread([(self.a._return, self.b._return), *touching], admit, users=True)
        self._around(self.found[start:])

    def _in_place(self) -> None:
        """A node that took over all uses of another: the same place with another primitive."""
        tried: set[Node] = set()

        def same_uses(x: Node, y: Node) -> bool:
            # Asked once a node: whichever of its uses leads here, the other node is the same.
            if x in tried or "UpdateState" in (x.op.name, y.op.name):
                return False
            tried.add(x)
            if x.scope != y.scope and not self._agreement(x, y):
                return False
            return {(self.m.nodes.get(user), i) for user, i in x.use_sites()} == set(y.use_sites())

        self._spread([(self.a._return, self.b._return), *self.found], same_uses, users=False)

    # -- steps that all use ----------------------------------------------------------------------------------

    def _pair(self, x: Node, y: Node) -> Pair:
        self.m.pair(x, y)
        self.found.append((x, y))
        return x, y

    def _spread(self, pairs: Iterable[Pair], admit: Callable[[Node, Node], bool], *, users: bool) -> None:
        """Pairs operands by position, with ``users`` also users that are alone of their kind; and so on from each."""
        todo = list(pairs)
        todo.reverse()
        while todo:
            x, y = todo.pop()
            for v, w in zip(x._operands, y._operands, strict=False):
                if isinstance(v, Node) and isinstance(w, Node) and self._may(v, w) and admit(v, w):
                    todo.append(self._pair(v, w))
            if users and x is not self.a._return:
                todo += self._only_ones(_uses_by_kind(x, self.m.nodes), _uses_by_kind(y, self.m.back), admit)

    def _may(self, x: Node, y: Node) -> bool:
        """Both are free; and tokens are matched by what they wait for, not by where they stand in the sequence."""
        if x in self.m.nodes or y in self.m.back or x.graph is not self.a or y.graph is not self.b:
            return False
        if x.op.name != "UpdateState" or y.op.name != "UpdateState":
            return True
        mine, others = self._plain(x), self._plain(y)
        return len(mine) == len(others) and all(map(self.m.same, mine, others))

    def _unique(
        self,
        key_a: Callable[[Node], Hashable],
        key_b: Callable[[Node], Hashable],
        admit: Callable[[Node, Node], bool],
    ) -> None:
        """Pairs nodes whose key no other unmatched node of their graph has. A key of None is none."""
        self._only_ones(_by_key(self._left_a(), key_a), _by_key(self._left_b(), key_b), admit)

    def _only_ones(self, left: Groups, right: Groups, admit: Callable[[Node, Node], bool]) -> list[Pair]:
        """Pairs nodes that are the only ones of one key on both sides."""
        found = []
        for key, few in left.items():
            others = right.get(key, ())
            if len(few) == len(others) == 1 and self._may(few[0], others[0]) and admit(few[0], others[0]):
                found.append(self._pair(few[0], others[0]))
        return found

    def _related(self, x: Node, y: Node) -> bool:
        """Something else than the name speaks for it: the type, an operand, or a use in the same place."""
        if self._same_sig(x, y) or self._agreement(x, y):
            return True
        at = set(y.use_sites())
        return any((self.m.nodes.get(user), i) in at for user, i in x.use_sites())

    def _same_sig(self, x: Node, y: Node) -> bool:
        return self.key_a.sig(x) == self.key_b.sig(y)

    def _left_a(self) -> list[Node]:
        return [x for x in self.a if x not in self.m.nodes]

    def _left_b(self) -> list[Node]:
        return [y for y in self.b if y not in self.m.back]

    @staticmethod
    def _plain(node: Node) -> list[Value]:
        """The operands that are no tokens."""
        return [v for v in node._operands if not is_monad(v.type)]

    @staticmethod
    def _open(node: Node, matched: dict[Node, Node]) -> bool:
        """Whether an operand or a user is not matched yet."""
        if any(isinstance(v, Node) and v not in matched for v in node._operands):
            return True
        return any(user not in matched for user in node.uses)


def _uses_by_kind(node: Node, matched: dict[Node, Node]) -> Groups:
    """The users that are not matched, by primitive, scope and operand index."""
    groups: Groups = defaultdict(list)
    for user, i in node.use_sites():
        if user not in matched:
            groups[user.op.name, user.scope, i].append(user)
    return groups


def _by_key(nodes: Iterable[Node], key: Callable[[Node], Hashable]) -> Groups:
    groups: Groups = defaultdict(list)
    for node in nodes:
        k = key(node)
        if k is not None:
            groups[k].append(node)
    return groups


def _origin(node: Node) -> Hashable:
    return node.op.name, source_names([node])
