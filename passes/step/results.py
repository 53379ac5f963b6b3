"""Results of a graph by name, and how a pass adds some."""

from __future__ import annotations

from collections.abc import Sequence

from ...ir.core.graph import Constant, Graph, Value
from ...ir.core.names import LOSS
from ...ir.core.naming import result_names
from ...ir.core.types import TupleType, leaves
from ...ir.core.walk import result_value
from ...ir.rewrite.settle_results import element


def named_results(graph: Graph) -> list[tuple[str, Value]]:
    """The results of a graph, as (name, value); without names, the first is the loss of a graph that takes inputs. One
    that computes nothing returns a constant without a name."""
    value = result_value(graph)
    if not graph.outputs and (not graph.inputs or isinstance(value, Constant)):
        return []
    if not isinstance(value.type, TupleType):
        return [(graph.outputs[0] if graph.outputs else LOSS, value)]
    paths = [path for path, _ in leaves(value.type)]
    names = graph.outputs or result_names(len(paths))
    return [(name, element(graph, value, path)) for name, path in zip(names, paths, strict=True)]


def with_results(graph: Graph, results: Sequence[tuple[str, Value]]) -> Value:
    """The result value of a graph that returns ``results`` too (in place of those of the same name); sets the graph's
    ``outputs``. To be given to ``Effects.commit``."""
    named = dict(named_results(graph))
    named.update(results)
    graph.outputs = tuple(named)
    values = list(named.values())
    return values[0] if len(values) == 1 else graph.create("MakeTuple", values)
