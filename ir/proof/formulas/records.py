"""What formulas that state the original anew begin with: the record of their pass, and the original's gradients."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from ...analysis.effects.state_access import summarize
from ...analysis.training.anatomy import TrainingAnatomy, anatomy
from ...analysis.training.results import skips_writes
from ...analysis.training.weights import WeightInfo
from ...core.errors import AnatomyError
from ...core.graph import Graph
from ...core.op import CALL
from ...core.program import Program
from ...rewrite.effects.editing import Effects
from ...symbolic.execution import Unproved


def options_of(program: Program, name: str) -> Mapping[str, Any] | None:
    """What the first use of a pass was asked for; None where no record names it."""
    return next((r.options for r in program.reports if r.name == name), None)


def anatomy_of(graph: Graph) -> TrainingAnatomy:
    """The anatomy of a graph of the original; Unproved where it cannot be told."""
    try:
        return anatomy(graph)
    except AnatomyError as error:
        raise Unproved(f"the original's gradients cannot be told: {error}") from None


def updates_by_condition(graph: Graph, written: Collection[str]) -> bool:
    """Whether a graph leaves writes of these states out under a condition of its own."""
    known = summarize(graph)
    calls = [e for e in Effects(graph).list if e.node.op is CALL and {s.name for s in e.writes} & {*written}]
    return any(skips_writes(e.node.operand(0), known) is not None for e in calls)


def trained(found: TrainingAnatomy, name: str, which: str) -> WeightInfo:
    """How the original trains a weight; Unproved where nothing does, with ``which`` it is."""
    for info in found.weights:
        if info.name == name:
            return info
    raise Unproved(f"nothing trains weight '{name}', {which}")
