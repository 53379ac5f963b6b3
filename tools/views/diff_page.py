"""The difference of two programs in a page: a section for each graph, pass and scope; no scripts, no network."""

from __future__ import annotations

from typing import Any

from ...ir.analysis.compare.diff_text import SHOWN, SIGNS, Lines, heading, sections
from ...ir.analysis.compare.difference import GraphDiff, ProgramDiff
from .page_file import page_file, rendered

MOST = 4000
"""How many nodes the page lists, of all graphs together."""
Document = dict[str, Any]


def diff_page(found: ProgramDiff, a: str, b: str) -> str:
    """``a`` and ``b`` are what was compared."""
    totals = {
        by: [*(sum(n.kind == kind and not n.order for n in nodes) for kind in SIGNS), sum(n.order for n in nodes)]
        for by, nodes in found.by_pass().items()
    }
    difference = difference_of(found, MOST)
    return rendered("diff.html", a=a, b=b, styles=page_file("report.css"), totals=totals, difference=difference)


def difference_of(found: ProgramDiff, most: int) -> Document:
    """The data of ``difference.html``: at most ``most`` nodes, and how many more there are."""
    line_of = Lines()
    graphs = []
    for graph in filter(None, found.graphs):
        made, most = _graph(graph, line_of, most)
        graphs.append(made)
    parts = (("Graphs", found.split), ("Schedule", found.schedule), ("Program", found.program))
    return {"graphs": graphs, "state": found.state, "parts": [(title, part) for title, part in parts if part]}


def _graph(graph: GraphDiff, line_of: Lines, left: int) -> tuple[Document, int]:
    """``left``: how many nodes may still be listed, and how many after it."""
    by: dict[str, list[Document]] = {}
    for section in sections(graph):
        listed = section.nodes[:left]
        lines = [(node, line_of(node.node), node.details[:SHOWN]) for node in listed]
        left -= len(lines)
        hidden = len(section.nodes) - len(lines)
        by.setdefault(section.by, []).append({"scope": section.scope, "lines": lines, "hidden": hidden})
    return {"heading": heading(graph), "interface": graph.interface, "by": by}, left
