"""Arithmetic, comparison, activations: element by element."""

from __future__ import annotations

import math
from functools import partial

from ....core.graph import Node
from ....core.primitives.calls import CODES
from ....core.types import DType
from ....core.wording import counted
from ..vocabulary import BITWISE, COMPARISONS, UNARY, Unsupported, dtype_of, shape_of
from .writing import ELEMENT, Names, Rule, Writing, plain

_BY_CODE = {code: dtype for dtype, code in CODES.items()}


def _same(op: str, count: int, w: Writing, node: Node, **attributes: float) -> Names:
    return w.add(op, w.inputs(node, count), **attributes)


def _identity(w: Writing, node: Node) -> Names:
    return w.names(node.operand(0))


def _chain(inner: str, outer: str, count: int, w: Writing, node: Node) -> Names:
    """One operator of another's result."""
    return w.add(outer, [w.add(inner, w.inputs(node, count))])


def _div_of(floats: bool, otherwise: str, w: Writing, node: Node) -> Names:
    """ONNX's Div gives a fraction of floats, and rounds towards zero with integers."""
    if dtype_of(node).is_float is not floats:
        raise Unsupported(f"a division of {otherwise}")
    return w.add("Div", w.inputs(node, 2))


def _floor_div(w: Writing, node: Node) -> Names:
    if not dtype_of(node).is_float:
        raise Unsupported("a division of integers that rounds down")
    return w.add("Floor", [w.add("Div", w.inputs(node, 2))])


def _floor_mod(w: Writing, node: Node) -> Names:
    a, b = w.inputs(node, 2)
    if not dtype_of(node).is_float:
        return w.add("Mod", [a, b])
    return w.add("Sub", [a, w.add("Mul", [w.add("Floor", [w.add("Div", [a, b])]), b])])


def _square(w: Writing, node: Node) -> Names:
    (x,) = w.inputs(node, 1)
    return w.add("Mul", [x, x])


def _clamp(w: Writing, node: Node) -> Names:
    x = w.name(node.operand(0))
    for i, op in ((1, "Max"), (2, "Min")):
        if i < node.num_operands and plain(node, i) is not None:
            x = w.add(op, [x, w.scalar(node, plain(node, i))])
    return x


def _elu(w: Writing, node: Node) -> Names:
    return w.add("Elu", w.inputs(node, 1), alpha=float(plain(node, 1, 1.0)))


def _prelu(w: Writing, node: Node) -> Names:
    x, slope = node.operands[:2]
    channels = [shape_of(slope)[0], *[1] * (len(shape_of(x)) - 2)]
    return w.add("PRelu", [w.name(x), w.add("Reshape", [w.name(slope), w.ints(channels)])])


def _gelu(w: Writing, node: Node) -> Names:
    """0.5 x (1 + tanh(sqrt(2 / pi) (x + 0.044715 x³)))"""
    (x,) = w.inputs(node, 1)
    cube = w.add("Mul", [w.add("Mul", [x, w.add("Mul", [x, x])]), w.scalar(node, 0.044715)])
    inner = w.add("Mul", [w.add("Add", [x, cube]), w.scalar(node, math.sqrt(2 / math.pi))])
    outer = w.add("Add", [w.add("Tanh", [inner]), w.scalar(node, 1.0)])
    return w.add("Mul", [w.add("Mul", [x, outer]), w.scalar(node, 0.5)])


def _silu(scale: float, w: Writing, node: Node) -> Names:
    (x,) = w.inputs(node, 1)
    inner = x if scale == 1 else w.add("Mul", [x, w.scalar(node, scale)])
    return w.add("Mul", [x, w.add("Sigmoid", [inner])])


def _l2_normalize(w: Writing, node: Node) -> Names:
    """x over the root of the sum of its squares, which is at least epsilon."""
    (x,) = w.inputs(node, 1)
    axis = node.attributes.get("axis", 0)
    axes = [int(a) for a in axis] if isinstance(axis, (tuple, list)) else [int(axis)]
    squares = w.add("ReduceSumSquare", [x, w.ints(axes)], keepdims=1)
    least = w.scalar(node, float(node.attributes.get("epsilon", 1e-4)))
    return w.add("Div", [x, w.add("Sqrt", [w.add("Max", [squares, least])])])


def _softmax(op: str, w: Writing, node: Node) -> Names:
    axis = plain(node, 1, -1)
    axes = axis if isinstance(axis, (tuple, list)) else (axis,)
    if len(axes) != 1:
        raise Unsupported(f"it runs along {counted(len(axes), 'axis')} at once")
    return w.add(op, w.inputs(node, 1), axis=int(axes[0]))


