"""Legalization: only primitives that the target has. One file for the pass, one for each rule."""

from .legalize import Legalize, needs_legalization

__all__ = ["Legalize", "needs_legalization"]
