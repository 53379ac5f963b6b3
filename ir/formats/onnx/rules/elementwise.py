"""Element by element: arithmetic, comparison, activations, other element types."""

from __future__ import annotations

import math
from functools import partial, reduce
from typing import Any

import numpy as np

from ....core.graph import Node, Value
from ....core.primitives.calls import CODES
from ....core.types import DType
from ....core.wording import counted
from ..call import Call
from ..emitter import plain_type
from ..operators import ELEMENT_TYPES, Entry, Unsupported, dtype_of
from ..writing import ELEMENT, Names, Writing, plain

# -- operators that are one primitive ----------------------------------------------------------------------------------


def row(operator: str, primitive: str = "", operands: tuple[Any, ...] = (0,), **fixed: Any) -> Entry:
    """``operands``: what the primitive takes, in its order. A number is an input of the operator, a name an attribute;
    ``#1`` is input 1 as an integer, ``@1`` one that is written as int64, ``?name`` an attribute as a truth value,
    ``(name,)`` a tuple of one attribute, ``=0`` what must be 0 to be written. ``fixed``: attributes that the operator
    has when it is written."""
    primitive = primitive or operator
    read = partial(_read_row, primitive, operands)
    return Entry(operator, primitive, None if fixed else read, partial(_write_row, operator, operands, fixed))


def _read_row(primitive: str, operands: tuple[Any, ...], c: Call) -> Value:
    values: list[Any] = []
    for spec in operands:
        if isinstance(spec, int):
            values.append(c.value(spec))
        elif isinstance(spec, tuple):
            values.append(tuple(c.attribute(name) for name in spec))
        elif spec[0] == "#":
            values.append(c.ints(int(spec[1:]))[0])
        else:
            values.append(bool(c.attribute(spec[1:])) if spec[0] == "?" else c.attribute(spec))
    if not c.types or c.types[0] is None:
        raise Unsupported("the type of its result is not known")
    return c.e.emit(primitive, values, c.types[0])


def _write_row(operator: str, operands: tuple[Any, ...], fixed: dict[str, Any], w: Writing, node: Node) -> Names:
    inputs: dict[int, str] = {}
    attributes: dict[str, Any] = dict(fixed)
    for i, spec in enumerate(operands):
        if isinstance(spec, int):
            inputs[spec] = w.name(node.operand(i))
            continue
        if spec[0] == "@":
            inputs[int(spec[1:])] = w.add("Cast", [w.name(node.operand(i))], to=ELEMENT[DType.INT64])
            continue
        value = plain(node, i)
        if spec == "=0":
            if value:
                raise Unsupported(f"its operand {i} is {value}")
            continue
        if isinstance(spec, tuple) and isinstance(value, (tuple, list)):
            if len(value) != 1:
                raise Unsupported(f"it runs along {counted(len(value), 'axis')} at once")
            (value,) = value
        name = spec[0] if isinstance(spec, tuple) else spec.lstrip("?")
        if name[0] == "#":
            inputs[int(name[1:])] = w.ints([int(value)])
        elif value is not None:
            attributes[name] = value if isinstance(value, float) else int(value)
    return w.add(operator, [inputs[i] for i in sorted(inputs)], **attributes)


# -- reading -----------------------------------------------------------------------------------------------------------


def _variadic(name: str, c: Call) -> Value:
    return reduce(partial(c.e.apply, name), (c.value(i) for i in range(len(c.inputs))))


def _read_pow(c: Call) -> Value:
    """With a constant exponent of 2 or 1/2 by primitives of their own, whose derivative is defined everywhere."""
    x = c.value(0)
    if c.is_constant(1) and c.array(1).size == 1 and len(c.shape(1)) <= c.rank():
        exponent = float(c.array(1).reshape(()))
        if exponent == 0.5 or (exponent == 2 and dtype_of(x).is_float):
            return c.e.apply("Square" if exponent == 2 else "Sqrt", x)
    return c.e.apply("Pow", x, c.e.cast(c.value(1), dtype_of(x)))


def _read_is_inf(c: Call) -> Value:
    infinite = c.e.apply("IsInf", c.value(0))
    positive, negative = c.attribute("detect_positive"), c.attribute("detect_negative")
    if not positive and not negative:
        raise Unsupported("it detects neither infinity")
    if positive and negative:
        return infinite
    return c.e.apply("LogicalAnd", infinite, c.e.apply("Greater" if positive else "Less", c.value(0), 0.0))


def _read_equal(c: Call) -> Value:
    """Of booleans too, which MindSpore has no such kernel for."""
    if c.type(0).dtype is DType.BOOL:
        return c.e.apply("LogicalNot", c.e.apply("LogicalXor", c.value(0), c.value(1)))
    return c.e.apply("Equal", c.value(0), c.value(1))


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


def _read_clip(c: Call) -> Value:
    x = c.e.apply("Maximum", c.value(0), c.value(1)) if c.has(1) else c.value(0)
    return c.e.apply("Minimum", x, c.value(2)) if c.has(2) else x


