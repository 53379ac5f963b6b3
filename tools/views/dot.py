"""Drawings by Graphviz: boxes coloured by part, bordered by the pass that made them, clustered by scope."""

from __future__ import annotations

from collections.abc import Iterator
from html import escape
from typing import TYPE_CHECKING

from ...ir.core.errors import Error
from ...ir.core.walk import walk
from ...ir.core.wording import counted
from .. import cli
from .drawing import Drawing, Group, Leaf, draw, edges_between, unfolded
from .palette import FILLS, STROKES, pass_colours
from .shown import PARTS, Shown, makers

if TYPE_CHECKING:
    from graphviz import Digraph

BOXES = 40
"""How many boxes a drawing shows; what is more stays folded."""
WHOLE = 80
"""A graph of so few operations is drawn unfolded."""
_LINE = 34


class NoGraphviz(Error):
    """The ``dot`` program is missing or failed."""


def svg_of(shown: Shown) -> str:
    """The drawing as SVG. NoGraphviz where the ``dot`` program is not installed."""
    import graphviz

    source = dot_of(shown)
    try:
        return bytes(graphviz.pipe("dot", "svg", source.encode(), quiet=True)).decode()
    except graphviz.ExecutableNotFound:
        raise NoGraphviz(
            "drawing needs the program 'dot' of Graphviz, which is not on the PATH: install it (apt install graphviz, "
            "brew install graphviz), or take --format dot and draw it elsewhere, or --format html, which needs nothing"
        ) from None
    except graphviz.CalledProcessError as error:
        raise NoGraphviz(f"Graphviz failed: {error.stderr.decode(errors='replace').strip()}") from None


