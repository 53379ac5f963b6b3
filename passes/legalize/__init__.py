"""Legalization: only primitives that the target has. One file for the pass, one for each rule."""

from .legalize import Legalize, check_target, needs_legalization

__all__ = ["Legalize", "check_target", "needs_legalization"]
