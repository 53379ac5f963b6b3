"""Normalised head: the pass, how it finds a dense layer in forward and backward, and how it rewrites one."""

from .normalised_head import NormalisedHead

__all__ = ["NormalisedHead"]
