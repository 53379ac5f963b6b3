"""Which cell computed a node, and which cell is the optimizer: the exporter says so in the scopes of nodes.

A node of scope ``Default/optimizer-Momentum/Mul-op3`` stands in the ``construct`` of ``Default/optimizer-Momentum``.
The training cell holds the network and the optimizer. So it is the innermost cell around an update that computes
something of the network too, and the optimizer is the part of it in which the update stands. What is computed outside
of that part is the training cell's, and the optimizer is handed it. A cell that updates its weights by itself has no
optimizer: nothing tells what is the one's and what is the other's.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from ...core.graph import Node

NETWORK = ("forward", "backward")
DERIVATIVES = "Gradients/"
"""What the exporter puts in front of the scope of a backward node."""


def cell_of(node: Node) -> str:
    """The path of the cell that computed a node; "" where its scope names none."""
    return node.scope.removeprefix(DERIVATIVES).rpartition("/")[0]


def within(cell: str, outer: str) -> bool:
    """Whether a cell is ``outer``, or a part of it."""
    return cell == outer or cell.startswith(f"{outer}/")


class Cells:
    """The cells of a training graph. ``parts``: its forward and backward nodes. Linear in nodes."""

    def __init__(self, parts: Mapping[Node, str]):
        own = {cell_of(node) for node, part in parts.items() if part in NETWORK}
        self._network = {outer for cell in own for outer in outwards(cell)}

    def optimizer(self, update: Node) -> str | None:
        """The cell of the optimizer that makes an update; None where no cell is told apart from the training cell."""
        inner = None
        for cell in outwards(cell_of(update)):
            if cell in self._network:
                return inner
            inner = cell
        return None


def outwards(cell: str) -> Iterable[str]:
    """A cell, and those around it, from the inside."""
    while cell:
        yield cell
        cell = cell.rpartition("/")[0]
