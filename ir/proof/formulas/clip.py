"""Clipping: gradients are made no longer than a limit, all together, each by itself, or element by element.

Source: Pascanu et al., On the difficulty of training recurrent neural networks, 2013.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ...builders.reduce import square_sum
from ...core.graph import Value, tensor_type
from .statement import RESULT, Statement

PASS = "clip-gradients"
NORM = "gradient_norm"


def says(options: Mapping[str, Any]) -> str:
    limit = f"{options['limit']:g}"
    return {
        "global-norm": f"g' = g · {limit} / max(n, {limit}), n² the sum of the squares of all gradients",
        "tensor-norm": f"g' = g · {limit} / max(n, {limit}), n² the sum of the squares of g",
        "value": f"g' = max(min(g, {limit}), -{limit}), element by element",
    }[options["by"]]


def state(statement: Statement, options: Mapping[str, Any]) -> tuple[str, ...]:
    """Changes the gradients of all weights, which it returns."""
    by, limit, w = options["by"], float(options["limit"]), statement.nodes
    taken = statement.taken
    measured = by != "value" or options.get("report_norm")
    squares: dict[str, Value] = {}
    if measured:
        squares = {name: square_sum(statement.graph, one.gradient, scope="") for name, one in taken.items()}
    together = _norm(statement, list(squares.values())) if squares else None
    if options.get("report_norm") and together is not None:
        statement.gives[RESULT, NORM] = together
    for name, one in taken.items():
        own = tensor_type(one.gradient).dtype
        wide = w.cast(one.gradient, own.widened)
        if by == "value":
            dtype = str(own.widened)
            shorter = w.op("Maximum", w.op("Minimum", wide, w.number(limit, dtype)), w.number(-limit, dtype))
        else:
            norm = together if by == "global-norm" and together else _norm(statement, [squares[name]])
            factor = w.op("RealDiv", w.number(limit), w.op("Maximum", norm, w.number(limit)))
            shorter = w.op("Mul", wide, w.cast(factor, own.widened))
        one.gradient, one.changed = w.cast(shorter, own), True
    return tuple(taken)


def _norm(statement: Statement, squares: list[Value]) -> Value:
    w = statement.nodes
    return w.op("Sqrt", w.op("AddN", w.op("MakeTuple", *squares)) if len(squares) > 1 else squares[0])
