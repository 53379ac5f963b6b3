"""Legalization: only primitives that the target has. One file for the pass, one for each rule."""

from .legalize import Legalize

__all__ = ["Legalize"]
