"""Arithmetic, activations, sums along axes and products of matrices."""

from __future__ import annotations

import math
from functools import partial, reduce

import numpy as np

from ....core.errors import FormatError
from ....core.graph import Value
from ....core.inference import broadcast
from ....core.types import DType
from ....core.wording import counted
from ..operators import Unsupported, dtype_of, shape_of
from .call import Call, Rule
from .emitter import Emitter, plain


def _variadic(name: str, c: Call) -> Value:
    return reduce(lambda a, b: c.e.apply(name, a, b), (c.value(i) for i in range(len(c.inputs))))


def _mean(c: Call) -> Value:
    return c.e.mul(_variadic("Add", c), 1 / len(c.inputs))


def _div(c: Call) -> Value:
    """Of integers: towards zero."""
    return c.e.apply("Div" if c.type(0).dtype.is_float else "TruncateDiv", c.value(0), c.value(1))


def _pow(c: Call) -> Value:
    """With a constant exponent of 2 or 1/2 by primitives of their own, whose derivative is defined everywhere."""
    x = c.value(0)
    if c.is_constant(1) and c.array(1).size == 1 and len(c.shape(1)) <= c.rank():
        exponent = float(c.array(1).reshape(()))
        if exponent == 0.5 or (exponent == 2 and dtype_of(x).is_float):
            return c.e.apply("Square" if exponent == 2 else "Sqrt", x)
    return c.e.apply("Pow", x, c.e.cast(c.value(1), dtype_of(x)))


def _mod(c: Call) -> Value:
    """The sign of the divisor, or with fmod that of the dividend."""
    return c.e.apply("TruncateMod" if c.attribute("fmod") else "FloorMod", c.value(0), c.value(1))


def _is_inf(c: Call) -> Value:
    infinite = c.e.apply("IsInf", c.value(0), dtype=DType.BOOL)
    positive, negative = c.attribute("detect_positive"), c.attribute("detect_negative")
    if positive and negative:
        return infinite
    if not positive and not negative:
        raise Unsupported("it detects neither infinity")
    return c.e.apply("LogicalAnd", infinite, c.e.compare("Greater" if positive else "Less", c.value(0), 0.0))


def _equal(c: Call) -> Value:
    """Of booleans too, which MindSpore has no such kernel for."""
    if c.type(0).dtype is DType.BOOL:
        return c.e.apply("LogicalNot", c.e.apply("LogicalXor", c.value(0), c.value(1)))
    return c.e.compare("Equal", c.value(0), c.value(1))


def _two_slopes(c: Call, slope: Value | float) -> Value:
    e, x = c.e, c.value(0)
    return e.add(e.apply("Maximum", x, 0.0), e.mul(e.apply("Minimum", x, 0.0), slope))


def _exponential(c: Call) -> Value:
    """gamma x where x is positive, else gamma alpha (exp(x / beta) - 1); the exponential never sees what is large."""
    e, x, alpha = c.e, c.value(0), c.attribute("alpha")
    below = e.apply("Minimum", x, 0.0)
    below = e.apply("Expm1", e.mul(below, 1 / alpha) if c.node.op_type == "Celu" else below)
    found = e.add(e.apply("ReLU", x), below if alpha == 1 else e.mul(below, alpha))
    return e.mul(found, c.attribute("gamma")) if c.node.op_type == "Selu" else found


def _clip(c: Call) -> Value:
    x = c.value(0)
    for i, primitive in ((1, "Maximum"), (2, "Minimum")):
        x = c.e.apply(primitive, x, c.value(i)) if c.has(i) else x
    return x


def _gelu(c: Call) -> Value:
    e, x = c.e, c.value(0)
    if c.attribute("approximate") == "tanh":
        return e.apply("GeLU", x)
    return e.mul(e.mul(x, e.add(e.apply("Erf", e.apply("Div", x, math.sqrt(2))), 1.0)), 0.5)


def _reduce(name: str, c: Call) -> Value:
    if c.type(0).dtype is DType.BOOL:
        name = {"ReduceMax": "ReduceAny", "ReduceMin": "ReduceAll"}[name]
    axes = c.axes(1) if c.has(1) else []
    if not axes and c.attribute("noop_with_empty_axes"):
        return c.value(0)
    return c.e.reduce(name, c.value(0), axes or range(c.rank()), bool(c.attribute("keepdims")))


def _log_sum_exp(c: Call) -> Value:
    """With the largest element taken out of the exponentials."""
    e, x, axes = c.e, c.value(0), c.axes(1) or list(range(c.rank()))
    largest = e.reduce("ReduceMax", x, axes, True)
    total = e.reduce("ReduceSum", e.apply("Exp", e.apply("Sub", x, largest)), axes, True)
    return e.reshape(e.add(e.apply("Log", total), largest), c.result)


def _matmul(e: Emitter, a: Value, b: Value) -> Value:
    """numpy's product: vectors count as rows and columns, stacks broadcast."""
    first, second = shape_of(a), shape_of(b)
    if not first or not second:
        raise FormatError("MatMul of a scalar")
    if len(first) == 1:
        x = _matmul(e, e.reshape(a, (1, *first)), b)
        return e.reshape(x, (*shape_of(x)[:-2], *((shape_of(x)[-1],) if len(second) > 1 else ())))
    if len(second) == 1:
        x = _matmul(e, a, e.reshape(b, (*second, 1)))
        return e.reshape(x, shape_of(x)[:-1])
    if len(second) == 2:  # the rows of all matrices, as one matrix
        rows = e.reshape(a, (math.prod(first[:-1]), first[-1]))
        return e.reshape(e.matmul(rows, b), (*first[:-1], second[1]))
    stack = broadcast(first[:-2], second[:-2])
    return e.matmul(e.expand(a, (*stack, *first[-2:])), e.expand(b, (*stack, *second[-2:])))


