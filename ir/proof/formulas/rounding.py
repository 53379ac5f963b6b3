"""Half precision: the network computes what the original's does, in a type that rounds more.

No law says how much. So types of floating-point numbers are one here, a cast between them is none, and the proof is of
what holds where nothing is rounded but constants: these the program holds as they are rounded.
"""

from __future__ import annotations

from collections.abc import Iterator

from ...core.attributes import TensorValue
from ...core.data import BytesData, numbers, rounded
from ...core.graph import Node
from ...core.program import Program
from ...core.types import DType, TensorType
from ...symbolic.terms import exactly
from .statement import Stated

PASS = "mixed-precision"


def asked(program: Program) -> bool:
    return any(r.name == PASS and r.changed for r in program.reports)


def restated(original: Program, program: Program) -> Program:
    """The original with those constants rounded that the program holds in half precision, and in float32 no more."""
    if not asked(program):
        return original
    held = {(value.type.dtype, exactly(value)) for _, _, value in _tensors(program)}
    halves = {dtype for dtype, _ in held if dtype.widened is not dtype}
    copy = original.copy()
    for node, i, value in list(_tensors(copy)):
        if value.type.dtype is DType.FLOAT32 and (DType.FLOAT32, exactly(value)) not in held:
            for half in halves:
                nearest = _widened(value, half)
                if (half, exactly(nearest)) in held:
                    node.set_operand(i, node.home.constant(nearest))
    return copy


def _tensors(program: Program) -> Iterator[tuple[Node, int, TensorValue]]:
    """The constant tensors of floating-point numbers, and where nodes take them."""
    for node in program.all_nodes():
        for i, operand in enumerate(node.operands):
            value = operand.literal
            if isinstance(value, TensorValue) and value.type.dtype.is_float:
                yield node, i, value


def _widened(value: TensorValue, half: DType) -> TensorValue:
    """A float32 constant as a type of half precision rounds it."""
    short = TensorType(half, value.type.shape)
    array = numbers(short, rounded(value.type, value.data, half))
    return TensorValue(value.type, BytesData(array.astype("float32").tobytes()))


def state(program: Program) -> list[Stated]:
    options = next((r.options for r in program.reports if r.name == PASS), {})
    half = options.get("dtype", "half precision")
    says = f"the network computes in {half}, its constants rounded; the same where nothing else is rounded"
    return [Stated(PASS, options, says, ())] if asked(program) else []
