"""Reductions, and tests for infinities and NaN."""

from __future__ import annotations

from .definition import Facts, Family, Table, each, family

TABLE: Table = {
    **family(Family.TOTAL, "ReduceSum SumExt"),
    **family(Family.MEAN, "ReduceMean MeanExt"),
    **family(Family.EXTREME, "ReduceMax ReduceMin Max Min Argmax Argmin"),
    **family(Family.MULTIPLIED, "ReduceProd ProdExt"),
    **family(Family.LOGICAL, "ReduceAll ReduceAny"),
    "L2Loss": Facts(Family.NORM, kind=1),
    **family(Family.NORM, "Norm LpNorm LinalgVectorNorm"),
    "IsFinite": Facts(Family.FINITE, elementwise=True),
    **family(Family.OVERFLOWED, "IsNan IsInf", elementwise=True),
    "AllFinite": Facts(Family.OVERFLOWED),
    "FloatStatus": Facts(Family.STATUS, kind=1),
    **each("NPUGetFloatStatus NPUGetFloatStatusV2", Facts(Family.DEVICE_STATUS, random=True)),
    **each("NPUClearFloatStatus NPUAllocFloatStatus NPUClearFloatStatusV2", Facts(Family.DEVICE_FLAG, random=True)),
}
