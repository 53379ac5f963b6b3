"""Sums, means, norms and extremes along axes."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from ....core.graph import Value
from ....core.types import DType
from ..vocabulary import dtype_of
from .call import Call, Rule
from .emitter import Emitter

Step = Callable[[Emitter, Value], Value]


def _step(name: str, e: Emitter, x: Value) -> Value:
    return e.unary(name, x)


def _reduce(name: str, before: Step | None, after: Step | None, c: Call) -> Value:
    e, x = c.emitter, c.value(0)
    axes = c.axes(1)
    if not axes:
        if c.attribute("noop_with_empty_axes", 0):
            return x if before is None else before(e, x)
        axes = list(range(c.rank()))
    x = x if before is None else before(e, x)
    x = e.reduce(name, x, axes, bool(c.attribute("keepdims", 1)))
    return x if after is None else after(e, x)


def _extreme(name: str, logical: str, c: Call) -> Value:
    return _reduce(logical if c.type(0).dtype is DType.BOOL else name, None, None, c)


def _log_sum_exp(c: Call) -> Value:
    """With the largest element taken out of the exponentials."""
    e, x = c.emitter, c.value(0)
    axes = c.axes(1) or list(range(c.rank()))
    largest = e.reduce("ReduceMax", x, axes, True)
    total = e.reduce("ReduceSum", e.unary("Exp", e.sub(x, largest)), axes, True)
    kept = e.add(e.log(total), largest)
    if c.attribute("keepdims", 1):
        return kept
    return e.reshape(kept, [d for i, d in enumerate(c.shape(0)) if i not in axes])


def _lp_normalization(c: Call) -> Value:
    e, x = c.emitter, c.value(0)
    axis, p = c.axis(c.attribute("axis", -1)), c.attribute("p", 2)
    if p == 1:
        norm = e.reduce("ReduceSum", e.unary("Abs", x), [axis], True)
    else:
        norm = e.unary("Sqrt", e.reduce("ReduceSum", e.unary("Square", x), [axis], True))
    # Where all are zero, the result is zero.
    zero = e.compare("Equal", norm, e.scalar(norm, 0.0))
    return e.div(x, e.add(norm, e.cast(zero, dtype_of(x))))


_SQUARE, _SQRT, _ABS = partial(_step, "Square"), partial(_step, "Sqrt"), partial(_step, "Abs")

RULES: dict[str, Rule] = {
    "ReduceSum": partial(_reduce, "ReduceSum", None, None),
    "ReduceMean": partial(_reduce, "ReduceMean", None, None),
    "ReduceProd": partial(_reduce, "ReduceProd", None, None),
    "ReduceMax": partial(_extreme, "ReduceMax", "ReduceAny"),
    "ReduceMin": partial(_extreme, "ReduceMin", "ReduceAll"),
    "ReduceL1": partial(_reduce, "ReduceSum", _ABS, None),
    "ReduceL2": partial(_reduce, "ReduceSum", _SQUARE, _SQRT),
    "ReduceSumSquare": partial(_reduce, "ReduceSum", _SQUARE, None),
    "ReduceLogSum": partial(_reduce, "ReduceSum", None, Emitter.log),
    "ReduceLogSumExp": _log_sum_exp,
    "LpNormalization": _lp_normalization,
}
