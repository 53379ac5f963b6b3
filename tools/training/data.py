"""The data of boost-run, read and checked before MindSpore starts."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from ...ir.core.errors import RuntimeFailure
from ...ir.core.wording import counted
from ...runtime.data.data_check import check_finite
from ...runtime.data.sources import NamedArrays, Shard, open_source, read_data
from ...runtime.state.finite_state import checks_overflow
from ...runtime.training.plan import plan_turns

if TYPE_CHECKING:
    from ...ir.core.program import Program
    from .job import Job


def training_data(job: Job, program: Program) -> tuple[NamedArrays, NamedArrays | None]:
    """The data of --data, and the part that --val-split keeps for evaluation. Error where it is not what the program
    takes, or not enough for the ranks."""
    assert job.data is not None
    data, held_out = read_data(job.data), None
    first = program.graphs[plan_turns(program, program.schedule.variant(0))[0].consumer]
    source = open_source(data, first, job.batch_size, False, 0, Shard(0, job.ranks))
    # Here, not in fit, which may see a part of the file only: rows are those of the file.
    check_finite(first, source.columns, refuse=not job.allow_nonfinite and not checks_overflow(program))
    if job.val_split is not None:
        data, held_out = split(data, job.val_split, job.seed)
        open_source(data, first, job.batch_size, False, 0, Shard(0, job.ranks))
    return replace(data, looked_at=True), held_out


def split(data: NamedArrays, part: float, seed: int) -> tuple[NamedArrays, NamedArrays]:
    """``data`` without the samples that are held out, and those: a random ``part`` of them, by ``seed``. Both keep the
    order of the file."""
    import numpy as np

    samples = len(next(iter(data.arrays.values())))
    count = round(samples * part)
    if not 0 < count < samples:
        raise RuntimeFailure(
            f"--val-split {part:g} of {counted(samples, 'sample')} leaves nothing to evaluate, or to train on"
        )
    held = np.zeros(samples, bool)
    held[np.random.default_rng((seed, samples)).permutation(samples)[:count]] = True

    def rows(which: np.ndarray, where: str) -> NamedArrays:
        return NamedArrays({name: array[which] for name, array in data.arrays.items()}, where)

    return rows(~held, data.where), rows(held, f"{data.where} (held out)")
