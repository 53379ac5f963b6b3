"""Sums over ranks, taken of each micro-batch instead of the sums of a cycle: an accumulator then holds the sum over all
ranks, which one of them can hold for all."""

from __future__ import annotations

from collections.abc import Collection

from ...ir.analysis.effects.state_access import state_behind
from ...ir.core.graph import Graph, Node, Value, tensor_type
from ...ir.core.names import STAGE
from ...ir.core.program import Program
from ...ir.core.walk import through
from ...ir.rewrite.effects.editing import Effects
from ...ir.rewrite.ranks.buckets import ALL_REDUCE, Item, collective_of, plan_buckets, source_of, sum_over_ranks
from ...ir.rewrite.ranks.collectives import WORLD
from .accumulated import adding_nodes
from .exported_reductions import SCOPE

BUCKET = 4 * 2**20
"""Summands of fewer bytes travel together, in buckets of at most that many."""


def summed_accumulators(program: Program) -> dict[str, list[str]]:
    """By weight: its accumulators, where every graph that updates sums each of them over the ranks as it is."""
    whole: list[set[str]] = []
    for graph in program.graphs.values():
        results = _results(graph)
        if results:
            whole.append(set(results))
    of_weight: dict[str, list[str]] = {}
    for name, variable in program.state.items():
        if variable.role == "accumulator" and variable.weight:
            of_weight.setdefault(variable.weight, []).append(name)
    return {
        weight: names
        for weight, names in of_weight.items()
        if whole and all(name in found for name in names for found in whole)
    }


def sum_each_micro_batch(program: Program, accumulators: Collection[str]) -> None:
    """Moves the sums over ranks of these accumulators in front of what adds to them, in all graphs."""
    for graph in program.graphs.values():
        fx = Effects(graph)
        results = {name: found for name, found in _results(graph).items() if name in accumulators}
        gone = {result for found in results.values() for result in found}
        shared = {collective_of(result) for result in gone}
        rest = [n for n in graph if n.marks.get(STAGE) == ALL_REDUCE and n not in gone and collective_of(n) in shared]
        sources = [source_of(node) for node in rest]
        for node in gone:
            node.replace_uses(source_of(node))
        group = WORLD[program.target]
        if rest:
            for node, total in zip(rest, sum_over_ranks(graph, sources, group, scope=SCOPE), strict=True):
                node.replace_uses(total)
        adding = [n for n in adding_nodes(graph) if _accumulator(n.operand(0)) in accumulators]
        terms = [node.operand(1) for node in adding]
        types = [tensor_type(term) for term in terms]
        items = [Item(i, type_.dtype, type_.nbytes) for i, type_ in enumerate(types)]
        for bucket in plan_buckets(items, BUCKET):
            totals = sum_over_ranks(graph, [terms[i] for i in bucket], group, scope=SCOPE)
            for i, total in zip(bucket, totals, strict=True):
                adding[i].set_operand(1, total)
        if gone or adding:
            graph.sort()
            fx.commit()


def _results(graph: Graph) -> dict[str, list[Node]]:
    """By accumulator: the sums over the ranks of what it holds, with the micro-batch of the graph added to it."""
    found: dict[str, list[Node]] = {}
    for node in graph:
        if node.marks.get(STAGE) != ALL_REDUCE:
            continue
        name = _accumulator(source_of(node))
        if name is not None:
            found.setdefault(name, []).append(node)
    return found


def _accumulator(value: Value) -> str | None:
    value = through(value, ("Cast",))
    if isinstance(value, Node) and value.op.name == "Add" and value.marks.get(STAGE) == "accumulate":
        value = value.operand(0)
    state = state_behind(value)
    return None if state is None else state.name
