"""The data of boost-run, read and checked before MindSpore starts."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...runtime.data import NamedArrays, Shard, open_source, read_data
from ...runtime.data_check import check_finite
from ...runtime.fit import checks_overflow
from ...runtime.plan import plan_turns

if TYPE_CHECKING:
    from ...ir.program import Program
    from .job import Job


def training_data(job: Job, program: Program) -> NamedArrays:
    """What --data holds. Error where it is not what the program takes, or not enough for the ranks."""
    data = read_data(job.data)
    first = program.graphs[plan_turns(program, program.schedule.variant(0))[0].consumer]
    source = open_source(data, first, job.batch_size, False, 0, Shard(0, job.ranks))
    check_finite(first, source.columns, refuse=not job.allow_nonfinite and not checks_overflow(program))
    return data
