"""Arithmetic, comparisons and functions of one element."""

from __future__ import annotations

from .definition import Facts, Family, Table, each, family

TABLE: Table = {
    **family(Family.SUM, "Add AddExt AddScalar", elementwise=True),
    **family(Family.SUM, "AddN", kind=1, elementwise=True),
    **family(Family.SUM, "AccumulateNV2", elementwise=True),
    **family(Family.DIFFERENCE, "Sub SubExt SubScalar", elementwise=True),
    **family(Family.PRODUCT, "Mul Muls", elementwise=True),
    **family(Family.QUOTIENT, "RealDiv Div Divs", elementwise=True),
    **family(Family.CLAMP, "ClampScalar ClampTensor ClipByValue", elementwise=True),
    **family(Family.CHOICE, "Maximum Minimum Select", elementwise=True),
    **each(
        "Equal NotEqual Less LessEqual Greater GreaterEqual LogicalAnd LogicalOr LogicalNot Reciprocal FloorMod"
        " Neg Sqrt Rsqrt Square Abs Exp Log ZerosLike OnesLike Sign DivNoNan",
        Facts(elementwise=True),
    ),
}