def dot_of(shown: Shown) -> str:
    """The drawing in Graphviz' language."""
    import graphviz

    names = list(shown.program.graphs)
    title = f"{shown.program.name}: {shown.cut or ', '.join(names)}"
    dot = graphviz.Digraph(
        "boost-compile",
        graph_attr={
            "label": graphviz.escape(title), "labelloc": "t", "fontname": "Helvetica", "fontsize": "14",
            "bgcolor": "white", "nodesep": "0.3", "ranksep": "0.35", "newrank": "true",
        },
        node_attr={
            "shape": "box", "style": "filled,rounded", "fontname": "Helvetica", "fontsize": "10", "margin": "0.08,0.04",
            "height": "0.3",
        },
        edge_attr={"color": "#8a8a8a", "arrowsize": "0.5", "fontname": "Helvetica", "fontsize": "8"},
    )  # fmt: skip
    colours = pass_colours(makers(shown))
    drawings = [draw(shown, name) for name in names]
    _legend(dot, drawings, colours)
    limit = max(BOXES // len(names), 12)
    for i, (name, drawing) in enumerate(zip(names, drawings, strict=True)):
        with dot.subgraph(name=f"cluster_{i}") as cluster:
            cluster.attr(label=graphviz.escape(name if len(names) > 1 else ""), color="#bbbbbb")
            if len(names) == 1:
                cluster.attr(peripheries="0")
            _Writer(f"g{i}", drawing, limit if drawing.root.count > WHOLE else WHOLE, colours).write(cluster)
    return cli.harmless(str(dot.source))


def _legend(dot: Digraph, drawings: list[Drawing], colours: dict[str, str]) -> None:
    drawn = {leaf.part for drawing in drawings for leaf in drawing.leaves}
    rows = [f'<tr><td bgcolor="{FILLS[p]}" color="{STROKES[p]}">{p}</td></tr>' for p in PARTS if p in drawn]
    rows += [f'<tr><td border="2" color="{c}">by {escape(name, quote=True)}</td></tr>' for name, c in colours.items()]
    table = f'<table border="0" cellborder="1" cellspacing="3">{"".join(rows)}</table>'
    if rows:
        dot.node("legend", label=f"<{table}>", shape="plain", style="", fontsize="9")


class _Writer:
    def __init__(self, prefix: str, drawing: Drawing, limit: int, colours: dict[str, str]):
        self.prefix = prefix
        self.drawing = drawing
        self.opened = unfolded(drawing.root, limit)
        self.edges = edges_between(drawing, self.opened)
        self.colours = colours
        self.names: dict[Leaf | Group, str] = {}

    def write(self, dot: Digraph) -> None:
        self._members(dot, self.drawing.root)
        for (start, end), count in self.edges.items():
            dot.edge(self.names[start], self.names[end], label=str(count) if count > 1 else None)

    def _members(self, dot: Digraph, group: Group) -> None:
        for child in group.groups.values():
            if child in self.opened:
                with dot.subgraph(name=f"cluster_{self._name(child)}") as cluster:
                    colour = STROKES.get(child.part, "#767676")
                    cluster.attr(label="", color=colour, style="rounded", peripheries="1")
                    self._title(cluster, child, colour)
                    self._members(cluster, child)
            else:
                lines = [child.label, counted(child.count, "node")]
                self._box(dot, child, lines, child.scope or child.label, "box3d")
        for leaf in group.leaves:
            self._leaf(dot, leaf)

    def _title(self, dot: Digraph, group: Group, colour: str) -> None:
        """The group's label as a node above its members: Graphviz leads edges around nodes, but through labels."""
        import graphviz

        name = f"{self._name(group)}_title"
        dot.node(
            name, label=graphviz.escape(_short(group.label, 44)), tooltip=graphviz.escape(group.scope or group.label),
            shape="plain", style="", color="none", fontcolor=colour, height="0.15",
        )  # fmt: skip
        for box in self._first(group):
            below = f"{self._name(box)}_title" if box in self.opened else self._name(box)
            dot.edge(name, below, style="invis", weight="4")

    def _first(self, group: Group) -> list[Leaf | Group]:
        """The members of a group that take nothing of other members; all of them where each takes something."""
        members: list[Leaf | Group] = [*group.groups.values(), *group.leaves]
        inside = {box: member for member in members for box in self._boxes(member)}
        behind = {inside[b] for a, b in self.edges if a in inside and b in inside and inside[a] is not inside[b]}
        return [member for member in members if member not in behind] or members

    def _boxes(self, member: Leaf | Group) -> Iterator[Leaf | Group]:
        """The visible part of a member: itself, or its contents."""

        def members(box: Leaf | Group) -> list[Leaf | Group]:
            return [*box.groups.values(), *box.leaves] if isinstance(box, Group) and box in self.opened else []

        return (box for box in walk([member], members) if box not in self.opened)

    def _leaf(self, dot: Digraph, leaf: Leaf) -> None:
        lines = [leaf.label, *leaf.states[:2]]
        tip = f"%{leaf.name}: {leaf.type}" + (f", made by {leaf.made_by}" if leaf.made_by else "")
        if leaf.kind == "node":
            self._box(dot, leaf, lines, tip, "box")
        else:
            self._box(dot, leaf, [leaf.label, leaf.brief], tip, "ellipse")

    def _box(self, dot: Digraph, box: Leaf | Group, lines: list[str], tip: str, shape: str) -> None:
        import graphviz

        label = "\n".join(_short(line) for line in lines)
        made_by = box.made_by if isinstance(box, Leaf) else (set(box.made_by) if "" not in +box.made_by else set())
        names = {made_by} if isinstance(made_by, str) else made_by
        (made,) = names if len(names) == 1 else ("",)
        stroke = self.colours.get(made) or STROKES.get(box.part, "#767676")
        dot.node(
            self._name(box),
            # The binding's escape keeps its own hands off; the line breaks are ours.
            label="\\n".join(graphviz.escape(line) for line in label.split("\n")),
            tooltip=graphviz.escape(tip),
            shape=shape,
            margin="0.12,0.1" if shape == "box3d" else "0.08,0.04",
            fillcolor=FILLS.get(box.part, "white"),
            color=stroke,
            penwidth="2" if made else "1",
        )

    def _name(self, box: Leaf | Group) -> str:
        return self.names.setdefault(box, f"{self.prefix}_{len(self.names)}")


def _short(line: str, most: int = _LINE) -> str:
    return line if len(line) <= most else f"{line[: most - 12]}…{line[-11:]}"
