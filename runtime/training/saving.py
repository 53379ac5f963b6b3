"""Saving the state while `fit` trains."""

from __future__ import annotations

import logging
import os
import time
from typing import NoReturn

from ...ir.core.errors import Error, RuntimeFailure
from ..state.checkpoint import place_of_state
from .arguments import positive_number, whole_number
from .callback import Callback
from .history import Cycle
from .result import StepResult
from .retention import save_and_retain
from .stop import Stopped, StopRequest
from .trainee import Trainee

log = logging.getLogger("boost_compile")


class SaveEvery(Callback):
    """Writes the state to ``path`` after every ``cycles``-th optimizer step, and after the first one that ends
    ``minutes`` or more after the last time. Give either, or both; with ``minutes=math.inf`` it writes only where the
    training is asked to stop, or an evaluation fails.

    The last ``keep`` states stay, and ``path`` is the newest. ``sync`` is that of :meth:`.Session.save`. Training goes
    on from there with ``load_state(path)`` and ``fit(…, resume=True)``.

    An evaluation of ``fit`` that raises ends the training; the state is saved before that, but for a job of several
    ranks.

    With ``signals`` SIGTERM and SIGINT end the training. The state is saved after the running micro-batch (in a job of
    several ranks, after the running cycle on all of them), and ``fit`` raises :class:`.stop.Stopped`. A second signal
    ends it at once.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        cycles: int | None = None,
        sync: str = "none",
        *,
        minutes: float | None = None,
        keep: int = 1,
        signals: bool = True,
    ):
        if cycles is None and minutes is None:
            raise RuntimeFailure(
                f"SaveEvery does not say when {os.fspath(path)} is to be written.",
                python="Give cycles=K, minutes=T or both; with minutes=math.inf only a signal, or an evaluation that "
                "fails, makes it write.",
            )
        place_of_state(path)
        self.path = path
        self.cycles = None if cycles is None else whole_number(cycles, "SaveEvery: cycles")
        self.sync = sync
        self.minutes = None if minutes is None else positive_number(minutes, "SaveEvery: minutes")
        self.keep = whole_number(keep, "SaveEvery: keep")
        self._stop = StopRequest() if signals else None
        self._saved_at = time.monotonic()
        self.saved_behind_evaluation = False
        """Whether an evaluation failed, and what had been trained before it was saved."""

    def on_begin(self, session: Trainee) -> None:
        self._saved_at = time.monotonic()
        if self._stop is not None:
            self._stop.received = None
            self._stop.listen()

    def on_end(self, session: Trainee) -> None:
        if self._stop is not None:
            self._stop.forget()

    def on_step(self, session: Trainee, number: int, result: StepResult) -> None:
        # What ends a cycle is looked at first: on_cycle comes after that. Ranks meet in cycles only.
        if self._asked and not result.ended_cycle and session.ranks.size == 1:
            position = session.data_position
            self._leave(session, 0 if position is None else position.cycle)

    def on_cycle(self, session: Trainee, cycle: Cycle) -> None:
        overdue = self.minutes is not None and time.monotonic() - self._saved_at >= 60 * self.minutes
        stop = self._asked
        if self._stop is not None or self.minutes is not None:
            # The clock of the first rank counts, and a signal on any of them.
            stop, overdue = session.ranks_agree(stop, overdue and session.ranks.rank == 0)
        if stop:
            self._leave(session, cycle.number)
        if overdue or (self.cycles is not None and cycle.number % self.cycles == 0):
            self._save(session, cycle.number)

    def on_failed_evaluation(self, session: Trainee, error: Exception) -> None:
        if session.ranks.size > 1:  # writing takes all of them, and the others train on
            return
        position = session.data_position
        self._save(session, 0 if position is None else position.cycle)
        self.saved_behind_evaluation = True
        if isinstance(error, Error):
            error.message = f"{error.message.rstrip('.')}. {self.path} holds the state after the epoch:"
            error.python = f"fit(resume=True) goes on there. {error.python}".rstrip()
        else:
            log.warning("the evaluation failed; %s holds the state after the epoch", self.path)

    @property
    def _asked(self) -> bool:
        return self._stop is not None and self._stop.received is not None

    def _save(self, session: Trainee, cycle: int) -> None:
        session.finite_state.check(cycle)  # else a spoiled state would take the place of the last good one
        save_and_retain(session, self.path, self.keep, self.sync)
        self._saved_at = time.monotonic()

    def _leave(self, session: Trainee, cycle: int) -> NoReturn:
        self._save(session, cycle)
        session.ranks_agree()  # whoever sees one rank leave may end the others: the first one has written by now
        raise Stopped(
            f"training was asked to stop, and {self.path} holds its state:",
            python="fit(resume=True) goes on",
            command="boost-run --resume goes on",
        )
