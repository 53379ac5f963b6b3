"""The training itself: in this process, which may be one rank of a job."""

from __future__ import annotations

import math
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any

from ...ir.core.errors import Error
from .. import cli, interruption
from ..jobs.folder import JobFolder
from ..jobs.rank import Rank
from .data import training_data
from .display import shown
from .evaluation import evaluator_of
from .loading import load, set_hyperparameters, settings_of
from .report import document_of
from .resuming import command_after

if TYPE_CHECKING:
    from ...ir.core.program import Program
    from ...runtime.data.sources import NamedArrays
    from ...runtime.training.bar import Bar
    from ...runtime.training.callback import Callback
    from ...runtime.training.history import History
    from ...runtime.training.log import Log
    from ...runtime.training.session import Session
    from .job import Job


def train(job: Job, program: Program) -> dict[str, Any] | None:
    """Trains, saves, and returns what is to be reported; None where another process reports."""
    data, held_out = training_data(job, program)
    settings = settings_of(job.settings, program)
    evaluate = evaluator_of(job, program, held_out)

    from ...runtime.training.log import Log
    from ...runtime.training.retention import load_newest, save_and_retain
    from ...runtime.training.session import Session  # MindSpore starts here: everything that can be checked has been

    session = Session(program, device=job.device, seed=job.seed, check_replicas=job.check_replicas)
    rank = Rank(session.ranks.rank, JobFolder.of_environment())
    if job.load is not None:
        load(session, job.load, job.partial)
    if job.resume is not None:
        load_newest(session, job.resume)
    if job.load_adapter is not None:
        session.load_adapter(job.load_adapter)
    set_hyperparameters(session, settings)
    session.weights = job.weights
    # Once is enough: the weights are the same on all ranks.
    with nullcontext(rank) if rank.folder is not None else shown(not job.quiet and rank.number == 0) as bar:
        log = Log(*job.log)
        history = _fitted(job, session, data, bar, evaluate if rank.number == 0 else None, log)
    if job.save is not None:
        with interruption.held():
            save_and_retain(session, job.save, job.states_kept, job.sync)
    if job.save_weights is not None:
        with interruption.held():
            session.save_weights(job.save_weights)
    if job.save_adapter is not None:
        with interruption.held():
            session.save_adapter(job.save_adapter)
    document = document_of(job, history, session, log.findings)
    return None if rank.finish(document) or rank.number > 0 else document


def _fitted(job: Job, session: Session, data: NamedArrays, bar: Bar, evaluate: Any, log: Log) -> History:
    """``session.fit``; a training that was asked to stop, and saved, has an exit code of its own. One whose evaluation
    fails says how it goes on."""
    from ...runtime.training.saving import SaveEvery
    from ...runtime.training.stop import Stopped

    callbacks: list[Callback] = [log]
    saving = None
    if job.save is not None:
        minutes = math.inf if job.save_every is None and job.save_minutes is None else job.save_minutes
        saving = SaveEvery(job.save, job.save_every, job.sync, minutes=minutes, keep=job.states_kept)
        callbacks.append(saving)
    try:
        return session.fit(
            data,
            epochs=job.epochs,
            batch_size=job.batch_size,
            shuffle=job.shuffle,
            seed=job.seed,
            callbacks=callbacks,
            evaluate=evaluate,
            progress=bar,
            allow_nonfinite=job.allow_nonfinite,
            resume=job.resume is not None,
            end_of_epoch=job.end_of_epoch,
        )
    except Stopped as stopped:
        assert job.save is not None
        raise cli.Ended(interruption.RESUMABLE, f"{stopped.message} {command_after(job, job.save)}") from None
    except Error as error:
        if job.save is not None and saving is not None and saving.saved_behind_evaluation:
            error.command = f"{command_after(job, job.save)} {error.command}".rstrip()
        raise
