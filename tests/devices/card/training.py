"""Compiled against native training, both on the device: how far apart they are, and how many parameters are equal."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

import boost_compile as bc
from tests.compare import Comparison
from tests.networks import CASES
from tests.reference import Cells

from ..native import centralized, cycles_of, hold_against, tolerance, train_natively
from ..programs import Job, compiled
from ..worker import batches
from .table import Row, Table


def table(
    title: str, device: str, networks: Sequence[str], pipelines: Sequence[str], source: Callable[[str], Path]
) -> Table:
    """`source(network)` is the exported file of a network."""
    jobs = [Job(network, pipeline) for network in networks for pipeline in pipelines]
    head = ("network", "pipeline", "largest error", "allowed", "parameters equal in every bit")
    return Table(title, head, (_row(job, device, source) for job in jobs))


def _row(job: Job, device: str, source: Callable[[str], Path]) -> Row:
    try:
        result = compared(job, device, source(job.network))
    except Exception as error:  # the device's, MindSpore's or ours: the other trainings are tried, too
        return Row((job.network, f"`{job.pipeline}`", "failed", "", ""), (f"{job}: {error}",))
    error, allowed = f"{result.worst.error:.1e}", f"{tolerance(job.network):.0e}"
    return Row((job.network, f"`{job.pipeline}`", error, allowed, f"{result.bit_equal} of {len(result.rows)}"))


def compared(job: Job, device: str, source: Path) -> Comparison:
    """Trains both. Raises AssertionError where they are further apart than the tolerance of the network."""
    native = train_natively(job, source, Cells(CASES[job.network], centralized(job, source), device))
    program = compiled(job, bc.load(str(source)), device.lower(), source.parent)
    session = bc.Session(program, device=device)
    losses = [session.step(*batch).loss for batch in batches(job, session.cycle_length * cycles_of(job.network))]
    return hold_against(native, job, np.stack(losses), session.state())
