"""The drawings of the report: each graph whole, and what passes touched in it beside what it was made of. As data for
the page, which folds, unfolds and lays out; what is too much for a page stays folded for good."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

from ...ir.analysis.compare.difference import NodeDiff, ProgramDiff
from ...ir.core.graph import Node
from .drawing import Drawing, Group, Leaf, draw, edges_between, unfolded
from .palette import pass_colours
from .selection import neighbourhood
from .shown import Shown, makers, pass_of

BOXES = 2500
"""How many boxes of a drawing the page can unfold."""
OPEN = 12
"""About how many are seen at first."""
_SOURCES = 6
Document = dict[str, Any]
Marks = Mapping[Node, str]


def scenes(shown: Shown, original: Shown | None, difference: ProgramDiff | None, boxes: int = BOXES) -> Document:
    """``drawings``, the ``scenes`` that show one or two of them side by side, and the colours of ``passes``."""
    return _Scenes(shown, original, difference, boxes).document()


def whole_step(shown: Shown, boxes: int = BOXES) -> Document:
    """The same, of all graphs as a whole alone."""
    made = _Scenes(shown, None, None, boxes)
    made.add_whole()
    return made.data()


class _Scenes:
    def __init__(self, shown: Shown, original: Shown | None, difference: ProgramDiff | None, boxes: int):
        self.shown = shown
        self.boxes = boxes
        self.original = original
        self.nodes = difference.nodes() if difference else []
        self.drawings: list[Document] = []
        self.scenes: list[Document] = []

    def document(self) -> Document:
        self.add_whole()
        origin = {} if self.original is None else {n.name: n for n in self.original.program.all_nodes()}
        for name, graph in self.shown.program.graphs.items():
            touched = [n for n in graph.all_nodes() if pass_of(n)]
            if touched:
                sources = {s for n in touched if n.origin for s in n.origin.sources}
                before = self._before(sources & origin.keys(), origin)
                title = f"{name}: what passes made, and what is around it"
                self._scene(title, before, self._after([name], touched), name)
        return self.data()

    def add_whole(self) -> None:
        names = list(self.shown.program.graphs)
        before = None if self.original is None else self._add(self.original, self.original.program.graphs, "before")
        self._scene("the whole step", before, self._after(names), ", ".join(names))

    def data(self) -> Document:
        return {"drawings": self.drawings, "scenes": self.scenes, "passes": pass_colours(makers(self.shown))}

    def _scene(self, label: str, before: int | None, after: int | None, name: str) -> None:
        source = f"before ({os.path.basename(self.original.file)})" if self.original else "before"
        titles = [source, f"after: {name}" if self.original or self.shown.program.reports else name]
        self.scenes.append({"label": label, "before": before, "after": after, "titles": titles})

    def _add(self, shown: Shown, names: Iterable[str], side: str, only: Iterable[Node] | None = None) -> int:
        self.drawings.append(data_of(draw(shown, *names, only=only), self._marks(side), self.boxes))
        return len(self.drawings) - 1

    def _after(self, names: Iterable[str], touched: list[Node] | None = None) -> int:
        return self._add(self.shown, names, "after", None if touched is None else neighbourhood(touched, 2))

    def _before(self, names: set[str], origin: dict[str, Node]) -> int | None:
        """The original's nodes that are gone or changed, or that something was made of, and what is around them."""
        if self.original is None:
            return None
        centres = dict.fromkeys(origin[name] for name in names)
        centres |= dict.fromkeys(d.before for d in self.nodes if d.before is not None and not d.order)
        for name, graph in self.original.program.graphs.items():
            mine = [n for n in centres if n.graph is not None and (n.graph.owner or n.graph) is graph]
            if mine:
                return self._add(self.original, [name], "before", neighbourhood(mine, 1))
        return None

    def _marks(self, side: str) -> Marks:
        return {node: d.kind for d in self.nodes if (node := _on(d, side)) is not None and d.kind != "added"}


def _on(difference: NodeDiff, side: str) -> Node | None:
    node = difference.before if side == "before" else difference.after
    return None if difference.order else node


def data_of(drawing: Drawing, marks: Marks, boxes: int = BOXES) -> Document:
    """A drawing for the page: groups with their parents, leaves with their groups, edges with their number; a group
    that the page cannot unfold has no members."""
    opened = unfolded(drawing.root, boxes, bundles=True)
    first = unfolded(drawing.root, OPEN)
    removed = _removed(drawing, marks)
    place: dict[Group, int] = {drawing.root: -1}
    groups: list[Document] = []
    leaves: list[Document] = []
    ids: dict[Leaf | Group, int] = {}
    order = [drawing.root]
    for group in order:
        for child in group.groups.values():
            place[child] = len(groups)
            ids[child] = -1 - len(groups)
            groups.append(_group(child, place[group], removed))
            if child in opened:
                order.append(child)
        for leaf in group.leaves:
            ids[leaf] = len(leaves)
            leaves.append(_leaf(leaf, place[group], marks))
    edges = [[ids[a], ids[b], n] for (a, b), n in edges_between(drawing, opened).items()]
    return {
        "groups": groups,
        "leaves": leaves,
        "edges": edges,
        "open": [place[g] for g in first if g is not drawing.root and g in opened],
    }


def _removed(drawing: Drawing, marks: Marks) -> Counter[Group]:
    """How many nodes of each group are gone."""
    found: Counter[Group] = Counter()
    for leaf in drawing.leaves:
        if leaf.node is not None and marks.get(leaf.node) == "removed":
            group = leaf.group
            while group is not None:
                found[group] += 1
                group = group.parent
    return found


def _group(group: Group, parent: int, removed: Counter[Group]) -> Document:
    names = [name for name in group.made_by if group.made_by[name]]
    by = names[0] if len(names) == 1 else ""
    made: Document = {
        "label": group.label, "scope": group.scope, "parent": parent, "count": group.count, "part": group.part,
        "by": by,
    }  # fmt: skip
    if removed[group]:
        made["removed"] = removed[group]
        if removed[group] == group.count:
            made["mark"] = "removed"
    return made


def _leaf(leaf: Leaf, group: int, marks: Marks) -> Document:
    node = leaf.node
    made: Document = {
        "label": leaf.label, "name": leaf.name, "kind": leaf.kind, "type": leaf.type, "brief": leaf.brief,
        "group": group, "part": leaf.part, "by": leaf.made_by, "states": list(leaf.states),
    }  # fmt: skip
    if node is not None:
        if node in marks:
            made["mark"] = marks[node]
        if node.origin and node.origin.sources:
            made["sources"] = ", ".join(node.origin.sources[:_SOURCES])
    return made
