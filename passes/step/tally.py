"""Tallies: scalar float32 numbers that a rank counts for itself (micro-batches, overflows) and by which the update is
normalised or skipped. Passes declare them; ``data-parallel`` puts their sum over all ranks in their place, so that
every rank comes to the same decision.
"""

from __future__ import annotations

from collections.abc import Iterator

from ...ir.core.graph import Graph, Node, Value
from ...ir.core.types import tensor
from ...ir.rewrite.effects.editing import Effects
from ...ir.rewrite.stages import mark
from .names import TALLY


def declare_tally(node: Node, what: str) -> Node:
    mark(node, {TALLY: what})
    return node


def tallies(graph: Graph) -> Iterator[tuple[str, Node]]:
    """The name of a tally, and the node that holds the number."""
    for node in graph:
        what = node.marks.get(TALLY)
        if isinstance(what, str):
            yield what, node


def find_tally(graph: Graph, what: str) -> Node | None:
    return next((node for name, node in tallies(graph) if name == what), None)


def cycle_total(fx: Effects, state: str, own: Value | None, *, scope: str) -> Node:
    """A number that is summed over the cycle's micro-batches; ``own``: that of the one in the same graph."""
    loaded = fx.load(fx.graph.state(state, tensor("float32")), scope=scope)
    return loaded if own is None else fx.graph.create("Add", [loaded, own], scope=scope)


def move_marks(old: Node, new: Node, names: tuple[str, ...]) -> None:
    """``new`` is from now on what ``old`` was."""
    mark(new, {name: old.marks[name] for name in names if name in old.marks})
    old.marks = {name: value for name, value in old.marks.items() if name not in names}
