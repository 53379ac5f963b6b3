"""What a program is proved or verified to train as, in words."""

from __future__ import annotations

from dataclasses import replace

from ..ir.analysis.batch.joins import ANY, NEVER
from ..ir.core.program import Program
from ..ir.core.wording import counted
from ..ir.proof.promises import promises_of
from ..passes.framework.pipeline import parse_pipeline

_JOINS = {"mean": "averages", "sum": "sums", "weighted": "averages, by weight,"}


def with_reports(program: Program) -> Program:
    """A program whose file says which passes made it and no more, with what they were asked for. Each is taken to have
    changed it."""
    if program.reports or not program.pipeline:
        return program
    return replace(program, reports=[replace(p.result(), changed=1) for p in parse_pipeline(program.pipeline)])


def trained_as(program: Program) -> str:
    """One batch of all micro-batches of an optimizer step where gradient-accumulation found that the loss joins its
    samples so; else the native loop over them."""
    n, promises = program.micro_batches(), promises_of(program)
    over = f", with the {promises.over_ranks} of the gradients of all ranks" if promises.over_ranks else ""
    if n <= 1 and program.schedule.flush is None:
        return f"as the original, step by step{over}"
    found = next((r.statistics for r in reversed(program.reports) if "big batch" in r.statistics), {})
    if (sizes := found.get("big batch", NEVER)) != NEVER:
        return f"as one batch of {n} times the size{over}" + (
            "" if sizes == ANY else ", if micro-batches are equal in size"
        )
    loop = f"as the native loop that {_JOINS[promises.reduction]} {counted(n, 'micro-batch')}{over}"
    return f"{loop}, {found['joins']}" if "joins" in found else loop


def changed_by(passes: list[str]) -> str:
    """The passes that change training on purpose, in the words that follow what the program trains as."""
    return f", but for {', '.join(dict.fromkeys(passes))}" if passes else ""
