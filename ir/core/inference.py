"""Types of the nodes that passes insert: small shape rules, by primitive.

A node whose type no rule knows is an error at the pass that makes it, not later in MindSpore: give the type explicitly,
or add a rule here.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

from .errors import VerifyError
from .op import Op
from .types import UMONAD, DType, FunctionType, ScalarType, SimpleType, TensorType, TupleType, Type


class Operand(Protocol):
    """The questions that a rule may ask of a value. ``literal``: the value of a constant, None of anything else."""

    @property
    def name(self) -> str: ...

    @property
    def type(self) -> Type: ...

    @property
    def literal(self) -> Any: ...


Rule = Callable[[Op, Sequence[Operand]], Type]


def infer(op: Op, operands: Sequence[Operand]) -> Type:
    """The result type of ``op`` applied to ``operands``."""
    rule = RULES.get(op.name)
    if rule is None:
        raise VerifyError(
            f"no type rule for primitive '{op.name}': pass the node's type explicitly, or add a rule to "
            "ir/core/inference.py"
        )
    try:
        return rule(op, operands)
    except (IndexError, TypeError, ValueError):
        shown = ", ".join(f"%{v.name}: {v.type}" for v in operands[:4]) + (", …" if len(operands) > 4 else "")
        raise VerifyError(f"{op.name} cannot take these operands: ({shown})") from None


def broadcast(a: tuple[int, ...], b: tuple[int, ...]) -> tuple[int, ...]:
    """The common shape of two operands, numpy's rule; a dynamic dimension stays dynamic unless the other is above 1."""
    if a == b or not b:
        return a
    if -2 in a or -2 in b:
        return (-2,)
    n = max(len(a), len(b))
    out = []
    for x, y in zip((1,) * (n - len(a)) + a, (1,) * (n - len(b)) + b, strict=True):
        if x != y and x != 1 and y != 1 and x >= 0 and y >= 0:
            raise VerifyError(f"shapes {list(a)} and {list(b)} do not broadcast")
        out.append(y if x == 1 else x if y == 1 else max(x, y))
    return tuple(out)


def _tensor(value: Operand) -> TensorType:
    if isinstance(value.type, ScalarType):
        return TensorType(value.type.dtype, ())
    if not isinstance(value.type, TensorType):
        raise VerifyError(f"{value!r} must be a tensor here")
    return value.type


def _plain(t: TensorType) -> TensorType:
    """Without what only the operand says of itself; the same object where that is nothing."""
    return TensorType(t.dtype, t.shape) if t.ref or t.min_shape or t.max_shape else t


def _binary(op: Op, operands: Sequence[Operand]) -> Type:
    a, b = _tensor(operands[0]), _tensor(operands[1])
    if a.dtype != b.dtype:
        raise VerifyError(f"{op.name} of {a.dtype} and {b.dtype}: insert a Cast ({operands[0]!r}, {operands[1]!r})")
    shape = broadcast(a.shape, b.shape)
    return _plain(a) if a.shape == shape else TensorType(a.dtype, shape)


def converted(op: Op, operands: Sequence[Operand]) -> Type | None:
    """The result type of arithmetic on two element types, as files of MindSpore hold it (LogSigmoid multiplies by an
    int32 constant): the engine casts the lesser operand. None where that is not settled. Passes insert their casts."""
    rule = RULES.get(op.name)
    if rule not in (_binary, _compare) or len(operands) != 2:
        return None
    a, b = _tensor(operands[0]), _tensor(operands[1])
    ranks = [(_KINDS.get(t.dtype, 1 if not t.dtype.is_float else 2), t.dtype.itemsize) for t in (a, b)]
    if ranks[0] == ranks[1] and a.dtype is not b.dtype:
        return None
    wide = a.dtype if ranks[0] >= ranks[1] else b.dtype
    return TensorType(DType.BOOL if rule is _compare else wide, broadcast(a.shape, b.shape))


_KINDS = {DType.BOOL: 0, DType.COMPLEX64: 3, DType.COMPLEX128: 3, DType.STRING: -1}
"""From the least to the greatest; integers are 1, floats 2."""


