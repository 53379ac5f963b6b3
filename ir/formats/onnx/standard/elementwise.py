"""Arithmetic, comparison, activations: element by element."""

from __future__ import annotations

import math
from functools import partial
from typing import Any

from ....core.graph import Node
from ....core.primitives.calls import CODES
from ....core.types import DType
from ....core.wording import counted
from ..operators import ROWS, Row, Unsupported, dtype_of, shape_of
from .writing import ELEMENT, Names, Rule, Writing, plain

_BY_CODE = {code: dtype for dtype, code in CODES.items()}


def _row(row: Row, w: Writing, node: Node) -> Names:
    """The operator of a row: its inputs and attributes from the operands of the primitive."""
    inputs: dict[int, str] = {}
    attributes = dict(row.fixed)
    for i, spec in enumerate(row.operands):
        if isinstance(spec, int):
            inputs[spec] = w.name(node.operand(i))
        elif isinstance(spec, str) and spec[0] == "#":
            inputs[int(spec[1:])] = w.ints([int(plain(node, i))])
        else:
            name, value = spec[0] if isinstance(spec, tuple) else spec.lstrip("?"), plain(node, i)
            if isinstance(spec, tuple) and isinstance(value, (tuple, list)):
                if len(value) != 1:
                    raise Unsupported(f"it runs along {counted(len(value), 'axis')} at once")
                (value,) = value
            if value is not None:
                attributes[name] = value if isinstance(value, float) else int(value)
    return w.add(row.operator, [inputs[i] for i in sorted(inputs)], **attributes)


def _composed(tree: Any, w: Writing, node: Node) -> str:
    """Operators of operators: an integer is an operand of the primitive, a float a number."""
    if isinstance(tree, int):
        return w.name(node.operand(tree))
    if isinstance(tree, float):
        return w.scalar(node, tree)
    operator, *inputs = tree
    return w.add(operator, [_composed(part, w, node) for part in inputs])


def _div_of(floats: bool, otherwise: str, w: Writing, node: Node) -> Names:
    """ONNX's Div gives a fraction of floats, and rounds towards zero with integers."""
    if dtype_of(node).is_float is not floats:
        raise Unsupported(f"a division of {otherwise}")
    return w.add("Div", w.inputs(node, 2))


def _floor_div(w: Writing, node: Node) -> Names:
    if not dtype_of(node).is_float:
        raise Unsupported("a division of integers that rounds down")
    return _composed(("Floor", ("Div", 0, 1)), w, node)


def _floor_mod(w: Writing, node: Node) -> Names:
    down = ("Sub", 0, ("Mul", ("Floor", ("Div", 0, 1)), 1))
    return _composed(down if dtype_of(node).is_float else ("Mod", 0, 1), w, node)


def _clamp(w: Writing, node: Node) -> Names:
    x = w.name(node.operand(0))
    for i, op in ((1, "Max"), (2, "Min")):
        if i < node.num_operands and plain(node, i) is not None:
            x = w.add(op, [x, w.scalar(node, plain(node, i))])
    return x


def _prelu(w: Writing, node: Node) -> Names:
    x, slope = node.operands[:2]
    channels = [shape_of(slope)[0], *[1] * (len(shape_of(x)) - 2)]
    return w.add("PRelu", [w.name(x), w.add("Reshape", [w.name(slope), w.ints(channels)])])


def _l2_normalize(w: Writing, node: Node) -> Names:
    """x over the root of the sum of its squares, which is at least epsilon."""
    (x,) = w.inputs(node, 1)
    axis = node.attributes.get("axis", 0)
    axes = [int(a) for a in axis] if isinstance(axis, (tuple, list)) else [int(axis)]
    squares = w.add("ReduceSumSquare", [x, w.ints(axes)], keepdims=1)
    least = w.scalar(node, float(node.attributes.get("epsilon", 1e-4)))
    return w.add("Div", [x, w.add("Sqrt", [w.add("Max", [squares, least])])])


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


_COMPOSED: dict[str, Any] = {
    "NotEqual": ("Not", ("Equal", 0, 1)),
    "Square": ("Mul", 0, 0),
    "Rsqrt": ("Reciprocal", ("Sqrt", 0)),
    "Expm1": ("Sub", ("Exp", 0), 1.0),
    "Log1p": ("Log", ("Add", 0, 1.0)),
    "ReLU6": ("Clip", 0, 0.0, 6.0),
    "SiLU": ("Mul", 0, ("Sigmoid", 0)),
    "FastGeLU": ("Mul", 0, ("Sigmoid", ("Mul", 0, 1.702))),
    # 0.5 x (1 + tanh(sqrt(2 / pi) (x + 0.044715 x³)))
    "GeLU": ("Mul", ("Mul", 0, ("Add", ("Tanh", ("Mul", ("Add", 0, ("Mul", ("Mul", 0, ("Mul", 0, 0)), 0.044715)),
                                                 math.sqrt(2 / math.pi))), 1.0)), 0.5),
}  # fmt: skip
_FRACTION = "integers that gives a fraction"

RULES: dict[str, Rule] = {
    **{row.primitive: partial(_row, row) for row in ROWS},
    **{name: partial(_composed, tree) for name, tree in _COMPOSED.items()},
    **dict.fromkeys(
        ("Identity", "TensorMove", "StopGradient", "Depend", "Load"), lambda w, node: w.names(node.operand(0))
    ),
    "LogicalAnd": partial(_logical, "And"),
    "LogicalOr": partial(_logical, "Or"),
    "LogicalXor": partial(_logical, "Xor"),
    "Div": partial(_div_of, True, _FRACTION),
    "RealDiv": partial(_div_of, True, _FRACTION),
    "TruncateDiv": partial(_div_of, False, "fractions towards zero"),
    "FloorDiv": _floor_div,
    "FloorMod": _floor_mod,
    "ClampScalar": _clamp,
    "PReLU": _prelu,
    "L2Normalize": _l2_normalize,
    "Cast": _cast,
    "Muls": partial(_with_number, "Mul"),
    "Adds": partial(_with_number, "Add"),
    "Subs": partial(_with_number, "Sub"),
    "Divs": partial(_with_number, "Div"),
    "AddExt": partial(_scaled, "Add"),
    "SubExt": partial(_scaled, "Sub"),
    "InplaceAddExt": _in_place,
    "AddN": _add_n,
    "Dropout": lambda w, node: (w.name(node.operand(0)), None),  # without effect outside of training
}
