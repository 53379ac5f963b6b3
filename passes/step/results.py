"""Results of a graph by name, and how a pass adds some."""

from __future__ import annotations

from collections.abc import Sequence

from ...ir.analysis.training.results import names_of_results
from ...ir.core.graph import Graph, Value
from ...ir.core.types import leaves
from ...ir.core.walk import result_value
from ...ir.rewrite.settle_results import element


def named_results(graph: Graph) -> list[tuple[str, Value]]:
    """The results of a graph, as (name, value), but for those without a name."""
    value = result_value(graph)
    paths = [path for path, _ in leaves(value.type)]
    names = names_of_results(graph, len(paths))
    return [(name, element(graph, value, path)) for name, path in zip(names, paths, strict=bool(names))]


def with_results(graph: Graph, results: Sequence[tuple[str, Value]]) -> Value:
    """The result value of a graph that returns ``results`` too (in place of those of the same name); sets the graph's
    ``outputs``. To be given to ``Effects.commit``."""
    named = dict(named_results(graph))
    named.update(results)
    graph.outputs = tuple(named)
    values = list(named.values())
    return values[0] if len(values) == 1 else graph.create("MakeTuple", values)
