"""Accumulation over a loss in which samples meet: a cycle is no step on the joined batch."""

from __future__ import annotations

from collections.abc import Iterator

from ...ir.analysis.batch.joins import NEVER
from ...ir.core.program import Program
from .finding import Finding


def not_the_big_batch(program: Program) -> Iterator[Finding]:
    """Of a program whose micro-batches are accumulated, as the report of the pass says."""
    for report in program.reports:
        if report.statistics.get("big batch") == NEVER and program.micro_batches() > 1:
            yield Finding(
                "accumulation",
                str(report.statistics["joins"]),
                "A window takes the mean of its micro-batches' gradients: know that it is another training, or take "
                "one batch as large as memory allows",
            )
