"""Fewer BatchNorms: which there are, which stand inside residual blocks, which upstream would remove, and the pass."""

from .less_bn import LessBN

__all__ = ["LessBN"]
