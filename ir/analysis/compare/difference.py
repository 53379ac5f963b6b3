"""The difference of two programs (found by :mod:`.diff`): records for reports, grouped by pass and by scope."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from ...core.display import Displayed
from ...core.graph import Node
from ...core.naming import printable
from ...core.wording import counted

if TYPE_CHECKING:
    from ...core.program import Program

KINDS = ("added", "removed", "changed", "moved")
Kind = Literal["added", "removed", "changed", "moved"]
_STEPS = 8
UNRECORDED = ""
"""The pass of a difference that no node's origin explains."""


@dataclass(frozen=True, slots=True)
class Detail:
    """One thing that differs: ``operand 1``, ``attribute axis``, ``type``; ``before`` and ``after`` as text, empty
    where there is none."""

    what: str
    before: str
    after: str

    def to_json(self) -> dict[str, str]:
        return {"what": self.what, "before": self.before, "after": self.after}

    def __str__(self) -> str:
        if not self.before or not self.after:
            return f"{self.what}: {'added ' + self.after if self.after else 'removed ' + self.before}"
        return f"{self.what}: {self.before} → {self.after}"


@dataclass(frozen=True, slots=True, eq=False)
class NodeDiff:
    """A node that is not the same in both programs. ``by``: the pass that made the difference, as far as origins tell.
    ``order``: only the order of effects differs (UpdateState, token operands), not what is computed."""

    kind: Kind
    before: Node | None
    after: Node | None
    details: tuple[Detail, ...] = ()
    by: str = UNRECORDED
    order: bool = False

    @property
    def node(self) -> Node:
        """The node as it is now, or as it was if it is gone."""
        node = self.after or self.before
        assert node is not None
        return node

    @property
    def scope(self) -> str:
        """The layer that the node belongs to."""
        return layer(self.node)

    @property
    def function(self) -> str:
        """The function that the node stands in; empty for the main graph."""
        graph = self.node.graph
        return graph.name if graph is not None and graph.owner is not None else ""

    def to_json(self) -> dict[str, Any]:
        node = self.node
        return {
            "kind": self.kind,
            "op": node.op.name,
            "before": self.before.name if self.before else None,
            "after": self.after.name if self.after else None,
            "type": str(node.type),
            "function": self.function,
            "scope": node.scope,
            "pass": self.by,
            "sources": list(node.origin.sources) if node.origin else [],
            "order": self.order,
            "details": [d.to_json() for d in self.details],
        }


@dataclass(slots=True)
class GraphDiff:
    """The fate of one graph. ``before`` or ``after`` is None for a graph that came or went as a whole; one graph occurs
    several times where it became several. ``kept``: how many nodes both have. ``interface``: inputs, outputs, result,
    attributes, notes, functions."""

    before: str | None
    after: str | None
    kept: int = 0
    interface: list[Detail] = field(default_factory=list)
    nodes: list[NodeDiff] = field(default_factory=list)

    def __bool__(self) -> bool:
        return bool(self.interface or self.nodes or self.before is None or self.after is None)

    def to_json(self) -> dict[str, Any]:
        return {
            "before": self.before,
            "after": self.after,
            "kept": self.kept,
            "interface": [d.to_json() for d in self.interface],
            "nodes": [n.to_json() for n in self.nodes],
        }


@dataclass(frozen=True, slots=True)
class StateDiff:
    """A state variable that is not the same in both programs."""

    kind: Kind
    name: str
    details: tuple[Detail, ...] = ()

    def to_json(self) -> dict[str, Any]:
        return {"kind": self.kind, "name": self.name, "details": [d.to_json() for d in self.details]}


@dataclass(slots=True, repr=False)
class ProgramDiff(Displayed):
    """True where the programs differ. ``split`` names the graphs that became several, or were made of several."""

    graphs: list[GraphDiff]
    state: list[StateDiff]
    schedule: list[Detail]
    program: list[Detail]
    split: list[Detail] = field(default_factory=list)
    compared: tuple[Program, Program] | None = field(default=None, compare=False)
    """Before and after."""

    def __repr__(self) -> str:
        if not self:
            return "No difference"
        order = self.counts()["order"]
        parts = [f"{kind} {n}" for kind, n in self.counts().items() if n and kind != "order"]
        lines = [f"Difference: nodes {', '.join(parts) or 'the same'}"]
        lines += [f"{order} in another order of effects"] if order else []
        lines += [
            f"by {by or 'no recorded pass'}: {counted(len(nodes), 'node')}" for by, nodes in self.by_pass().items()
        ]
        lines += [f"{counted(len(self.state), 'state variable')} differ"] if self.state else []
        return "\n  ".join(map(printable, lines[:10]))

    def __bool__(self) -> bool:
        return bool(any(self.graphs) or self.state or self.schedule or self.program or self.split)

    def nodes(self) -> list[NodeDiff]:
        return [node for graph in self.graphs for node in graph.nodes]

    def counts(self) -> dict[str, int]:
        """How many nodes were added, removed, changed, moved, and how many differ in the order of effects only."""
        nodes = self.nodes()
        counts = {kind: sum(n.kind == kind and not n.order for n in nodes) for kind in KINDS}
        return {**counts, "order": sum(n.order for n in nodes)}

    def by_pass(self) -> dict[str, list[NodeDiff]]:
        """Nodes by the pass that made the difference."""
        return grouped(self.nodes(), lambda n: n.by)

    def to_json(self) -> dict[str, Any]:
        return {
            "equal": not self,
            "counts": self.counts(),
            "graphs": [g.to_json() for g in self.graphs],
            "split": [d.to_json() for d in self.split],
            "state": [s.to_json() for s in self.state],
            "schedule": [d.to_json() for d in self.schedule],
            "program": [d.to_json() for d in self.program],
        }


def layer(node: Node) -> str:
    """A node's scope without its last part, which names the node itself (``…/fc1-Dense/MatMul-op12``). Nodes that
    passes made often have none: then that of what they are computed from."""
    for _ in range(_STEPS):
        if node.scope:
            return node.scope.rpartition("/")[0] or node.scope
        inner = next((v for v in node._operands[:_STEPS] if isinstance(v, Node) and v.op.name != "UpdateState"), None)
        if inner is None:
            break
        node = inner
    return ""


def grouped(nodes: Iterable[NodeDiff], key: Callable[[NodeDiff], str]) -> dict[str, list[NodeDiff]]:
    """Nodes by key, in order of occurrence."""
    groups: dict[str, list[NodeDiff]] = {}
    for node in nodes:
        groups.setdefault(key(node), []).append(node)
    return groups