def _read_gelu(c: Call) -> Value:
    e, x = c.e, c.value(0)
    if c.attribute("approximate") == "tanh":
        return e.apply("GeLU", x)
    return e.mul(e.mul(x, e.add(e.apply("Erf", e.apply("Div", x, math.sqrt(2))), 1.0)), 0.5)


def _read_cast(c: Call) -> Value:
    to = c.attribute("to")
    if to not in ELEMENT_TYPES:
        raise Unsupported(f"it casts to ONNX element type {to}, which MindSpore lacks")
    return c.e.cast(c.value(0), ELEMENT_TYPES[to])


def _read_dropout(c: Call) -> list[object]:
    """The input itself, unless the model says that it is in training."""
    ratio = float(c.array(1).reshape(())) if c.has(1) else 0.5
    if not (c.has(2) and bool(c.array(2).reshape(()))) or ratio == 0:
        return [c.item(0), np.ones(c.shape(), bool) if c.wants(1) else None]
    x = c.value(0)
    kept, mask = c.e.several("Dropout", [x, 1 - ratio, 0, 0], [plain_type(x)] * 2)
    return [kept, c.e.apply("NotEqual", mask, 0.0) if c.wants(1) else None]


# -- writing -----------------------------------------------------------------------------------------------------------

_DOWN = ("Floor", ("Div", 0, 1))
_FRACTION = (("Div", 0, 1), "a division of integers that gives a fraction")
_CUBIC = ("Add", ("Mul", ("Mul", 0, ("Mul", 0, 0)), 0.044715), 0)
_COMPOSED: dict[str, Any] = {
    "NotEqual": ("Not", ("Equal", 0, 1)),
    "Square": ("Mul", 0, 0),
    "Rsqrt": ("Reciprocal", ("Sqrt", 0)),
    "Expm1": ("Sub", ("Exp", 0), 1.0),
    "Log1p": ("Log", ("Add", 0, 1.0)),
    "ReLU6": ("Clip", 0, 0.0, 6.0),
    "SiLU": ("Mul", 0, ("Sigmoid", 0)),
    "FastGeLU": ("Mul", 0, ("Sigmoid", ("Mul", 0, 1.702))),
    "GeLU": ("Mul", ("Mul", 0, ("Add", ("Tanh", ("Mul", _CUBIC, math.sqrt(2 / math.pi))), 1.0)), 0.5),
    "AddExt": ("Add", 0, ("Mul", 1, "2")),
    "SubExt": ("Sub", 0, ("Mul", 1, "2")),
    "Muls": ("Mul", 0, "1"),
    "Adds": ("Add", 0, "1"),
    "Subs": ("Sub", 0, "1"),
    "Divs": ("Div", 0, "1"),
}
_BY_TYPE: dict[str, tuple[Any, Any]] = {
    "Div": _FRACTION,
    "RealDiv": _FRACTION,
    "TruncateDiv": ("a division of fractions towards zero", ("Div", 0, 1)),
    "FloorDiv": (_DOWN, "a division of integers that rounds down"),
    "FloorMod": (("Sub", 0, ("Mul", _DOWN, 1)), ("Mod", 0, 1)),
}
"""Of fractions, and of integers: operators, or why there are none."""


def _composed(tree: Any, w: Writing, node: Node) -> str:
    """Operators of operators: an integer is an operand of the primitive, a float a number, a digit the number that an
    operand is."""
    if isinstance(tree, int):
        return w.name(node.operand(tree))
    if isinstance(tree, (float, str)):
        return w.scalar(node, tree if isinstance(tree, float) else plain(node, int(tree)))
    operator, *inputs = tree
    if operator == "Mul" and isinstance(inputs[1], str) and plain(node, int(inputs[1]), 1) == 1:
        return _composed(inputs[0], w, node)
    return w.add(operator, [_composed(part, w, node) for part in inputs])


def _by_type(cases: tuple[Any, Any], w: Writing, node: Node) -> Names:
    tree = cases[0 if dtype_of(node).is_float else 1]
    if isinstance(tree, str):
        raise Unsupported(tree)
    return _composed(tree, w, node)


def _write_clamp(w: Writing, node: Node) -> Names:
    x = w.name(node.operand(0))
    for i, op in ((1, "Max"), (2, "Min")):
        limit = plain(node, i)
        x = x if limit is None else w.add(op, [x, w.scalar(node, limit)])
    return x


def _write_l2_normalize(w: Writing, node: Node) -> Names:
    """x over the root of the sum of its squares, which is at least epsilon."""
    (x,), axis = w.inputs(node, 1), node.attributes.get("axis", 0)
    axes = [int(a) for a in axis] if isinstance(axis, (tuple, list)) else [int(axis)]
    squares = w.add("ReduceSumSquare", [x, w.ints(axes)], keepdims=1)
    least = w.scalar(node, float(node.attributes.get("epsilon", 1e-4)))
    return w.add("Div", [x, w.add("Sqrt", [w.add("Max", [squares, least])])])


def _write_cast(w: Writing, node: Node) -> Names:
    dtype = {code: dtype for dtype, code in CODES.items()}.get(plain(node, 1), dtype_of(node))
    if dtype not in ELEMENT:
        raise Unsupported(f"a cast to {dtype}")
    return w.add("Cast", w.inputs(node, 1), to=ELEMENT[dtype])


