"""Which inputs of a training graph are labels, and which belong to the network though they reach no layer: a mask or an
offset of its output, weights that it is pooled by.

Such an input meets the prediction before a label does. The cells say whether that is in the network: a cell that holds
layers and no part of the loss is the network's.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass

from ...core.graph import Node, Value
from ...core.primitives import Family, facts
from ...core.types import TensorType
from ...core.walk import carried_operands
from .forward import Forward, ancestors, cell

_STRUCTURE = frozenset({Family.ORDER, Family.TUPLE, Family.CLOSURE})
_PRODUCTS = frozenset({Family.MATMUL, Family.AFFINE})


@dataclass(frozen=True)
class Labels:
    """``fed``: the labels, a bit for each input. ``core``: the nodes that the network cannot do without. ``cells``: the
    cells of the network. ``unsure``: those of the labels that may as well belong to the network."""

    fed: int
    core: Collection[Value]
    cells: Cells
    unsure: tuple[str, ...] = ()


def find_labels(forward: Forward, noted: str | None) -> Labels:
    """The labels. ``noted``: the input that alone is the label, where somebody knows it."""
    label = forward.bit(noted)
    layers = [n for n in forward.order if forward.is_layer(n) and not forward.fed[n] & label]
    others = forward.fed_by(forward.order) & ~forward.fed_by(layers)
    core = ancestors(layers)
    meetings = _meetings(forward, core, others)
    last = label or _last(meetings, others)
    cells = Cells(layers, _behind(forward, core, meetings, last))
    fed, unsure = label, 0
    if not label:
        fed, unsure = _judged(meetings, others, last, cells)
    joins = [m.node for m in meetings if m.joining & ~fed and not forward.fed[m.node] & fed]
    if cells.of_network:
        joins = [n for n in joins if cells.in_network(n) or (label and cells.is_around(n))]
    return Labels(fed, ancestors([*layers, *joins]), cells, forward.names(unsure))


class Cells:
    """Cells of a network: those that hold ``layers``, as far down as they are no cells of ``loss``, too."""

    def __init__(self, layers: Iterable[Node], loss: Iterable[Node]):
        homes = {_path(n) for n in layers if n.scope}
        self._depth = min((_shared(home, _path(n)) for home in homes for n in loss if n.scope), default=0)
        self._root = next(iter(homes), ())[: self._depth]
        self.of_network = (
            frozenset(h[self._depth] for h in homes if len(h) > self._depth) if self._depth else frozenset()
        )

    def in_network(self, node: Node) -> bool:
        return self.holds(cell(node))

    def holds(self, name: str) -> bool:
        """Whether the cell of this name is part of the network."""
        return self._part(name) in self.of_network

    def is_around(self, node: Node) -> bool:
        """Whether a node stands in the cell that calls network and loss."""
        return self._part(cell(node)) == ""

    def _part(self, name: str) -> str | None:
        path = tuple(name.split("/"))
        if path[: self._depth] != self._root:
            return None
        return path[self._depth] if len(path) > self._depth else ""


@dataclass(frozen=True)
class _Meeting:
    """A node where the prediction meets a value that no weight made. ``joining``: the inputs that this value depends
    on, of those that reach no layer (0: it is made of data alone); ``before``: those that the prediction has met."""

    node: Node
    joining: int
    before: int

    @property
    def first(self) -> int:
        return self.joining & ~self.before


def _meetings(forward: Forward, core: Collection[Value], others: int) -> list[_Meeting]:
    """Where the prediction meets inputs behind the last layer, in the order of the graph."""
    found = []
    for node in forward.order:
        operands = carried_operands(node)
        prediction = [v for v in operands if forward.predicts(v)]
        if prediction and node not in core:
            joining = forward.fed_by(v for v in operands if v not in forward.weighted)
            if joining:
                found.append(_Meeting(node, joining & others, forward.fed_by(prediction) & others))
    return found


def _last(meetings: Iterable[_Meeting], others: int) -> int:
    """Those of the inputs behind which the prediction meets no other, nor data again."""
    early = 0
    for meeting in meetings:
        if meeting.first or not meeting.joining:
            early |= meeting.before
    return others & ~early


def _behind(forward: Forward, core: Collection[Value], meetings: Iterable[_Meeting], last: int) -> list[Node]:
    """The nodes where the loss computes: behind the labels or, where data are the labels, behind where they come in."""
    reached: set[Value] = set() if last else {m.node for m in meetings if not m.joining}
    found = []
    for node in forward.order:
        if forward.fed.get(node, 0) & last or any(v in reached for v in carried_operands(node)):
            reached.add(node)
        if node in reached and node not in core and forward.predicts(node) and not _is_structure(node):
            found.append(node)
    return found


def _judged(meetings: Collection[_Meeting], others: int, last: int, cells: Cells) -> tuple[int, int]:
    """The labels among ``others``, and those of them of which nothing says so."""
    labels, unsure = others, 0
    for i in range(others.bit_length()):
        one = 1 << i
        if not others & ~last & one:
            continue
        first = [m.node for m in meetings if m.first & one]
        if any(map(cells.in_network, first)):
            labels &= ~one
        elif all(_may_predict(n) and (cells.is_around(n) or not cells.of_network) for n in first):
            unsure |= one  # a lookup by it, or a comparison with it, would be the loss's
    return labels, unsure


def _may_predict(node: Node) -> bool:
    """Whether what a node computes may be a prediction still: a network may end in it, and a loss may begin with it."""
    kind = facts(node.op)
    changes = kind.elementwise or node.op.name == "MaskedFill" or kind.family in _PRODUCTS
    return changes and isinstance(node.type, TensorType) and node.type.dtype.is_float


def _is_structure(node: Node) -> bool:
    return facts(node.op).family in _STRUCTURE


def _path(node: Node) -> tuple[str, ...]:
    return tuple(cell(node).split("/"))


def _shared(one: tuple[str, ...], other: tuple[str, ...]) -> int:
    """How many parts two paths begin with alike."""
    return next((i for i, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), min(len(one), len(other)))
