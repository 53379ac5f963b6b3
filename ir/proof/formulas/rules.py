"""The rules of the states that passes bring along, as graphs of scalars: counts of skipped updates, and loss scales.

They are written with the primitives that a program would compute them with, so that both have one number.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ...builders.nodes import Nodes
from ...core.graph import Graph, Value
from ...core.types import DType, TensorType, Type, tensor


@dataclass(frozen=True)
class Rule:
    """What a state holds after a cycle, from what the states that it ``takes`` held before, and those of ``after`` hold
    then: where all gradients are finite (``clean``), and where one is not."""

    takes: tuple[str, ...]
    after: tuple[str, ...]
    clean: Graph
    overflow: Graph


def written(
    takes: tuple[str, ...], types: Sequence[Type], after: tuple[str, ...], *formulas: Callable[..., Value]
) -> Rule:
    """``types``: of what is taken, before and after; ``formulas``: of the two cases."""
    graphs = []
    for formula in formulas:
        graph = Graph("rule")
        inputs = [graph.add_input(f"state_{i}", type_) for i, type_ in enumerate(types)]
        graph.result = formula(Nodes(graph, ""), *inputs)
        graphs.append(graph)
    return Rule(takes, after, *graphs)


def counts(name: str, dtype: DType, *, skipped: bool) -> Rule:
    """A count of cycles, or of updates in a row that were skipped."""

    def more(w: Nodes, count: Value) -> Value:
        return w.op("Add", count, w.number(1, dtype.value))

    def none(w: Nodes, _: Value) -> Value:
        return w.number(0, dtype.value)

    return written((name,), [TensorType(dtype, ())], (), none if skipped else more, more)


OPTIONS = frozenset({"window", "factor", "min", "max"})
"""What the rule of a dynamic loss scale needs to know."""


def dynamic_scale(scale: str, clean: str, options: Mapping[str, Any]) -> tuple[Rule, Rule]:
    """A dynamic loss scale, and its count of clean cycles: ``nn.DynamicLossScaleUpdateCell``. An overflow divides the
    scale by the factor, ``window`` cycles in a row without one multiply it, within its bounds."""

    def grows(w: Nodes, n: Value) -> tuple[Value, Value]:
        in_a_row = w.op("Add", n, w.number(1.0))
        return w.op("GreaterEqual", in_a_row, w.number(options["window"])), in_a_row

    def larger(w: Nodes, s: Value, n: Value) -> Value:
        grown = w.op("Minimum", w.op("Mul", s, w.number(options["factor"])), w.number(options["max"]))
        return w.op("Select", grows(w, n)[0], grown, s)

    def smaller(w: Nodes, s: Value, _: Value) -> Value:
        return w.op("Maximum", w.op("Mul", s, w.number(1.0 / options["factor"])), w.number(options["min"]))

    def counted(w: Nodes, _: Value, n: Value) -> Value:
        enough, in_a_row = grows(w, n)
        return w.op("Select", enough, w.number(0.0), in_a_row)

    def none(w: Nodes, *_: Value) -> Value:
        return w.number(0.0)

    takes, types = (scale, clean), [tensor("float32")] * 2
    return written(takes, types, (), larger, smaller), written(takes, types, (), counted, none)