def _cast(w: Writing, node: Node) -> Names:
    dtype = _BY_CODE.get(plain(node, 1), dtype_of(node))
    if dtype not in ELEMENT:
        raise Unsupported(f"a cast to {dtype}")
    return w.add("Cast", w.inputs(node, 1), to=ELEMENT[dtype])


def _with_number(op: str, w: Writing, node: Node) -> Names:
    """The second operand is a plain number."""
    return w.add(op, [w.name(node.operand(0)), w.scalar(node, plain(node, 1))])


def _scaled(op: str, w: Writing, node: Node) -> Names:
    """x and y times a third operand."""
    x, y = w.inputs(node, 2)
    alpha = plain(node, 2, 1)
    return w.add(op, [x, y if alpha == 1 else w.add("Mul", [y, w.scalar(node, alpha)])])


def _in_place(w: Writing, node: Node) -> Names:
    """Written over its first operand, which nobody else may read then."""
    others = [u for u in node.operand(0).users if u is not node and u.op.name not in ("UpdateState", "MakeTuple")]
    if others:
        raise Unsupported(f"%{node.operand(0).name}, which it writes over, is read by %{others[0].name} too")
    return _scaled("Add", w, node)


def _add_n(w: Writing, node: Node) -> Names:
    names = w.names(node.operand(0))
    return w.add("Sum", [n for n in names if n] if isinstance(names, tuple) else [names])


def _logical(op: str, w: Writing, node: Node) -> Names:
    if any(dtype_of(v) is not DType.BOOL for v in node.operands[:2]):
        raise Unsupported("operands that are no truth values")
    return w.add(op, w.inputs(node, 2))


_UNARY = {
    **{primitive: op for op, primitive in UNARY.items()},
    "SeLU": "Selu", "HSwish": "HardSwish", "IsNan": "IsNaN", "IsInf": "IsInf",
}  # fmt: skip
_BINARY = {
    **{primitive: op for op, primitive in COMPARISONS.items()}, **{name: name for name in BITWISE},
    "Add": "Add", "Sub": "Sub", "Mul": "Mul", "Pow": "Pow", "Maximum": "Max", "Minimum": "Min", "Equal": "Equal",
}  # fmt: skip
_FRACTION = "integers that gives a fraction"

RULES: dict[str, Rule] = {
    **{name: partial(_same, op, 1) for name, op in _UNARY.items()},
    **{name: partial(_same, op, 2) for name, op in _BINARY.items()},
    **dict.fromkeys(
        ("Identity", "TensorMove", "StopGradient", "Depend", "Load"), lambda w, node: w.names(node.operand(0))
    ),
    "LogicalAnd": partial(_logical, "And"),
    "LogicalOr": partial(_logical, "Or"),
    "LogicalXor": partial(_logical, "Xor"),
    "NotEqual": partial(_chain, "Equal", "Not", 2),
    "Div": partial(_div_of, True, _FRACTION),
    "RealDiv": partial(_div_of, True, _FRACTION),
    "TruncateDiv": partial(_div_of, False, "fractions towards zero"),
    "FloorDiv": _floor_div,
    "FloorMod": _floor_mod,
    "TruncateMod": partial(_same, "Mod", 2, fmod=1),
    "Mod": partial(_same, "Mod", 2, fmod=1),
    "Square": _square,
    "Rsqrt": partial(_chain, "Sqrt", "Reciprocal", 1),
    "Expm1": lambda w, node: w.add("Sub", [w.add("Exp", w.inputs(node, 1)), w.scalar(node, 1.0)]),
    "Log1p": lambda w, node: w.add("Log", [w.add("Add", [*w.inputs(node, 1), w.scalar(node, 1.0)])]),
    "ReLU6": lambda w, node: w.add("Clip", [*w.inputs(node, 1), w.scalar(node, 0.0), w.scalar(node, 6.0)]),
    "ClampScalar": _clamp,
    "Elu": _elu,
    "PReLU": _prelu,
    "GeLU": _gelu,
    "FastGeLU": partial(_silu, 1.702),
    "SiLU": partial(_silu, 1.0),
    "HSigmoid": partial(_same, "HardSigmoid", 1, alpha=1 / 6, beta=0.5),
    "L2Normalize": _l2_normalize,
    "Softmax": partial(_softmax, "Softmax"),
    "LogSoftmax": partial(_softmax, "LogSoftmax"),
    "Cast": _cast,
    "Muls": partial(_with_number, "Mul"),
    "Adds": partial(_with_number, "Add"),
    "Subs": partial(_with_number, "Sub"),
    "Divs": partial(_with_number, "Div"),
    "AddExt": partial(_scaled, "Add"),
    "SubExt": partial(_scaled, "Sub"),
    "InplaceAddExt": _in_place,
    "Select": partial(_same, "Where", 3),
    "AddN": _add_n,
    "Dropout": lambda w, node: (w.name(node.operand(0)), None),  # without effect outside of training
}