def _write_in_place(w: Writing, node: Node) -> Names:
    """Written over its first operand, which nobody else may read then."""
    others = [u for u in node.operand(0).users if u is not node and u.op.name not in ("UpdateState", "MakeTuple")]
    if others:
        raise Unsupported(f"%{node.operand(0).name}, which it writes over, is read by %{others[0].name} too")
    return _composed(_COMPOSED["AddExt"], w, node)


_SAME = (
    *("Neg", "Abs", "Exp", "Sqrt", "Reciprocal", "Floor", "Ceil", "Sign", "Sin", "Cos", "Asin", "Atan", "Sinh", "Cosh"),
    *("Tanh", "Asinh", "Acosh", "Atanh", "Erf", "Sigmoid", "Tan", "Log", "Softplus", "Softsign", "Mish"),
)
_BOTH = (0, 1)
TABLE = (
    *map(row, _SAME),
    *(row(name, name, _BOTH) for name in ("Add", "Sub", "Mul", "Less", "Greater")),
    *(row(name, name, _BOTH) for name in ("BitwiseAnd", "BitwiseOr", "BitwiseXor")),
    row("Acos", "ACos"),
    row("Relu", "ReLU"),
    row("Not", "LogicalNot"),
    row("Round", "Rint"),
    row("BitwiseNot", "Invert"),
    row("IsNaN", "IsNan"),
    row("LessOrEqual", "LessEqual", _BOTH),
    row("GreaterOrEqual", "GreaterEqual", _BOTH),
    row("LogSoftmax", "LogSoftmax", (0, "axis")),
    row("Softmax", "Softmax", (0, ("axis",))),
    row("CumSum", "CumSum", (0, "#1", "?exclusive", "?reverse")),
    Entry("Equal", "Equal", _read_equal, row("Equal", "", _BOTH).write),
    Entry("IsInf", "IsInf", _read_is_inf, row("IsInf").write),
    Entry("Max", "Maximum", partial(_variadic, "Maximum"), row("Max", "", _BOTH).write),
    Entry("Min", "Minimum", partial(_variadic, "Minimum"), row("Min", "", _BOTH).write),
    Entry("Sum", "AddN", partial(_variadic, "Add"), lambda w, node: w.add("Sum", w.elements(node.operand(0)))),
    Entry("Mean", read=lambda c: c.e.mul(_variadic("Add", c), 1 / len(c.inputs))),
    Entry("Pow", "Pow", _read_pow, row("Pow", "", _BOTH).write),
    # The sign of the divisor, or with fmod that of the dividend.
    Entry("Mod", "Mod", lambda c: c.e.apply("TruncateMod" if c.attribute("fmod") else "FloorMod", *c.values(2)),
          row("Mod", "", _BOTH, fmod=1).write),
    row("Mod", "TruncateMod", _BOTH, fmod=1),
    # Of integers: towards zero.
    Entry("Div", read=lambda c: c.e.apply("Div" if c.type(0).dtype.is_float else "TruncateDiv", *c.values(2))),
    *(Entry("", name, None, partial(_by_type, cases)) for name, cases in _BY_TYPE.items()),
    *(Entry("", name, None, partial(_composed, tree)) for name, tree in _COMPOSED.items()),
    Entry("Where", "Select", lambda c: c.e.select(*c.values(3)), row("Where", "", (0, 1, 2)).write),
    *(row(name, f"Logical{name}", _BOTH) for name in ("And", "Or", "Xor")),
    Entry("LeakyRelu", read=lambda c: _two_slopes(c, c.attribute("alpha"))),
    Entry("PRelu", "PReLU", lambda c: _two_slopes(c, c.value(1, True)),
          lambda w, node: w.add("PRelu", [w.name(node.operand(0)), w.channels(node, 1)])),
    Entry("Elu", "Elu", _exponential, row("Elu", "", (0, "alpha")).write),
    Entry("Selu", "SeLU", _exponential, row("Selu").write),
    Entry("Celu", read=_exponential),
    row("HardSwish", "HSwish"),
    row("HardSigmoid", "HSigmoid", alpha=1 / 6, beta=0.5),
    Entry("Clip", "ClampScalar", _read_clip, _write_clamp),
    Entry("Gelu", read=_read_gelu),
    Entry("", "L2Normalize", None, _write_l2_normalize),
    Entry("Cast", "Cast", _read_cast, _write_cast),
    Entry("CastLike", read=lambda c: c.e.cast(c.value(0), c.type(1).dtype)),
    Entry("", "InplaceAddExt", None, _write_in_place),
    Entry("Identity", "Identity", lambda c: c.item(0), lambda w, node: w.names(node.operand(0))),
    *(Entry("", name, None, lambda w, node: w.names(node.operand(0)))
      for name in ("TensorMove", "StopGradient", "Depend", "Load")),
    # Without effect outside of training.
    Entry("Dropout", "Dropout", _read_dropout, lambda w, node: (w.name(node.operand(0)), None)),
)  # fmt: skip
