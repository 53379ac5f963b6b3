"""Products of matrices."""

from __future__ import annotations

import math

from ....core.errors import FormatError
from ....core.graph import Value
from ....core.inference import broadcast
from ....core.wording import counted
from ..vocabulary import Unsupported, shape_of
from .call import Call, Rule
from .emitter import Emitter


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
    e = c.emitter
    alpha, beta = c.attribute("alpha", 1.0), c.attribute("beta", 1.0)
    x = e.matmul(c.value(0), c.parameter(1), bool(c.attribute("transA", 0)), bool(c.attribute("transB", 0)))
    if alpha != 1:
        x = e.mul(x, e.scalar(x, alpha))
    if not c.has(2):
        return x
    bias = c.parameter(2)
    if beta != 1:
        bias = e.mul(bias, e.scalar(bias, beta))
    if shape_of(bias) == shape_of(x)[1:]:
        return e.emit("BiasAdd", [x, bias, 0], shape_of(x))
    return e.add(x, bias)


def _einsum(c: Call) -> Value:
    equation = c.attribute("equation").replace(" ", "")
    left, arrow, output = equation.partition("->")
    terms = left.split(",")
    if len(terms) != len(c.inputs):
        raise FormatError(f"Einsum '{equation}' with {counted(len(c.inputs), 'input')}")
    named = [_spelled(term, c.rank(i)) for i, term in enumerate(terms)]
    widest = max(named, key=lambda t: sum(x.isdigit() for x in t))
    dots = [x for x in widest if x.isdigit()]
    if arrow:
        wanted = list(output.replace("...", "".join(dots)))
    else:
        letters = [x for t in named for x in t if not x.isdigit()]
        wanted = dots + sorted(x for x in set(letters) if letters.count(x) == 1)
    if any(len(set(t)) != len(t) for t in named):
        raise Unsupported(f"the equation '{equation}' takes a diagonal")
    e = c.emitter
    x, axes = c.value(0), named[0]
    for i in range(1, len(named)):
        needed = set(wanted).union(*named[i + 1 :])
        x, axes = _pair(e, x, axes, c.value(i), named[i], needed)
    summed = [i for i, a in enumerate(axes) if a not in wanted]
    x = e.reduce("ReduceSum", x, summed, False)
    axes = [a for a in axes if a in wanted]
    return e.transpose(x, [axes.index(a) for a in wanted])


def _spelled(term: str, rank: int) -> list[str]:
    """A name for each axis; those under an ellipsis are digits, counted so that the last is 9."""
    if "..." not in term:
        return list(term)
    before, _, after = term.partition("...")
    hidden = rank - len(before) - len(after)
    return [*before, *(str(10 - hidden + i) for i in range(hidden)), *after]


def _pair(
    e: Emitter, a: Value, left: list[str], b: Value, right: list[str], needed: set[str]
) -> tuple[Value, list[str]]:
    """Two operands as one product of stacks of matrices: axes of both that stay, of one that stay, of both that go."""
    a = e.reduce("ReduceSum", a, [i for i, x in enumerate(left) if x not in needed and x not in right], False)
    left = [x for x in left if x in needed or x in right]
    b = e.reduce("ReduceSum", b, [i for i, x in enumerate(right) if x not in needed and x not in left], False)
    right = [x for x in right if x in needed or x in left]
    stack = [x for x in left if x in right and x in needed]
    inner = [x for x in left if x in right and x not in needed]
    rows, columns = [x for x in left if x not in right], [x for x in right if x not in left]
    size = dict(zip(right, shape_of(b), strict=True))
    for x, d in zip(left, shape_of(a), strict=True):
        size[x] = max(size.get(x, 1), d)
    a = _arranged(e, a, left, [stack, rows, inner], size)
    b = _arranged(e, b, right, [stack, inner, columns], size)
    product = e.matmul(a, b)
    axes = stack + rows + columns
    return e.reshape(product, [size[axis] for axis in axes]), axes


def _arranged(e: Emitter, x: Value, axes: list[str], groups: list[list[str]], size: dict[str, int]) -> Value:
    order = [a for group in groups for a in group]
    x = e.transpose(x, [axes.index(a) for a in order])
    x = e.expand(x, [size[a] for a in order])
    return e.reshape(x, [math.prod(size[a] for a in group) for group in groups])


RULES: dict[str, Rule] = {
    "MatMul": lambda c: _matmul(c.emitter, c.value(0), c.value(1)),
    "Gemm": _gemm,
    "Einsum": _einsum,
}
