"""Taking out of a graph what data-parallel put into it, so that other passes need know of none of it."""

from __future__ import annotations

from ...ir.analysis.training.divisor import find_divisor
from ...ir.builders.cast import cast
from ...ir.core.graph import Graph, Node, tensor_type
from ...ir.core.names import STAGE
from ...ir.rewrite.effects.editing import Effects
from ...ir.rewrite.ranks.buckets import ALL_REDUCE, source_of
from ...ir.rewrite.ranks.collectives import is_collective
from ..step.exported_reductions import SCOPE
from ..step.tally import move_marks, tallies
from .exchange import OWN_DIVISION, RANKS, take_over


def undo(graph: Graph) -> None:
    """Takes out what the pass put into a graph."""
    results = [n for n in graph if n.marks.get(STAGE) == ALL_REDUCE]
    fx = Effects(graph)
    for node in results:
        node.replace_uses(source_of(node))
    for what, node in list(tallies(graph)):
        if what == RANKS:
            for user, i in node.use_sites():
                if i == 1:
                    remaining = user.operand(0)
                    assert isinstance(remaining, Node)
                    user.replace_uses(remaining)
                    move_marks(user, remaining, (STAGE,))
        elif is_collective(node):
            source = node.operand(0)
            node.replace_uses(source)
            assert isinstance(source, Node)
            take_over(node, source)
    divisor = find_divisor(graph)
    for node in [n for n in graph if OWN_DIVISION in n.marks]:
        assert divisor is not None
        node.set_operand(1, cast(graph, divisor, tensor_type(node).dtype, scope=SCOPE))
    fx.commit()
