"""Which weights a network has: those that are trained, their averages, or those that adapters are added to."""

from __future__ import annotations

from typing import Literal, get_args

Weights = Literal["trained", "average", "merged"]
WEIGHTS: tuple[str, ...] = get_args(Weights)