def _compare(op: Op, operands: Sequence[Operand]) -> Type:
    t = _binary(op, operands)
    assert isinstance(t, TensorType)
    return TensorType(DType.BOOL, t.shape)


def _unary(op: Op, operands: Sequence[Operand]) -> Type:
    return _plain(_tensor(operands[0]))


def _in_place(op: Op, operands: Sequence[Operand]) -> Type:
    t = _tensor(operands[0])
    return TensorType(t.dtype, t.shape, ref=operands[0].name)


def _item(op: Op, operands: Sequence[Operand]) -> Type:
    source, index = operands
    type_, at = source.type, index.literal
    if isinstance(type_, TupleType) and isinstance(at, int):
        elements = type_.elements
        if -len(elements) <= at < len(elements):
            return elements[at]
    raise VerifyError(f"TupleGetItem({source!r}, {index!r}): not a tuple and a constant index inside it")


def _add_n(op: Op, operands: Sequence[Operand]) -> Type:
    t = operands[0].type
    return t.elements[0] if isinstance(t, TupleType) else t


def _reduce(op: Op, operands: Sequence[Operand]) -> Type:
    """(x, axis, keep_dims): axis an int, a tuple of ints, or none/empty for all axes."""
    t = _tensor(operands[0])
    axis = operands[1].literal if len(operands) > 1 else None
    keep = len(operands) > 2 and operands[2].literal is True
    rank = len(t.shape)
    axes = {a % rank for a in ((axis,) if isinstance(axis, int) else axis or ())} if rank else set()
    if not axes:
        axes = set(range(rank))
    shape = tuple(1 if i in axes else d for i, d in enumerate(t.shape) if keep or i not in axes)
    return TensorType(t.dtype, shape)


def _select(op: Op, operands: Sequence[Operand]) -> Type:
    cond, a, b = (_tensor(v) for v in operands)
    if a.dtype != b.dtype or cond.dtype is not DType.BOOL:
        raise VerifyError(f"Select of {cond}, {a}, {b}")
    return TensorType(a.dtype, broadcast(broadcast(cond.shape, a.shape), b.shape))


def _switch(op: Op, operands: Sequence[Operand]) -> Type:
    names: list[str] = []
    for value in operands[1:]:
        if not isinstance(value.type, FunctionType):
            raise VerifyError(f"Switch branch {value!r} is no function")
        names.extend(value.type.functions)
    return FunctionType(tuple(names), union=True)


RULES: dict[str, Rule] = {
    **dict.fromkeys(("Add", "Sub", "Mul", "Div", "RealDiv", "FloorMod", "Maximum", "Minimum"), _binary),
    **dict.fromkeys(("LogicalAnd", "LogicalOr"), _binary),
    **dict.fromkeys(("Equal", "NotEqual", "Less", "LessEqual", "Greater", "GreaterEqual"), _compare),
    **dict.fromkeys(("Reciprocal", "Neg", "Sqrt", "Rsqrt", "Square", "Abs", "Exp", "Log", "Sign"), _unary),
    **dict.fromkeys(("ZerosLike", "OnesLike", "LogicalNot", "Load", "AllReduce", "TensorMove"), _unary),
    **dict.fromkeys(("IsFinite", "IsNan", "IsInf"), lambda op, v: TensorType(DType.BOOL, _tensor(v[0]).shape)),
    **dict.fromkeys(("Assign", "AssignAdd", "AssignSub"), _in_place),
    **dict.fromkeys(("ReduceAll", "ReduceAny", "ReduceSum", "ReduceMean", "ReduceMax", "ReduceMin"), _reduce),
    **dict.fromkeys(("Broadcast", "Depend", "Partial"), lambda op, v: v[0].type),
    "MakeTuple": lambda op, v: TupleType(tuple([operand.type for operand in v]), dynamic=False),
    "TupleGetItem": _item,
    "AddN": _add_n,
    "Select": _select,
    "Switch": _switch,
    "UpdateState": lambda op, v: v[0].type if isinstance(v[0].type, SimpleType) else UMONAD,
    "L2Loss": lambda op, v: TensorType(_tensor(v[0]).dtype, ()),
}  # fmt: skip
