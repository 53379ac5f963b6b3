"""Products of matrices, and sums along axes."""

from __future__ import annotations

import math
from functools import partial

from ....core.errors import FormatError
from ....core.graph import Constant, Node, Value
from ....core.inference import broadcast
from ....core.types import DType, TensorType
from ....core.wording import counted
from ..call import Call
from ..emitter import Emitter
from ..operators import Entry, Unsupported, dtype_of, shape_of
from ..writing import Names, Writing, plain

# -- products ----------------------------------------------------------------------------------------------------------


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


def _read_gemm(c: Call) -> Value:
    """As a Dense layer where it is one."""
    e, alpha, beta = c.e, c.attribute("alpha"), c.attribute("beta")
    x = e.matmul(c.value(0), c.value(1, True), bool(c.attribute("transA")), bool(c.attribute("transB")))
    x = x if alpha == 1 else e.mul(x, alpha)
    bias = c.optional(2)
    if bias is None:
        return x
    bias = bias if beta == 1 else e.mul(bias, beta)
    return e.bias(x, bias) if shape_of(bias) == shape_of(x)[1:] else e.add(x, bias)


def _read_einsum(c: Call) -> Value:
    """Operand after operand, each as a product of stacks of matrices with what the earlier ones gave."""
    e, equation = c.e, c.attribute("equation").replace(" ", "")
    left, arrow, output = equation.partition("->")
    terms = left.split(",")
    if len(terms) != len(c.inputs):
        raise FormatError(f"Einsum '{equation}' with {counted(len(c.inputs), 'input')}")
    # A letter for each axis; those under an ellipsis are digits, counted so that the last is 9.
    hidden = [len(c.shape(i)) - len(term.replace("...", "")) for i, term in enumerate(terms)]
    named = [term.replace("...", "0123456789"[10 - n :]) for n, term in zip(hidden, terms, strict=True)]
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


def _write_matmul(w: Writing, node: Node) -> Names:
    names = []
    for i in (0, 1):
        names.append(w.name(node.operand(i)))
        if plain(node, i + 2, False):
            rank = len(shape_of(node.operand(i)))
            names[i] = w.add("Transpose", [names[i]], perm=[*range(rank - 2), rank - 1, rank - 2])
    return w.add("MatMul", names)


def _write_dense(w: Writing, node: Node) -> Names:
    """x times the transposed weight, and a bias where there is one."""
    weight = w.add("Transpose", [w.name(node.operand(1))], perm=[1, 0])
    product = w.add("MatMul", [w.name(node.operand(0)), weight])
    bias = node.operand(2) if node.num_operands > 2 else None
    if bias is None or (isinstance(bias, Constant) and bias.value is None):
        return product
    return w.add("Add", [product, w.name(bias)])


# -- reductions --------------------------------------------------------------------------------------------------------


def _read_reduce(name: str, c: Call) -> Value:
    if c.type(0).dtype is DType.BOOL:
        name = {"ReduceMax": "ReduceAny", "ReduceMin": "ReduceAll"}[name]
    if c.attribute("noop_with_empty_axes") and not c.ints(1):
        return c.value(0)
    return c.e.reduce(name, c.value(0), c.axes(1), bool(c.attribute("keepdims")))


def _read_log_sum_exp(c: Call) -> Value:
    """With the largest element taken out of the exponentials."""
    e, x, axes = c.e, c.value(0), c.axes(1)
    largest = e.reduce("ReduceMax", x, axes, True)
    total = e.reduce("ReduceSum", e.apply("Exp", e.apply("Sub", x, largest)), axes, True)
    return e.reshape(e.add(e.apply("Log", total), largest), c.result)


