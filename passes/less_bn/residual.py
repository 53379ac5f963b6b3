"""Residual joins, found by dataflow: where two branches that left one value are added up again.

From an addition the walk goes up along all operands at once, latest node first, and notes for every value from which
operands it was reached. A value reached from all of them is where the branches left (the block's input); what was
reached from some only is the branches. A join inside a branch is stepped over as a whole, so that every node belongs to
the innermost block around it and the whole search stays linear.
"""

from __future__ import annotations

import heapq
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ...ir.analysis.training.anatomy import TrainingAnatomy
from ...ir.analysis.training.network import FORWARD
from ...ir.core.graph import Graph, Input, Node, Value
from ...ir.core.primitives import Family, named
from ...ir.core.types import TensorType
from ...ir.core.walk import walk
from .norms import FORMS

ADDS = named(Family.SUM, in_place=True)
CONVOLUTIONS = named(Family.CONVOLUTION, Family.TRANSPOSED_CONVOLUTION)


@dataclass(frozen=True, eq=False)
class Join:
    """``last`` holds the normalisations from which a path leads to the addition without another one, ``inner`` the
    other ones of the branches."""

    node: Node
    entries: tuple[Value, ...]
    last: tuple[Node, ...]
    inner: tuple[Node, ...]


def residual_joins(found: TrainingAnatomy) -> list[Join]:
    """Additions of feature maps of one shape that come from one value, by branches with a convolution."""
    search = _Search(found)
    return [join for node in found.graph if (join := search.join(node)) is not None]


class _Search:
    def __init__(self, found: TrainingAnatomy):
        self.graph: Graph = found.graph
        self.found = found
        self.place: dict[Value, int] = {}
        """Values of forward that depend on the graph's inputs, and their place in the graph; weights are not among
        them."""
        self.joins: dict[Node, Join] = {}
        for i, value in enumerate((*self.graph.inputs, *self.graph)):
            if isinstance(value, Node) and (found.part(value) != FORWARD or value.op.name == "UpdateState"):
                continue
            if isinstance(value, Input) or any(v in self.place for v in value.operands):
                self.place[value] = i

    def join(self, node: Node) -> Join | None:
        heads = self._summands(node)
        if len(heads) < 2 or len(set(heads)) < len(heads):
            return None
        reached, entries = self._walk(heads)
        if not entries or not any(n.op.name in CONVOLUTIONS for n in reached):
            return None
        last = self._last(heads, reached)
        inner = [n for n in reached if n.op.name in FORMS and n not in last]
        join = self.joins[node] = Join(node, tuple(entries), tuple(last), tuple(inner))
        return join

    def _summands(self, node: Node) -> list[Value]:
        if node not in self.place or not isinstance(node.type, TensorType) or len(node.type.shape) < 3:
            return []
        operands: Sequence[Value] = ()
        if node.op.name == "AddN":
            items = node.operand(0)
            operands = items.operands if isinstance(items, Node) and items.op.name == "MakeTuple" else node.operands
        elif node.op.name in ADDS:
            operands = node.operands[:2]
        same = all(
            v in self.place and isinstance(v.type, TensorType) and v.type.shape == node.type.shape for v in operands
        )
        return list(operands) if same else []

    def _above(self, value: Value) -> Sequence[Value]:
        if not isinstance(value, Node):
            return ()
        join = self.joins.get(value)
        return join.entries if join is not None else [v for v in value.operands if v in self.place]

    def _walk(self, heads: Sequence[Value]) -> tuple[dict[Node, int], list[Value]]:
        """Nodes reached from some of the heads (as bits), and the first values reached from all."""
        everyone = (1 << len(heads)) - 1
        seen: dict[Value, int] = {}
        queue: list[tuple[int, int]] = []
        by_place: dict[int, Value] = {}

        def reach(value: Value, bits: int) -> None:
            if value not in seen:
                seen[value] = 0
                at = self.place[value]
                by_place[at] = value
                heapq.heappush(queue, (-at, at))
            seen[value] |= bits

        for i, head in enumerate(heads):
            reach(head, 1 << i)
        reached: dict[Node, int] = {}
        entries: list[Value] = []
        while queue:
            value = by_place[heapq.heappop(queue)[1]]
            bits = seen[value]
            if bits == everyone:
                entries.append(value)
                continue
            if isinstance(value, Node):
                reached[value] = bits
            for above in self._above(value):
                reach(above, bits)
        return reached, entries

    def _last(self, heads: Sequence[Value], reached: Mapping[Node, int]) -> dict[Node, None]:
        def above(node: Node) -> list[Node]:
            if node.op.name in FORMS:
                return []
            return [v for v in self._above(node) if isinstance(v, Node) and v in reached]

        return {n: None for n in walk((n for n in reached if n in heads), above) if n.op.name in FORMS}