def _gemm(c: Call) -> Value:
    """As a Dense layer where it is one."""
    e, alpha, beta = c.e, c.attribute("alpha"), c.attribute("beta")
    x = e.matmul(c.value(0), c.value(1, True), bool(c.attribute("transA")), bool(c.attribute("transB")))
    x = x if alpha == 1 else e.mul(x, alpha)
    bias = c.optional(2)
    if bias is None:
        return x
    bias = bias if beta == 1 else e.mul(bias, beta)
    return e.bias(x, bias) if shape_of(bias) == shape_of(x)[1:] else e.add(x, bias)


def _einsum(c: Call) -> Value:
    """Operand after operand, each as a product of stacks of matrices with what the earlier ones gave."""
    e, equation = c.e, c.attribute("equation").replace(" ", "")
    left, arrow, output = equation.partition("->")
    terms = left.split(",")
    if len(terms) != len(c.inputs):
        raise FormatError(f"Einsum '{equation}' with {counted(len(c.inputs), 'input')}")
    named = [_spelled(term, len(c.shape(i))) for i, term in enumerate(terms)]
    dots = max(("".join(filter(str.isdigit, term)) for term in named), key=len)
    letters = [x for term in named for x in term if not x.isdigit()]
    once = "".join(sorted(x for x in set(letters) if letters.count(x) == 1))
    wanted = output.replace("...", dots) if arrow else dots + once
    if any(len(set(term)) != len(term) for term in named):
        raise Unsupported(f"the equation '{equation}' takes a diagonal")
    x, axes = c.value(0), named[0]
    for i in range(1, len(named)):
        x, axes = _pair(e, x, axes, c.value(i), named[i], set(wanted).union(*named[i + 1 :]))
    x, axes = _summed(e, x, axes, wanted)
    return e.transpose(x, [axes.index(a) for a in wanted])


def _spelled(term: str, rank: int) -> str:
    """A letter for each axis; those under an ellipsis are digits, counted so that the last is 9."""
    hidden = rank - len(term.replace("...", ""))
    return term.replace("...", "0123456789"[10 - hidden :])


def _summed(e: Emitter, x: Value, axes: str, kept: str) -> tuple[Value, str]:
    x = e.reduce("ReduceSum", x, [i for i, a in enumerate(axes) if a not in kept], False)
    return x, "".join(a for a in axes if a in kept)


def _pair(e: Emitter, a: Value, left: str, b: Value, right: str, needed: set[str]) -> tuple[Value, str]:
    """Two operands as one product of stacks of matrices: axes of both that stay, of one that stay, of both that go."""
    stays = "".join(needed)
    (a, left), (b, right) = _summed(e, a, left, stays + right), _summed(e, b, right, stays + left)
    size = dict(zip(right, shape_of(b), strict=True))
    for x, d in zip(left, shape_of(a), strict=True):
        size[x] = max(size.get(x, 1), d)
    stack = "".join(x for x in left if x in right and x in needed)
    inner = "".join(x for x in left if x in right and x not in needed)
    rows, columns = ("".join(x for x in one if x not in other) for one, other in ((left, right), (right, left)))

    def arranged(value: Value, axes: str, *groups: str) -> Value:
        order = "".join(groups)
        value = e.transpose(value, [axes.index(x) for x in order])
        value = e.expand(value, [size[x] for x in order])
        return e.reshape(value, [math.prod(size[x] for x in group) for group in groups])

    product = e.matmul(arranged(a, left, stack, rows, inner), arranged(b, right, stack, inner, columns))
    axes = stack + rows + columns
    return e.reshape(product, [size[x] for x in axes]), axes


def _dropout(c: Call) -> list[object]:
    """The input itself, unless the model says that it is in training."""
    e, x = c.e, c.item(0)
    ratio = float(c.array(1).reshape(())) if c.has(1) else 0.5
    if not (c.has(2) and bool(c.array(2).reshape(()))) or ratio == 0:
        return [x, np.ones(c.shape(), bool) if c.wants(1) else None]
    value = c.value(0)
    kept, mask = e.several("Dropout", [value, 1 - ratio, 0, 0], [plain(value)] * 2, {"side_effect_hidden": True})
    return [kept, e.compare("NotEqual", mask, 0.0) if c.wants(1) else None]


RULES: dict[str, Rule] = {
    **{name: partial(_variadic, p) for name, p in (("Max", "Maximum"), ("Min", "Minimum"), ("Sum", "Add"))},
    "Mean": _mean,
    "Div": _div,
    "Pow": _pow,
    "Mod": _mod,
    "IsInf": _is_inf,
    "Equal": _equal,
    "Where": lambda c: c.e.select(c.value(0), c.value(1), c.value(2)),
    "LeakyRelu": lambda c: _two_slopes(c, c.attribute("alpha")),
    "PRelu": lambda c: _two_slopes(c, c.value(1, True)),
    **dict.fromkeys(("Elu", "Selu", "Celu"), _exponential),
    "Clip": _clip,
    "Gelu": _gelu,
    "Dropout": _dropout,
    **{name: partial(_reduce, name) for name in ("ReduceSum", "ReduceMean", "ReduceProd", "ReduceMax", "ReduceMin")},
    "ReduceLogSumExp": _log_sum_exp,
    "MatMul": lambda c: _matmul(c.e, c.value(0), c.value(1)),
    "Gemm": _gemm,
    "Einsum": _einsum,
}
