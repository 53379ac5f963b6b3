"""Nodes of the forward part once more in the backward part, as MindSpore's ``Cell.recompute`` writes them.

A copy waits for the gradient that comes into its piece (``passes/step/again.py``).
"""

from __future__ import annotations

from collections.abc import Iterable
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


def run_again(forward: Forward, pieces: Iterable[set[Node]], effects: Effects) -> Copies:
    """Writes copies of the nodes of each piece that the backward part takes, and of those that these need, and makes
    the backward part take the copies. Nodes of other pieces are taken as they are. A piece that saves nothing stays as
    it is. ``effects``: those of the graph; the caller commits them. Linear in nodes and operands, but for sorting."""
    done = Copies()
    gradients = Gradients(forward)
    kept = set(forward.kept)
    writer = _Writer(forward, effects)
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
        first = min((user for user, _, _ in uses), key=writer.position.__getitem__)
        copied = writer.copies(needed, gradient, first)
        for user, i, node in uses:
            user.set_operand(i, copied[node])
        done.copied.update(copied)
        done.starts |= starts
        done.saved += saved
        kept |= begin
    return done


class _Writer:
    def __init__(self, forward: Forward, effects: Effects):
        self.forward, self.effects = forward, effects
        self.position = {node: at for at, node in enumerate(forward.graph)}
        self._read: dict[Value, Node] = {}

    def copies(self, needed: Iterable[Node], gradient: Node, first: Node) -> dict[Node, Node]:
        """Copies of the nodes of a piece, in front of ``first``, that wait for ``gradient``."""
        forward, graph = self.forward, self.forward.graph
        guarded: dict[Value, Node] = {}

        def guard(value: Value) -> Node:
            if value not in guarded:
                guarded[value] = waiting(graph, value, gradient)
            return guarded[value]

        copied: dict[Node, Node] = {}
        with graph.inserting_before(first):
            for node in sorted(needed, key=self.position.__getitem__):
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
