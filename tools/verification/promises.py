"""The promises of a program, read off the text of its pipeline: nothing that passes left in its graphs is believed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any

from ...ir.analysis.batch.joins import Beside
from ...ir.core.program import Program
from ...passes.framework.base import Pass
from ...passes.framework.pipeline import parse_pipeline
from ...passes.step.unscaling import TOLD

ACCUMULATION, LOSS_SCALE, GROUP_LOSS_SCALE = "gradient-accumulation", "loss-scale", "group-loss-scale"
CHECK, CLIP, CENTRALIZATION = "overflow-check", "clip-gradients", "lower-gradient-centralization"
FREEZE, GROUPS, LESS_BN, LEGALIZE = "gradient-freeze", "parameter-groups", "less-bn", "legalize"
MIXED, SCHEDULE, ADASUM = "mixed-precision", "schedule", "adasum"
LORA, REPLACE, FROZEN, HEAD = "lora", "replace-optimizer", "freeze", "normalised-head"
STATED = frozenset({LORA, REPLACE, FROZEN, HEAD, LESS_BN, SCHEDULE})
"""Early passes that a formula states as a graph."""
COMPUTED = frozenset({CLIP, CENTRALIZATION, FREEZE, GROUPS, ADASUM})
"""Passes that change training in a way that is computed here too."""


@dataclass(frozen=True)
class Promises:
    """``passes`` in the order in which they ran."""

    passes: tuple[Pass, ...]

    def having(self, name: str) -> list[Pass]:
        return [p for p in self.passes if p.name == name]

    def one(self, name: str) -> Pass | None:
        """The last pass of that name: a later one comes on top."""
        found = self.having(name)
        return found[-1] if found else None

    @property
    def network(self) -> list[Pass]:
        """Passes that make another network of it: their result is what the other passes' promises are about."""
        return [p for p in self.passes if p.early and not p.preserves]

    @property
    def unknown(self) -> list[str]:
        """Passes that change training in a way that is not computed here."""
        network = self.network
        return [p.name for p in self.passes if not p.preserves and p not in network and p.name not in COMPUTED]

    @property
    def reduction(self) -> str:
        accumulation = self.one(ACCUMULATION)
        return "mean" if accumulation is None else str(accumulation.options()["reduction"])

    @property
    def weight(self) -> tuple[str, Beside] | None:
        """The value of the graph that weighs a micro-batch, and what stands beside it where the loss is divided."""
        options: dict[str, Any] = {} if (accumulation := self.one(ACCUMULATION)) is None else accumulation.options()
        return (options["weight"], Beside(options["offset"], options["least"])) if options.get("weight") else None

    @property
    def unscale(self) -> str:
        """What the user says of the unscaling of gradients that are clipped."""
        clip = self.one(CLIP)
        return TOLD if clip is None else str(clip.options()["unscale"])

    @property
    def skips_micro_batches(self) -> bool:
        check = self.one(CHECK)
        return check is not None and check.options()["policy"] == "skip-micro"


def covers(group: Pass, name: str, rank: int) -> bool:
    """Whether a use of parameter-groups is about a weight."""
    options = group.options()
    fits = {"any": True, "matrix": rank > 1, "vector": rank <= 1}[options["rank"]]
    return fits and any(fnmatchcase(name, glob) for glob in options["match"])


def read_promises(program: Program) -> Promises:
    """OptionError for a pass that is not known here (one of another distribution that is not installed)."""
    return Promises(tuple(parse_pipeline(program.pipeline)) if program.pipeline else ())


def print_names(passes: Sequence[Pass]) -> str:
    return ", ".join(dict.fromkeys(p.name for p in passes))
