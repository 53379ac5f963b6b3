"""boost-run --restarts: a job that lost a rank starts again from its newest state.

It starts with as many ranks, and with one fewer where that came no further: lost again before it saved anything. Fewer
ranks take as many samples a step together, so each takes more of them. Programs that were exported for one size of a
micro-batch, and those that combine the steps of ranks, keep their number. A host that is lost is left out.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...ir.core.wording import counted
from ...ir.rewrite.ranks.adasum import needs_job
from ...runtime.data.sources import micro_batch_size
from ...runtime.training.plan import plan_turns
from ...runtime.training.retention import previous_states
from .. import cli
from ..jobs.failure import Lost
from .resuming import STARTING_STATE, without, written_since

if TYPE_CHECKING:
    from ...ir.core.program import Program
    from .job import Job

FIRST_WAIT, LONGEST_WAIT = 1.0, 60.0
"""Seconds before the first restart; each time twice as long, up to the longest."""
OWN = {"--ranks": True, "--batch-size": True, "--restarts": True, "--hosts": True, "--rsh": True}
"""The options that each attempt has of its own, and whether they take a value."""


@dataclass(frozen=True)
class Shape:
    """A job divided over ranks, and these over hosts (none: this one). ``samples``: those of a rank's micro-batch; None
    as the program says."""

    ranks: int
    samples: int | None
    hosts: tuple[str, ...] = ()

    def __str__(self) -> str:
        each = "" if self.samples is None else f" with {counted(self.samples, 'sample')} each"
        where = f" on {counted(len(self.hosts), 'host')}" if self.hosts else ""
        return counted(self.ranks, "rank") + where + each


@dataclass(frozen=True)
class Attempt:
    """A start of the job, the first with number 0: the words of the command, and the state that the ranks load."""

    number: int
    shape: Shape
    arguments: tuple[str, ...]
    state: str | None


def run_with_restarts(
    job: Job, hosts: tuple[str, ...], program: Program, run: Callable[[Attempt], dict[str, Any]]
) -> dict[str, Any]:
    """What ``run`` returns, with the number of restarts. Where it raises Lost, it runs the job again, at most
    ``job.restarts`` times."""
    whole = shape = Shape(job.ranks, job.batch_size, hosts)
    arguments, state = job.arguments, None
    began = time.time_ns()
    for number in count():
        started = time.time_ns()
        try:
            done = run(Attempt(number, shape, arguments, state or job.load or job.resume))
            return {**done, "restarts": number}
        except Lost as lost:
            if number == job.restarts:
                raise
            state = newest_state(job, began)
            stuck = number > 0 and newest_state(job, started) is None
            left = tuple(host for host in shape.hosts if host != lost.host)
            ranks = shape.ranks // len(shape.hosts) * len(left) if lost.host else shape.ranks - stuck
            shape = fitting(whole, ranks, left, program)
            arguments = words_of(job, shape, state)
            wait = min(FIRST_WAIT * 2**number, LONGEST_WAIT)
            where = "where it began (nothing was saved yet)" if state is None else state
            reason = cli.safe(str(lost)).partition("\n")[0]
            print(f"boost-run: {reason}", file=sys.stderr)
            print(f"  restart {number + 1} of {job.restarts} in {wait:g} s from {where}: {shape}", file=sys.stderr)
        time.sleep(wait)
    raise AssertionError


def newest_state(job: Job, since: int) -> str | None:
    """The name to resume from, where a state of the job was saved after that time (nanoseconds)."""
    assert job.save is not None
    states = (job.save, *map(str, previous_states(Path(job.save))))
    return job.save if any(written_since(state, since) for state in states) else None


def fitting(whole: Shape, ranks: int, hosts: tuple[str, ...], program: Program) -> Shape:
    """The most ranks, up to that many on some of the hosts, that take as many samples a step as ``whole`` does; as many
    as ``whole`` has where the program allows no others."""
    graph = program.graphs[plan_turns(program, program.schedule.variant(0))[0].consumer]
    fixed = micro_batch_size(graph) is not None or any(needs_job(graph) for graph in program.graphs.values())
    if whole.samples is None or fixed:
        return Shape(whole.ranks, whole.samples, _even(whole.ranks, hosts))
    step = whole.ranks * whole.samples
    ranks = max(n for n in range(1, max(ranks, 1) + 1) if step % n == 0)
    return Shape(ranks, step // ranks, _even(ranks, hosts))


def _even(ranks: int, hosts: tuple[str, ...]) -> tuple[str, ...]:
    """As many of the hosts as can have the same number of ranks each."""
    return hosts[: max((n for n in range(1, len(hosts) + 1) if ranks % n == 0), default=0)]


def words_of(job: Job, shape: Shape, state: str | None) -> tuple[str, ...]:
    """The words of the command that goes on from ``state``, or starts over, in another shape."""
    words = [*without(job.arguments, OWN if state is None else OWN | STARTING_STATE), "--ranks", str(shape.ranks)]
    words += [] if shape.samples is None else ["--batch-size", str(shape.samples)]
    return (*words, *(() if state is None else ("--resume", state)))
