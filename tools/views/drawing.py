"""A graph as one draws it: operations and what flows between them, in nested groups by scope.

What only orders or repackages (tokens, Depend, Load, tuples, closures) is not drawn: an edge goes from the operation
that computed a value to the one that takes it, and an operation says itself which state it touches. Every group has at
most :data:`FAN_OUT` members, so a graph of any size can be shown folded.
"""

from __future__ import annotations

import heapq
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from ...ir.analysis.effects.tokens import orders_only
from ...ir.analysis.functions.calls import targets
from ...ir.core.graph import Constant, Graph, Input, Node, State, Value
from ...ir.core.op import CALL
from ...ir.core.predicates import written_operands
from ...ir.core.types import is_monad, readable
from ...ir.core.walk import through, walk, without_order
from .shown import Shown, pass_of

FAN_OUT = 48
"""The most members of a group."""
BRIEF = 34
"""Characters of a type that stands in a box."""
PLAIN = 6
"""Up to so many operations of one scope stand for themselves; of more, those of one kind are bundled."""
_PASSED_ON = frozenset({"Depend", "Load", "Partial", "Switch", "TupleGetItem"})
_OWN_NAME = re.compile(r"-op\d+$")


@dataclass(slots=True, eq=False)
class Leaf:
    """One operation, input or result. ``kind``: ``node``, ``input`` or ``result``. ``type`` and, for a box, ``brief``:
    its type for people. ``states``: what it touches."""

    id: int
    name: str
    label: str
    kind: str
    type: str
    brief: str = ""
    part: str = ""
    made_by: str = ""
    states: tuple[str, ...] = ()
    node: Node | None = None
    group: Group | None = None


@dataclass(slots=True, eq=False)
class Group:
    """A scope, or (``bundle``) many like members of one."""

    label: str
    scope: str = ""
    parent: Group | None = None
    bundle: bool = False
    groups: dict[str, Group] = field(default_factory=dict)
    leaves: list[Leaf] = field(default_factory=list)
    count: int = 0
    parts: Counter[str] = field(default_factory=Counter)
    made_by: Counter[str] = field(default_factory=Counter)

    @property
    def part(self) -> str:
        return max(self.parts, key=lambda p: self.parts[p], default="")

    @property
    def width(self) -> int:
        return len(self.groups) + len(self.leaves)


@dataclass(slots=True)
class Drawing:
    """``edges``: (from, to), between leaves by their place in ``leaves``."""

    title: str
    root: Group
    leaves: list[Leaf]
    edges: list[tuple[int, int]]


def draw(shown: Shown, *names: str, only: Iterable[Node] | None = None) -> Drawing:
    """The drawing of graphs with their functions. Of several each is a box, and an edge leads from what writes a state
    to what reads it in a later graph. ``only``: these nodes alone. Linear in nodes and operands."""
    made = _Draughtsman(shown, None if only is None else set(only))
    for name in names:
        made.add(shown.program.graphs[name], made.root if len(names) == 1 else made.group(made.root, f"graph {name}"))
    _finish(made.root)
    return Drawing(", ".join(names), made.root, made.leaves, list(made.edges))


