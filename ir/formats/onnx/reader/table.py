"""All rules, by operator."""

from __future__ import annotations

from . import (
    activation,
    convolution,
    elementwise,
    indexing,
    matrix,
    normalization,
    pooling,
    recurrent,
    reduction,
    resize,
    shape,
)
from .call import Rule

RULES: dict[str, Rule] = {
    **activation.RULES,
    **convolution.RULES,
    **elementwise.RULES,
    **indexing.RULES,
    **matrix.RULES,
    **normalization.RULES,
    **pooling.RULES,
    **recurrent.RULES,
    **reduction.RULES,
    **resize.RULES,
    **shape.RULES,
}

FOLDED_ONLY = frozenset(("If", "EyeLike", "NonZero", "Unique", "Det", "HannWindow", "HammingWindow", "BlackmanWindow"))
"""Operators that are known only where all their inputs (of If: its condition) are."""
