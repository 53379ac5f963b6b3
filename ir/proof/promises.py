"""What the passes of a program promise to change, as its records say: the claim follows it, and no pass is asked."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ..core.program import Program


@dataclass(frozen=True)
class Promises:
    """``options`` of each pass that was run, by name; the last one of a name counts."""

    options: Mapping[str, Mapping[str, Any]]

    @property
    def reduction(self) -> str:
        return str(self.options.get("gradient-accumulation", {}).get("reduction", "mean"))

    @property
    def weight(self) -> str | None:
        """What weighs a micro-batch in the mean of its cycle, by name; None where all count alike."""
        given = self.options.get("gradient-accumulation", {})
        return str(given["weight"]) if given.get("reduction") == "weighted" else None

    @property
    def beside(self) -> tuple[float, float]:
        """What the loss adds to that weight where it divides by it, and the least that it then divides by."""
        given = self.options.get("gradient-accumulation", {})
        return given.get("offset", 0.0), given.get("least", 0.0)

    @property
    def over_ranks(self) -> str | None:
        """How gradients join over the ranks of a job, "mean" or "sum"; None where each trains for itself."""
        if "data-parallel" not in self.options:
            return None
        return "sum" if self.options["data-parallel"].get("mean") is False else "mean"


def promises_of(program: Program) -> Promises:
    return Promises({r.name: r.options for r in program.reports})
