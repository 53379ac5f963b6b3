"""The findings of the verifier, and their text."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from enum import IntEnum

from ..core.graph import Graph, Node, Value
from ..core.types import Type
from ..core.wording import counted

_WIDTH = 160


class Rank(IntEnum):
    """Kinds of problems, the most useful to know first: a broken list or use-list explains whatever follows from it."""

    STRUCTURE = 0
    DEFINITION = 1
    TYPE = 2
    CALL = 3
    EFFECT = 4
    PROGRAM = 5


@dataclass(frozen=True, slots=True)
class Problem:
    """``node`` is None for what concerns a graph as a whole, ``graph`` too for the program."""

    rank: Rank
    graph: Graph | None
    node: Node | None
    what: str
    remedy: str


@dataclass(slots=True)
class Problems:
    found: list[Problem] = field(default_factory=list)
    unlisted: set[Graph] = field(default_factory=set)
    """Graphs whose list of nodes is broken, so that nothing of them can be shown."""

    def add(self, rank: Rank, graph: Graph, node: Node | None, what: str, remedy: str) -> None:
        self.found.append(Problem(rank, graph, node, what, remedy))

    def of_program(self, what: str, remedy: str) -> None:
        self.found.append(Problem(Rank.PROGRAM, None, None, what, remedy))

    def report(self, title: str, limit: int) -> str:
        from ..text.printer import node_printer

        count = len(self.found)
        lines = [f"{title} is not valid: {counted(count, 'problem')}"]
        printers: dict[Graph, Callable[[Node], str]] = {}
        for problem in sorted(self.found, key=lambda p: p.rank)[:limit]:
            lines.append(f"- {self._place(problem)}{problem.what}; {problem.remedy}")
            graph, node = problem.graph, problem.node
            if graph is None or node is None or node.graph is not graph or graph in self.unlisted:
                continue
            if graph not in printers:
                printers[graph] = node_printer(graph)
            lines += _excerpt(graph, node, printers[graph])
        if count > limit:
            lines.append(f"… and {count - limit} more")
        return "\n".join(lines)

    def _place(self, problem: Problem) -> str:
        if problem.graph is None:
            return ""
        word = "graph" if problem.graph.owner is None else "function"
        place = f"{word} '{problem.graph.name}'"
        node = problem.node
        if node is not None and problem.graph.is_return(node):
            place += ", its result"
        elif node is not None:
            place += f", node %{node.name}" + (f" (scope {node.scope})" if node.scope else "")
        return place + ": "


def _excerpt(graph: Graph, node: Node, show: Callable[[Node], str]) -> Iterator[str]:
    """Five lines around the node, itself marked."""
    nodes, end = list(graph), graph.is_return(node)
    at = len(nodes) if end else nodes.index(node)
    for other in nodes[max(at - (4 if end else 2), 0) : at + 3]:
        line = show(other)
        mark = ">" if other is node else " "
        yield f"  {mark} {line if len(line) <= _WIDTH else line[: _WIDTH - 1] + '…'}"
    if end:
        yield "  > return" + (f" %{graph.result.name}" if graph.has_result else "")


def shown(value: Value) -> str:
    return f"%{value.name} ({short(value.type)})"


def short(type_: Type) -> str:
    """A type, cut to what can be read."""
    text = str(type_)
    return text if len(text) <= 80 else text[:79] + "…"
