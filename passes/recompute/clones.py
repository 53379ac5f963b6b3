"""Nodes of the forward part once more in the backward part, as MindSpore's ``Cell.recompute`` writes them.

A copy waits for the gradient that comes into its piece (``passes/step/again.py``).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from ...ir.core.graph import Constant, Node, State, Value
from ...ir.core.types import is_monad
from ...ir.core.walk import walk
from ...ir.rewrite.effects.editing import Effects
from ..step.again import SCOPE, mark_again, waiting
from .candidates import Forward, backward_uses, bytes_of
from .gradients import Gradients
from .stand_ins import stand_in


@dataclass(slots=True)
class Copies:
    """``copied``: the nodes that run again, and the copy of each. ``starts``: what the copies are computed from.
    ``saved``: the bytes that need not be kept, less those that are kept as starts instead. ``unguarded``: values
    for whose piece the backward part has no gradient to wait for. ``useless``: values whose copies would start from as
    many bytes as they save."""

    copied: dict[Node, Node] = field(default_factory=dict)
    starts: set[Node] = field(default_factory=set)
    saved: int = 0
    unguarded: set[Node] = field(default_factory=set)
    useless: set[Node] = field(default_factory=set)

    def __bool__(self) -> bool:
        return bool(self.copied)


@dataclass(frozen=True, slots=True)
class Region:
    """A piece that is worth it. ``needed``: the nodes that run again, in order. ``gradient``: what they wait for.
    ``uses``: the operands of backward nodes that take copies, each with the node that it takes now; ``first`` of these
    users stands before the others."""

    needed: Sequence[Node]
    gradient: Node
    first: Node
    uses: Sequence[tuple[Node, int, Node]]

    def of_copy(self, of: Mapping[Node, Node]) -> Region:
        """The region in a copy of the graph, from its nodes to those of the copy."""
        uses = [(of[user], i, of[node]) for user, i, node in self.uses]
        return Region([of[node] for node in self.needed], of[self.gradient], of[self.first], uses)


def regions(forward: Forward, gradients: Gradients, pieces: Iterable[set[Node]], done: Copies) -> Iterator[Region]:
    """Of each piece the nodes that the backward part takes, and those that these need, which are to run again. Nodes of
    other pieces are taken as they are. A piece that saves nothing stays as it is. ``done`` is told all but the copies.
    Linear in nodes and operands, but for sorting."""
    kept = set(forward.kept)
    position = forward.position
    for piece in pieces:
        wanted = [node for node in piece if node in forward.wanted]
        uses = [(u, i, n) for n in wanted for u, i in backward_uses(n, forward.parts, forward.replaced)]
        if not uses:
            continue
        gradient = gradients.reaching([user for user, _, _ in uses])
        needed = set(walk(wanted, lambda node: [v for v in forward.operands(node) if v in piece]))  # noqa: B023
        starts = {v for node in needed for v in forward.operands(node) if v not in needed}
        freed, begin = forward.memory(wanted) & needed, forward.memory(starts) - kept
        if gradient is None:
            done.unguarded |= freed
            continue
        saved = sum(map(bytes_of, freed)) - sum(map(bytes_of, begin))
        if saved <= 0:
            done.useless |= freed
            continue
        first = min((user for user, _, _ in uses), key=position.__getitem__)
        yield Region(sorted(needed, key=position.__getitem__), gradient, first, uses)
        done.starts |= starts
        done.saved += saved
        kept |= begin


def run_again(forward: Forward, found: Iterable[Region], effects: Effects) -> dict[Node, Node]:
    """Writes copies of the nodes of regions, and makes the backward part take them. ``effects``: those of the graph;
    the caller commits them. Returns the copy of each node. Linear in nodes and operands."""
    writer = _Writer(forward, effects)
    done: dict[Node, Node] = {}
    for region in found:
        copied = writer.copies(region)
        for user, i, node in region.uses:
            user.set_operand(i, copied[node])
        done |= copied
    return done


class _Writer:
    def __init__(self, forward: Forward, effects: Effects):
        self.forward, self.effects = forward, effects
        self._read: dict[Value, Node] = {}

    def copies(self, region: Region) -> dict[Node, Node]:
        forward, graph = self.forward, self.forward.graph
        guarded: dict[Value, Node] = {}

        def guard(value: Value) -> Node:
            if value not in guarded:
                guarded[value] = waiting(graph, value, region.gradient)
            return guarded[value]

        copied: dict[Node, Node] = {}
        with graph.inserting_before(region.first):
            for node in region.needed:
                taken = [self._value(v) for v in node.operands if not is_monad(v.type)]
                waits = not all(isinstance(v, Constant) or _is_read(v) for v in taken)
                operands: list[Value] = []
                for operand in taken:
                    if isinstance(operand, Node) and operand in copied:
                        operands.append(copied[operand])
                    elif isinstance(operand, Constant) or (waits and _is_read(operand)):
                        operands.append(operand)
                    else:
                        operands.append(guard(operand))
                scope = SCOPE + node.scope
                if node in forward.replaced:
                    copied[node], again = stand_in(graph, node, operands, forward.parts, scope)
                else:
                    copied[node] = again = graph.create(node.op, operands, node.type, scope=scope, sources=[node])
                mark_again(again, node)
        return copied

    def _value(self, operand: Value) -> Value:
        """A state by its value at the start: the copy runs before the state is written."""
        if not isinstance(operand, State):
            return operand
        if operand not in self._read:
            self._read[operand] = self.effects.load(operand)
        return self._read[operand]


def _is_read(value: Value) -> bool:
    """Whether a value is a state's: it is there anyway, and need not wait in a copy that takes something that does."""
    return isinstance(value, Node) and value.op.name == "Load"
