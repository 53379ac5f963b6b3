"""One graph of what is shown, for the formats that print an analysis."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field

from ...ir.analysis.training.anatomy import TrainingAnatomy
from ...ir.core.errors import AnatomyError
from ...ir.core.graph import Constant, Graph, Input, Node, Value
from ...ir.core.naming import spell
from ...ir.core.program import Program
from ...ir.text import value_names


@dataclass(slots=True)
class Analysed:
    """``found``: the graph's anatomy; None where it has none, for the ``reason``. ``chosen``: the nodes that the user
    asked for (None: all). ``full``: whether to say something of every node."""

    program: Program
    graph: Graph
    found: TrainingAnatomy | None
    reason: str
    chosen: Collection[Node] | None
    full: bool
    _names: dict[Graph, Callable[[Value], str]] = field(default_factory=dict)
    _homes: dict[Value, Graph] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for body in self.graph.all_graphs():
            self._names[body] = value_names(body)
            self._homes.update(dict.fromkeys(body.inputs, body))
            for node in body:
                self._homes.update((v, body) for v in node._operands if isinstance(v, Constant))

    def anatomy(self) -> TrainingAnatomy:
        """AnatomyError, with the reason, where the graph has none."""
        if self.found is None:
            raise AnatomyError(self.reason)
        return self.found

    def keeps(self, nodes: Iterable[Value]) -> bool:
        """Whether the user asked for any of the nodes."""
        return self.chosen is None or any(node in self.chosen for node in nodes)

    def nodes(self) -> list[Node]:
        """The nodes that the user asked for, those of functions last."""
        return [node for node in self.graph.all_nodes() if self.keeps((node,))]

    def name(self, value: Value, home: Graph | None = None) -> str:
        """How the text form writes a value, and where it stands, if that is another graph than ``home``."""
        body = value.graph if isinstance(value, Node) else self._homes.get(value)
        body = body or self.graph
        elsewhere = isinstance(value, (Node, Input)) and body is not (home or self.graph)
        return self._names[body](value) + (f" in @{spell(body.name)}" if elsewhere else "")

    def node(self, node: Node, home: Graph | None = None) -> str:
        """A node with its primitive."""
        return f"{self.name(node, home)} ({spell(node.op.name)})"

    def uses(self, uses: Iterable[tuple[Node, int]]) -> str:
        """Who takes something, by operand: ``operand 1 of %a (Mul), …``."""
        return listed(f"operand {i} of {self.node(user)}" for user, i in uses)

    def names(self, values: Sequence[Value], home: Graph | None = None) -> str:
        return listed(self.name(value, home) for value in values)


def listed(texts: Iterable[str]) -> str:
    """The texts, each once, with commas."""
    return ", ".join(dict.fromkeys(texts))


def first_line(error: Exception) -> str:
    return str(error).split("\n")[0]
