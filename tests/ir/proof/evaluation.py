"""Terms computed with numpy, so that normal forms can be held against what they are the normal forms of."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from boost_compile.ir.core.attributes import TensorValue
from boost_compile.ir.core.data import to_numpy
from boost_compile.ir.symbolic.terms import Terms

from tests.execution import PURE


def value_of(terms: Terms, root: int, given: Mapping[int, np.ndarray]) -> Any:
    """The value of a term, in float64; `given` has the values of its leaves."""
    values: dict[int, Any] = dict(given)
    for t in terms.below([root], values):
        head, arguments = terms.heads[t], [values[a] for a in terms.arguments[t]]
        values[t] = _apply(terms, t, head, arguments)
    return values[root]


def _apply(terms: Terms, t: int, head: tuple[Any, ...], arguments: list[Any]) -> Any:
    kind = head[0]
    if kind == "const":
        value = terms.values[t]
        if isinstance(value, TensorValue):
            array = to_numpy(value.type, value.data)
            return array if array.dtype == bool else array.astype(np.float64)
        return value
    if kind == "op":
        return PURE[str(head[1])](*arguments)
    if kind == "tuple":
        return tuple(arguments)
    if kind == "ite":
        return arguments[1] if np.all(arguments[0]) else arguments[2]
    if kind == "inverse":
        return 1 / arguments[0]
    assert kind == "sum", head
    total, atoms = np.zeros(head[1] or ()), iter(arguments)
    for coefficient, exponents in head[2]:
        product: Any = float(coefficient)
        for e in exponents:
            product = product * next(atoms) ** float(e)
        total = total + product
    return total
