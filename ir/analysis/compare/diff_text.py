"""The difference of two programs as text, by graph, pass and scope."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from ...core.graph import Graph, Node
from ...core.wording import agreed, counted
from ...text.printer import node_printer
from .difference import GraphDiff, NodeDiff, ProgramDiff, grouped

SIGNS = {"added": "+", "removed": "-", "changed": "~", "moved": ">"}
_COLOURS = {"+": "32", "-": "31", "~": "33", ">": "36"}
SHOWN = 12
"""How many nodes of a scope, and how many details of a node, the text shows."""
NOT_RECORDED = "not recorded"


class Lines:
    """The line of each node as the text form has it, made when it is asked for."""

    def __init__(self) -> None:
        self._printers: dict[Graph, Callable[[Node], str]] = {}

    def __call__(self, node: Node) -> str:
        if node.home not in self._printers:
            self._printers[node.home] = node_printer(node.home)
        return self._printers[node.home](node).strip()


@dataclass(frozen=True, slots=True)
class Section:
    """The differences of one graph, pass and scope."""

    by: str
    scope: str
    nodes: list[NodeDiff]


def sections(graph: GraphDiff) -> list[Section]:
    """By pass, then by scope, each in order of occurrence; without what only orders effects."""
    found = []
    for by, nodes in grouped([n for n in graph.nodes if not n.order], lambda n: n.by).items():
        for scope, members in grouped(nodes, lambda n: n.scope).items():
            found.append(Section(by or NOT_RECORDED, scope, members))
    return found


def heading(graph: GraphDiff) -> str:
    """Which graph became which, and how much of it is the same."""
    if graph.before is None or graph.after is None:
        return f"graph '{graph.after or graph.before}' {'added' if graph.before is None else 'removed'}"
    name = f"'{graph.before}'" if graph.before == graph.after else f"'{graph.before}' → '{graph.after}'"
    return f"graph {name}: {counted(graph.kept, 'node')} in both{_counts(graph)}"


def _counts(graph: GraphDiff) -> str:
    plain = [n for n in graph.nodes if not n.order]
    parts = [f"{n} {kind}" for kind in SIGNS if (n := sum(x.kind == kind for x in plain))]
    order = len(graph.nodes) - len(plain)
    if order:
        parts.append(f"{order} {agreed(order, 'differs', 'differ')} in the order of effects")
    return f"; {', '.join(parts)}" if parts else ""


def made_by(by: str) -> str:
    """Whose work a section is: ``by gradient-accumulation``."""
    return f"by {by}" if by != NOT_RECORDED else "pass not recorded"


def diff_text(found: ProgramDiff, *, colour: bool = False, hang: Callable[[str], str] = str) -> str:
    """For people: nothing at all where there is no difference. ``hang`` breaks a line that is too long."""
    lines = [hang(line) for line in _lines(found)]
    if colour:
        lines = [_coloured(line) for line in lines]
    return "".join(f"{line}\n" for line in lines)


def _lines(found: ProgramDiff) -> Iterator[str]:
    line_of = Lines()
    for graph in found.graphs:
        if not graph:
            continue
        yield heading(graph)
        for detail in graph.interface:
            yield f"  ~ {detail}"
        by = None
        for section in sections(graph):
            if section.by != by:
                by = section.by
                yield f"  {made_by(by)}"
            yield f"    in {section.scope or 'no scope'}"
            for node in section.nodes[:SHOWN]:
                yield f"      {SIGNS[node.kind]} {line_of(node.node)}"
                yield from _folded([f"          {d}" for d in node.details])
            yield from _more(len(section.nodes) - SHOWN, "      ")
    for title, details in (("graphs", found.split), ("schedule", found.schedule), ("program", found.program)):
        if details:
            yield title
            yield from (f"  ~ {d}" for d in details)
    if found.state:
        yield "state"
        for variable in found.state:
            facts = "; ".join(str(d) for d in variable.details)
            yield f"  {SIGNS[variable.kind]} %{variable.name}" + (f"  {facts}" if facts else "")


def _folded(lines: list[str]) -> Iterator[str]:
    yield from lines[:SHOWN]
    yield from _more(len(lines) - SHOWN, "          ")


def _more(n: int, indent: str) -> Iterator[str]:
    if n > 0:
        yield f"{indent}… and {n} more"


def _coloured(line: str) -> str:
    sign = line.lstrip()[:2]
    if sign[1:] == " " and sign[0] in _COLOURS:
        return f"\x1b[{_COLOURS[sign[0]]}m{line}\x1b[0m"
    return line if line.startswith(" ") else f"\x1b[1m{line}\x1b[0m"
