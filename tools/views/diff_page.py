"""The difference of two programs as one page: a section for each graph, pass and scope; no scripts, no network."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from html import escape
from itertools import groupby

from ...ir.diff_text import SIGNS, Lines, heading, sections
from ...ir.difference import Detail, GraphDiff, NodeDiff, ProgramDiff

MOST = 200
"""How many nodes of one scope the page lists."""
_OPEN = 30
"""A section of at most so many nodes is open from the start."""
_STYLE = """
:root { color-scheme: light dark; --line: #8884; --add: #2e7d46; --gone: #b3261e; --change: #9a6700; }
body { font: 15px/1.5 system-ui, sans-serif; margin: 0 auto; max-width: 70rem; padding: 1rem; }
h1 { font-size: 1.35rem; overflow-wrap: anywhere; } h2 { font-size: 1.1rem; margin: 1.6rem 0 .4rem; }
table { border-collapse: collapse; } td, th { padding: .15rem .8rem .15rem 0; text-align: left; }
td.n { text-align: right; font-variant-numeric: tabular-nums; }
details { border-left: 3px solid var(--line); margin: .25rem 0; padding-left: .7rem; }
summary { cursor: pointer; overflow-wrap: anywhere; } summary b { font-weight: 600; }
.scope { color: color-mix(in srgb, currentColor 70%, transparent); }
ul { list-style: none; margin: .2rem 0; padding: 0; }
li { font: 13px/1.45 ui-monospace, monospace; overflow-wrap: anywhere; padding-left: 1.4em; text-indent: -1.4em; }
li ul li { color: color-mix(in srgb, currentColor 75%, transparent); text-indent: 0; padding-left: .4em; }
.added::before { content: "+ "; } .removed::before { content: "− "; } .changed::before { content: "~ "; }
.added { color: var(--add); } .removed { color: var(--gone); } .changed { color: var(--change); }
@media (prefers-color-scheme: dark) { :root { --add: #7ddb95; --gone: #ff8a80; --change: #e3b341; } }
"""


def diff_page(found: ProgramDiff, a: str, b: str) -> str:
    """``a`` and ``b`` are what was compared."""
    title = f"{escape(a)} → {escape(b)}"
    return (
        "<!doctype html>\n<html lang=en><head><meta charset=utf-8>"
        '<meta name=viewport content="width=device-width, initial-scale=1">'
        f"<title>{title}</title><style>{_STYLE}</style></head>\n<body>\n<h1>{title}</h1>\n"
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
        yield "<ul>"
        for variable in found.state:
            facts = "; ".join(map(str, variable.details))
            yield f"<li class={variable.kind}>{escape(variable.name)} {escape(facts)}</li>"
        yield "</ul>"


def _totals(found: ProgramDiff) -> Iterator[str]:
    yield "<table><tr><th>pass<th>added<th>removed<th>changed<th>order of effects</tr>"
    for by, nodes in found.by_pass().items():
        cells = [sum(n.kind == kind and not n.order for n in nodes) for kind in SIGNS]
        cells.append(sum(n.order for n in nodes))
        yield f"<tr><td>{escape(by) or 'not recorded'}{''.join(f'<td class=n>{n:,}' for n in cells)}</tr>"
    yield "</table>"


def _graph(graph: GraphDiff, line_of: Lines) -> Iterator[str]:
    for by, some in groupby(sections(graph), lambda s: s.by):
        members = list(some)
        count = sum(len(s.nodes) for s in members)
        yield f"<details open><summary><b>{escape(by)}</b>: {count:,} nodes</summary>"
        for section in members:
            opened = " open" if len(section.nodes) <= _OPEN else ""
            scope = escape(section.scope) or "no scope"
            yield f"<details{opened}><summary class=scope>{scope}: {len(section.nodes):,}</summary><ul>"
            yield from (_node(node, line_of) for node in section.nodes[:MOST])
            if len(section.nodes) > MOST:
                yield f"<li>… and {len(section.nodes) - MOST:,} more (--format json lists all)</li>"
            yield "</ul></details>"
        yield "</details>"


def _node(node: NodeDiff, line_of: Lines) -> str:
    return f"<li class={node.kind}>{escape(line_of(node.node))}{_facts(node.details[:MOST])}</li>"


def _facts(details: Iterable[Detail]) -> str:
    lines = "".join(f"<li>{escape(str(d))}</li>" for d in details)
    return f"<ul>{lines}</ul>" if lines else ""