def _read_arg(name: str, c: Call) -> Value:
    e, x, axis = c.e, c.value(0), c.axis()
    last = c.attribute("select_last_index")
    x = e.reverse(x, axis) if last else x
    shape = tuple(d for i, d in enumerate(shape_of(x)) if i != axis)
    found = e.cast(e.emit(name, [x, axis, 34], TensorType(DType.INT32, shape)), DType.INT64)
    found = e.apply("Sub", e.scalar(found, c.shape()[axis] - 1), found) if last else found
    return e.reshape(found, c.result)


def _write_reduce(op: str, w: Writing, node: Node) -> Names:
    """(x, axes, keep, and of ReduceSum whether no axes mean none; the others take an element type)"""
    (x,), given, rank = w.inputs(node, 1), plain(node, 1, ()), len(shape_of(node.operand(0)))
    if node.op.name.endswith("Ext") and plain(node, 3) is not None:
        raise Unsupported("another element type for the result")
    axes = (given,) if isinstance(given, int) else given or ()
    if (not axes and plain(node, 3)) or (op != "ReduceSum" and not rank):
        return x
    numbers = w.ints(sorted(int(a) % rank for a in axes) if rank and axes else range(rank))
    keep = int(bool(plain(node, 2, False)))
    if dtype_of(node) is not DType.BOOL:
        return w.add(op, [x, numbers], keepdims=keep)
    # Truth values as numbers: the least of them, or the largest.
    return w.add("Cast", [w.add(op, [w.add("Cast", [x], to=6), numbers], keepdims=keep)], to=9)


def _write_arg(op: str, w: Writing, node: Node) -> Names:
    found = w.add(op, w.inputs(node, 1), axis=int(plain(node, 1, -1)), keepdims=0)
    return found if dtype_of(node) is DType.INT64 else w.add("Cast", [found], to=6)


def _write_extreme(op: str, arg: str, w: Writing, node: Node) -> Names:
    """The place of the extreme, and its value."""
    axis, keep = int(plain(node, 1, 0)), int(bool(plain(node, 2, False)))
    x = w.name(node.operand(0))
    return (w.add(arg, [x], axis=axis, keepdims=keep), w.add(op, [x, w.ints([axis])], keepdims=keep))


TABLE = (
    Entry("MatMul", "MatMul", lambda c: _matmul(c.e, *c.values(2)), _write_matmul),
    *(Entry("", name, None, _write_matmul) for name in ("BatchMatMul", "MatMulExt")),
    Entry("Gemm", "Dense", _read_gemm, _write_dense),
    Entry("Einsum", read=_read_einsum),
    Entry("", "BiasAdd", None, lambda w, node: w.add("Add", [w.name(node.operand(0)), w.channels(node, 1)])),
    *(Entry(name, name, partial(_read_reduce, name), partial(_write_reduce, name))
      for name in ("ReduceSum", "ReduceMean", "ReduceMax", "ReduceMin", "ReduceProd")),
    Entry("ReduceLogSumExp", read=_read_log_sum_exp),
    Entry("GlobalAveragePool", read=lambda c: c.e.reduce("ReduceMean", c.value(0), range(2, c.rank()), True)),
    Entry("GlobalMaxPool", read=lambda c: c.e.reduce("ReduceMax", c.value(0), range(2, c.rank()), True)),
    *(Entry("", f"{name}Ext", None, partial(_write_reduce, f"Reduce{name}")) for name in ("Sum", "Mean")),
    Entry("", "ReduceAll", None, partial(_write_reduce, "ReduceMin")),
    Entry("", "ReduceAny", None, partial(_write_reduce, "ReduceMax")),
    Entry("ArgMax", "Argmax", partial(_read_arg, "Argmax"), partial(_write_arg, "ArgMax")),
    Entry("ArgMin", "Argmin", partial(_read_arg, "Argmin"), partial(_write_arg, "ArgMin")),
    Entry("", "ArgMaxWithValue", None, partial(_write_extreme, "ReduceMax", "ArgMax")),
    Entry("", "ArgMinWithValue", None, partial(_write_extreme, "ReduceMin", "ArgMin")),
)  # fmt: skip
