"""Half-precision compute in a float32 training graph, and back."""

from .mixed_precision import MixedPrecision

__all__ = ["MixedPrecision"]
