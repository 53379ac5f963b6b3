"""Gradient accumulation: the pass, which decides and reports, its plan, and the graphs of a cycle."""

from .gradient_accumulation import GradientAccumulation

__all__ = ["GradientAccumulation"]