class _Draughtsman:
    def __init__(self, shown: Shown, only: set[Node] | None):
        self.shown = shown
        self.only = only
        self.leaves: list[Leaf] = []
        self.root = Group("")
        self.at: dict[Value, Leaf] = {}
        self.edges: dict[tuple[int, int], None] = {}
        self.written: dict[str, list[Leaf]] = {}

    def add(self, graph: Graph, home: Group) -> None:
        for body in graph.all_graphs():
            top = home if body is graph else self.group(home, f"function {body.name}")
            wanted = [n for n in body if (self.only is None or n in self.only) and not _hidden(n)]
            taken = self._taken(wanted)
            for value in body.inputs if body is graph else ():
                if value in taken and not is_monad(value.type):
                    self._add(top, _end(value, value.name, value.name, "input"), value)
            for node in wanted:
                self._add(self._place(top, node), self._leaf(node), node)
                for called in targets(node) or () if node.op is CALL else ():
                    self.at.update(dict.fromkeys(called.function.inputs, self.at[node]))  # a call leads into its box
            if body.has_result and (self.only is None or body.result in taken or body.result in self.at):
                self._result(top, body)
            for node in wanted:
                self._connect(self.at[node], node._operands)
                for state in self.at[node].states:
                    self.edges.update({(writer.id, self.at[node].id): None for writer in self.written.get(state, ())})
        for node in filter(self.at.__contains__, graph.all_nodes()):
            for i in written_operands(node):
                self.written.setdefault(_state(node._operands[i]), []).append(self.at[node])

    def _taken(self, wanted: list[Node]) -> set[Value]:
        return {source for node in wanted for operand in node._operands for source in _sources(operand)}

    def _result(self, top: Group, body: Graph) -> None:
        sources = [v for v in _sources(body.result) if v in self.at]
        if sources:
            end = _end(body.result, "", ", ".join(body.outputs) or "result", "result")
            self._add(top, end, None)
            self._connect(end, [body.result])

    def _leaf(self, node: Node) -> Leaf:
        label = node.op.name
        if node.op is CALL:
            label = "call " + " or ".join(t.function.name for t in targets(node) or ())
        states = tuple(dict.fromkeys(s for v in node._operands if (s := _state(v))))
        made = Leaf(0, node.name, label, "node", readable(node.type), part=self.shown.part(node), node=node)
        made.made_by, made.states = pass_of(node), states
        return made

    def _add(self, group: Group, leaf: Leaf, value: Value | None) -> None:
        leaf.id = len(self.leaves)
        self.leaves.append(leaf)
        group.leaves.append(leaf)
        if value is not None:
            self.at[value] = leaf

    def _connect(self, leaf: Leaf, operands: Iterable[Value]) -> None:
        for operand in operands:
            for source in _sources(operand):
                start = self.at.get(source)
                if start is not None and start is not leaf:
                    self.edges[start.id, leaf.id] = None

    def _place(self, top: Group, node: Node) -> Group:
        """By part first, so that forward, backward and update share no box; then by scope."""
        part = self.shown.part(node)
        group = self.group(top, part, "")
        path = [p for p in node.scope.split("/") if p]
        if path and (_OWN_NAME.search(path[-1]) or path[-1] == node.op.name):
            path.pop()
        if not path and (made_by := pass_of(node)):
            path = [f"pass {made_by}"]
        scope = ""
        for label in path:
            scope = f"{scope}/{label}" if scope else label
            group = self.group(group, label, scope)
        return group

    def group(self, parent: Group, label: str, scope: str = "") -> Group:
        found = parent.groups.get(label)
        if found is None:
            found = parent.groups[label] = Group(label, scope, parent)
        return found


def _end(value: Value, name: str, label: str, kind: str) -> Leaf:
    """An input or result, a box that says its type."""
    return Leaf(0, name, label, kind, readable(value.type), readable(value.type, BRIEF))


def _hidden(node: Node) -> bool:
    """Whether a node is no operation: it orders, names state, or repackages for one user."""
    if is_monad(node.type) or node.op.name in _PASSED_ON:
        return True
    return node.op.name == "MakeTuple" and len({u for u, i in node.use_sites() if not orders_only(u, i)}) <= 1


def _sources(value: Value) -> list[Value]:
    """The drawn values that a value stands for."""
    return [v for v in walk([value], _stands_for) if isinstance(v, Input) or (isinstance(v, Node) and not _hidden(v))]


def _stands_for(value: Value) -> Sequence[Value]:
    if not isinstance(value, Node) or not _hidden(value):
        return ()
    if value.op.name == "TupleGetItem":
        return (_element(value),)
    if value.op.name == "Depend":
        return (value.operand(0),)
    return value._operands[::-1] if value.op.name in ("Partial", "Switch", "MakeTuple") else ()


def _element(item: Node) -> Value:
    """The element that a TupleGetItem picks where that is plain, else the whole."""
    source, index = without_order(item.operand(0)), item.operand(1)
    at = index.value if isinstance(index, Constant) else None
    if isinstance(source, Node) and source.op.name == "MakeTuple" and isinstance(at, int):
        return source.operand(at) if -source.num_operands <= at < source.num_operands else source
    return source


def _state(value: Value) -> str:
    """The state that an operand names (in a function: the input that stands for it); empty if none."""
    value = through(value, ("Load", "Depend"))
    if isinstance(value, State):
        return value.name
    return getattr(value.type, "ref", "") if isinstance(value, Input) else ""


# -- groups ------------------------------------------------------------------------------------------------------


