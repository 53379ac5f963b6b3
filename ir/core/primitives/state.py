"""Primitives that write in place, optimizers and normalisations apart: of state, or of any tensor (``x += y``)."""

from __future__ import annotations

from dataclasses import replace

from .definition import MEM, Facts, Family, Table, each


def _in_place(names: str, at: tuple[int, ...] = (0,), *, random: bool = False, rows: int | None = None) -> Table:
    return each(names, Facts(writes=at, any_tensor=True, random=random, rows=rows, attributes=MEM))


def _instead(which: Family, **pure: str) -> Table:
    """Primitives that write what another one computes, by name."""
    fact = Facts(which, writes=(0,), any_tensor=True, elementwise=True, attributes=MEM)
    return {name: replace(fact, pure=other) for name, other in pure.items()}


TABLE: Table = {
    "Assign": Facts(writes=(0,), elementwise=True, attributes=MEM),
    "AssignAdd": Facts(Family.SUM, writes=(0,), pure="Add", elementwise=True, attributes=MEM),
    "AssignSub": Facts(Family.DIFFERENCE, writes=(0,), pure="Sub", elementwise=True, attributes=MEM),
    **_instead(Family.SUM, InplaceAddExt="AddExt", InplaceAddsExt="AddScalar"),
    **_instead(Family.DIFFERENCE, InplaceSubExt="SubExt", InplaceSubScalar="SubScalar"),
    **_instead(Family.PRODUCT, InplaceMul="Mul", InplaceMuls="Muls"),
    **_instead(Family.QUOTIENT, InplaceDiv="Div", InplaceDivs="Divs"),
    **_in_place(
        "InplaceAddmm InplaceCopy InplaceDivMod InplaceDivMods InplaceElu InplaceErfinv InplaceExp InplaceFillDiagonal"
        " InplaceFillScalar InplaceFillTensor InplaceFloor InplaceFloorDivide InplaceFloorDivides InplaceHardtanh"
        " InplaceIndexAddExt InplaceIndexCopy InplaceIndexPut InnerInplaceIndexPut InplaceLog"
        " InplaceMaskedFillScalar InplaceMaskedFillTensor InplaceMaskedScatter InplacePut InplaceReLU"
        " InplaceRemainderTensorScalar InplaceRemainderTensorTensor InplaceScatterAdd InplaceScatterSrc"
        " InplaceScatterSrcReduce InplaceScatterValue InplaceScatterValueReduce InplaceSiLU InplaceSigmoid InplaceSign"
        " InplaceTanh InplaceThreshold InplaceToDevice"
    ),
    **_in_place("InplaceGroupedMatmulAdd", (3,)),
    **_in_place("InplaceMatmulAdd", (2,)),
    **_in_place(
        "InplaceNormal InplaceUniform InplaceRandom InplaceExponential InplaceBernoulliScalar InplaceBernoulliTensor",
        random=True,
    ),
    # Their class in Python has no side_effect_mem; their signature says that they write.
    **each(
        "InplaceClampScalar InplaceClampTensor InplaceIndexFillScalar InplaceIndexFillTensor InplaceZero",
        Facts(writes=(0,), any_tensor=True),
    ),
    # Rows and elements of a Parameter
    **_in_place(
        "ScatterAdd ScatterSub ScatterUpdate ScatterMul ScatterDiv ScatterMax ScatterMin ScatterNdAdd ScatterNdSub"
        " ScatterNdUpdate ScatterNdMul ScatterNdDiv ScatterNdMax ScatterNdMin ScatterNonAliasingAdd"
        " IndexAdd InplaceIndexAdd",
        rows=2,
    ),
    # Caches of inference and of embeddings on several devices
    **_in_place("KVCacheScatterUpdate GroupTopk UpdateToDevice UpdateToRemote SetData Free"),
    **_in_place("KvScaleCache", (2,)),
    **_in_place("ReshapeAndCache", (2, 3)),
    **_in_place("MlaPreprocess", (16, 25)),
    **_in_place("BatchNormElemt", (1, 2)),
    **_in_place("BatchNormGatherStatsWithCounts", (3, 4)),
    **each(
        "CacheSwapTable DynamicAssign MapCacheIdx ScatterAddWithAxis UpdateCache", Facts(writes=(0,), any_tensor=True)
    ),
}
