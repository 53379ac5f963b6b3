"""The difference of two programs as one page: a section for each graph, pass and scope; no scripts, no network."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from html import escape as escape_markup
from itertools import groupby

from ...ir.analysis.compare.diff_text import SIGNS, Lines, heading, made_by, sections
from ...ir.analysis.compare.difference import Detail, GraphDiff, Kind, NodeDiff, ProgramDiff
from ...ir.core.wording import counted
from .. import cli
from .page_file import page_file

MOST = 200
"""How many nodes of one scope the page lists."""
_OPEN = 30
"""A section of at most so many nodes is open from the start."""


def escape(text: str) -> str:
    """Text as HTML, whatever it holds."""
    return escape_markup(cli.harmless(text))


def diff_page(found: ProgramDiff, a: str, b: str) -> str:
    """``a`` and ``b`` are what was compared."""
    title = f"{escape(a)} → {escape(b)}"
    return (
        "<!doctype html>\n<html lang=en><head><meta charset=utf-8>"
        '<meta name=viewport content="width=device-width, initial-scale=1">'
        f"<title>{title}</title><style>{page_file('report.css')}</style></head>\n<body>\n<h1>{title}</h1>\n"
        + "\n".join(_body(found))
        + "\n</body></html>\n"
    )


def _body(found: ProgramDiff) -> Iterator[str]:
    if not found:
        yield "<p>No difference: the programs are the same but for names and the order of independent nodes.</p>"
        return
    yield from _totals(found)
    line_of = Lines()
    for graph in found.graphs:
        if graph:
            yield f"<h2>{escape(heading(graph))}</h2>"
            yield _facts(graph.interface)
            yield from _graph(graph, line_of)
    for title, details in (("Graphs", found.split), ("Schedule", found.schedule), ("Program", found.program)):
        if details:
            yield f"<h2>{title}</h2>{_facts(details)}"
    if found.state:
        yield "<h2>State</h2>"
        yield '<ul class="nodes mono">'
        for variable in found.state:
            facts = "; ".join(map(str, variable.details))
            yield f"<li class={variable.kind}>{_sign(variable.kind)}{escape(variable.name)} {escape(facts)}</li>"
        yield "</ul>"


def _totals(found: ProgramDiff) -> Iterator[str]:
    yield "<table><tr><th>pass<th>added<th>removed<th>changed<th>order of effects</tr>"
    for by, nodes in found.by_pass().items():
        cells = [sum(n.kind == kind and not n.order for n in nodes) for kind in SIGNS]
        cells.append(sum(n.order for n in nodes))
        yield f"<tr><td>{escape(by) or 'not recorded'}{''.join(f'<td class=number>{n:,}' for n in cells)}</tr>"
    yield "</table>"


def _graph(graph: GraphDiff, line_of: Lines) -> Iterator[str]:
    for by, some in groupby(sections(graph), lambda s: s.by):
        members = list(some)
        count = sum(len(s.nodes) for s in members)
        yield f"<details open class=pass><summary><b>{escape(made_by(by))}</b>: {counted(count, 'node')}</summary>"
        for section in members:
            opened = " open" if len(section.nodes) <= _OPEN else ""
            scope = escape(section.scope) or "no scope"
            summary = f"{scope}: {counted(len(section.nodes), 'node')}"
            yield f'<details{opened}><summary class="quiet mono">{summary}</summary>'
            yield '<ul class="nodes mono">'
            yield from (_node(node, line_of) for node in section.nodes[:MOST])
            if len(section.nodes) > MOST:
                yield f"<li class=quiet>… and {len(section.nodes) - MOST:,} more (--format json lists all)</li>"
            yield "</ul></details>"
        yield "</details>"


def _node(node: NodeDiff, line_of: Lines) -> str:
    details = "".join(f"<span class=detail>{escape(str(d))}</span>" for d in node.details[:MOST])
    return f"<li class={node.kind}>{_sign(node.kind)}{escape(line_of(node.node))}{details}</li>"


def _sign(kind: Kind) -> str:
    return f"<span class=sign>{SIGNS[kind]}</span>"


def _facts(details: Iterable[Detail]) -> str:
    return "".join(f"<p class=mono>{escape(str(d))}</p>" for d in details)