def _finish(root: Group) -> None:
    """Drops empty groups, joins chains of groups, bounds the width of each, and counts."""
    for group in reversed(_inside(root)):
        for label, child in list(group.groups.items()):
            if not child.groups and not child.leaves:  # a function that only hands on
                del group.groups[label]
            elif len(child.groups) == 1 and not child.leaves:
                (inner,) = child.groups.values()
                inner.label, inner.parent = f"{child.label}/{inner.label}", group
                group.groups[label] = inner
        _bound(group)
    for group in reversed(_inside(root)):
        group.count = len(group.leaves) + sum(g.count for g in group.groups.values())
        for leaf in group.leaves:
            leaf.group = group
            group.parts[leaf.part] += leaf.kind == "node"
            group.made_by[leaf.made_by] += leaf.kind == "node"
        for child in group.groups.values():
            group.parts.update(child.parts)
            group.made_by.update(child.made_by)


def _inside(root: Group) -> list[Group]:
    """Groups before those in them. Without recursion: scopes of a file may be as deep as they like."""
    found = [root]
    for group in found:
        found.extend(group.groups.values())
    return found


def _bound(group: Group) -> None:
    if len(group.leaves) > PLAIN:
        by_op: dict[str, list[Leaf]] = {}
        for leaf in group.leaves:
            by_op.setdefault(leaf.label if leaf.kind == "node" else leaf.kind, []).append(leaf)
        group.leaves = []
        for label, members in by_op.items():
            if len(members) < 4:
                group.leaves += members
            else:
                group.groups[f"\0{label}"] = _bundle(group, f"{label} × {len(members)}", members)
    if len(group.leaves) > FAN_OUT:
        rest = group.leaves
        group.leaves = []
        group.groups["\0rest"] = _bundle(group, f"{len(rest)} others", rest)
    while len(group.groups) > FAN_OUT:
        children = list(group.groups.values())
        group.groups = {}
        for at in range(0, len(children), FAN_OUT):
            some = children[at : at + FAN_OUT]
            first, last = some[0].label.split(" … ")[0], some[-1].label.split(" … ")[-1]
            bundle = Group(f"{first} … {last}", group.scope, group)
            for child in some:
                _adopt(bundle, child)
            group.groups[f"\0{at}"] = bundle


def _bundle(parent: Group, label: str, leaves: list[Leaf]) -> Group:
    bundle = Group(label, parent.scope, parent, bundle=True)
    if len(leaves) <= FAN_OUT:
        bundle.leaves = leaves
        return bundle
    for at in range(0, len(leaves), FAN_OUT):
        piece = leaves[at : at + FAN_OUT]
        _adopt(bundle, _bundle(bundle, f"{at + 1} … {at + len(piece)}", piece))
    _bound(bundle)
    return bundle


def _adopt(parent: Group, child: Group) -> None:
    child.parent = parent
    parent.groups[f"\0{len(parent.groups)}"] = child


def unfolded(root: Group, limit: int, *, bundles: bool = False) -> set[Group]:
    """The groups to show open so that at most ``limit`` boxes are seen: the outer ones first, of these the largest;
    bundles stay folded unless asked for."""
    opened = {root}
    seen = root.width
    queue = [(0, -g.count, i, g) for i, g in enumerate(root.groups.values())]
    heapq.heapify(queue)
    serial = len(queue)
    while queue:
        depth, _, _, group = heapq.heappop(queue)
        if (group.bundle and not bundles) or seen + group.width - 1 > limit:
            continue
        opened.add(group)
        seen += group.width - 1
        for child in group.groups.values():
            serial += 1
            heapq.heappush(queue, (depth + 1, -child.count, serial, child))
    return opened


def visible(leaf: Leaf, opened: set[Group]) -> Leaf | Group:
    """The box in which a leaf is seen: itself, or the outermost folded group around it."""
    box: Leaf | Group = leaf
    group = leaf.group
    while group is not None:
        if group not in opened:
            box = group
        group = group.parent
    return box


def edges_between(drawing: Drawing, opened: set[Group]) -> Counter[tuple[Leaf | Group, Leaf | Group]]:
    """How many edges lead from one visible box to another."""
    boxes = [visible(leaf, opened) for leaf in drawing.leaves]
    found: Counter[tuple[Leaf | Group, Leaf | Group]] = Counter()
    for start, end in drawing.edges:
        if boxes[start] is not boxes[end]:
            found[boxes[start], boxes[end]] += 1
    return found
