"""Optimizers: the first written operand is the weight, the others its slots; the gradient's position is a fact of
each."""

from __future__ import annotations

from dataclasses import replace

from .definition import MEM, Facts, Table


def _optimizer(
    writes: int | tuple[int, ...], gradient: int, rate: int | None = None, decay: int | None = None
) -> Facts:
    where = tuple(range(writes)) if isinstance(writes, int) else writes
    return Facts(writes=where, gradient=gradient, rate=rate, decay=decay, attributes=MEM)


def _by_element(
    writes: int | tuple[int, ...], gradient: int, rate: int | None = None, decay: int | None = None
) -> Facts:
    """An optimizer that makes each element of the weight and its slots of those at its place."""
    return replace(_optimizer(writes, gradient, rate, decay), elementwise=True)


def _by_rows(writes: int, gradient: int, rate: int | None = None) -> Facts:
    """An optimizer whose gradient is rows; behind it come their indices."""
    return replace(_optimizer(writes, gradient, rate), rows=gradient)


TABLE: Table = {
    "SGD": _by_element((0, 3, 5), 1, rate=2),
    "ApplyGradientDescent": _by_element(1, 2, rate=1),
    "ApplyMomentum": _by_element(2, 3, rate=2),
    "ApplyKerasMomentum": _by_element(2, 3, rate=2),
    "ApplyAdagrad": _by_element(2, 3, rate=2),
    "ApplyAdagradV2": _by_element(2, 3, rate=2),
    "ApplyFtrl": _by_element(3, 3, rate=4),
    "ApplyAdagradDA": _by_element(3, 3, rate=4),
    "ApplyRMSProp": _by_element(3, 4, rate=3),
    "ApplyCenteredRMSProp": _by_element(4, 4, rate=5),
    "ApplyProximalGradientDescent": _by_element(1, 4, rate=1),
    "ApplyProximalAdagrad": _by_element(2, 5, rate=2),
    "ApplyAdadelta": _by_element(3, 6, rate=3),
    "ApplyAddSign": _by_element(2, 6, rate=2),
    "ApplyPowerSign": _by_element(2, 6, rate=2),
    "ApplyAdamWithAmsgrad": _by_element(4, 7, rate=6),
    "ApplyAdamWithAmsgradV2": _by_element(4, 10, rate=6),
    "ApplyAdaMax": _by_element(3, 8, rate=4),
    "AdamWeightDecay": _by_element(3, 8, rate=3, decay=7),
    "AdamNoUpdateParam": _optimizer(2, 8, rate=4),
    "Adam": _by_element(3, 9, rate=5),
    "AdamW": _by_element(3, 4, rate=6, decay=9),
    "ApplyAdamW": _by_element(3, 10, rate=5, decay=6),
    "FusedSparseLazyAdam": _by_rows(3, 9, rate=5),
    "FusedSparseAdam": _by_rows(3, 9, rate=5),
    "FusedSparseFtrl": _by_rows(3, 3),
    "FusedSparseProximalAdagrad": _by_rows(2, 5, rate=2),
    "SparseApplyAdadelta": _by_rows(3, 5, rate=3),
    "SparseApplyAdagrad": _by_rows(2, 2),
    "SparseApplyAdagradV2": _by_rows(2, 2),
    "SparseApplyAdagradDA": _by_rows(3, 3, rate=5),
    "SparseApplyFtrl": _by_rows(3, 3),
    "SparseApplyFtrlV2": _by_rows(3, 3),
    "SparseApplyProximalAdagrad": _by_rows(2, 5, rate=2),
    "SparseApplyProximalGradientDescent": _by_rows(1, 4, rate=1),
    "SparseApplyRMSProp": _by_rows(3, 4, rate=3),
    "SparseApplyCenteredRMSProp": _by_rows(4, 8, rate=4),
    "FusedAdaFactor": _optimizer((7, 8, 9, 10, 11), 6, rate=5, decay=4),
    "FusedAdaFactorWithGlobalNorm": _optimizer((7, 8, 9, 10, 11), 6, rate=5, decay=4),
    "FusedWeightScaleApplyMomentum": _optimizer((2, 3), 5, rate=4, decay=0),
    "Lamb": _optimizer(3, 9, rate=3, decay=7),
    "LARSUpdate": Facts(gradient=1, kind=1),
}
