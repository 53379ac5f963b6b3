"""Whether the update of a graph takes place, and how many there have been."""

from __future__ import annotations

from ...ir.builders.nodes import Nodes
from ...ir.core.graph import Graph, Value
from ...ir.core.names import SKIPPED_CYCLES
from ...ir.core.program import Program
from ...ir.core.types import tensor
from ...ir.rewrite.effects.editing import Effects
from .names import SKIPPED
from .own_check import find_own_check, skips
from .results import named_results


def happened(program: Program, graph: Graph, *, scope: str) -> Value | None:
    """Whether the update of a graph takes place, a scalar bool; None where it always does."""
    n = Nodes(graph, scope)
    if SKIPPED in program.state:
        in_a_row = dict(named_results(graph))[SKIPPED_CYCLES]
        return n.op("Equal", in_a_row, n.number(0, "int32"))
    own = find_own_check(graph, Effects(graph).list)
    return None if own is None else n.op("LogicalNot", skips(graph, own, scope=scope))


def count_updates(fx: Effects, name: str, taken_place: Value | None, *, scope: str) -> tuple[Value, Value]:
    """The number of updates before this one and with it, int32 scalars; state ``name``, which the graph writes, counts
    them. ``taken_place``: what :func:`happened` says."""
    n = Nodes(fx.graph, scope)
    counter = fx.graph.state(name, tensor("int32"))
    before = fx.load(counter, scope=scope)
    after: Value = n.op("Add", before, n.number(1, "int32"))
    if taken_place is not None:
        after = n.op("Select", taken_place, after, before)
    fx.append("Assign", [counter, after], scope=scope)
    return before, after
