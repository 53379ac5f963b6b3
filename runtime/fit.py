"""The training loop: epochs over data, cycle by cycle."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ..ir.errors import RuntimeFailure
from .data import open_source
from .progress import progress_bar

if TYPE_CHECKING:
    from .result import StepResult
    from .session import Session

Evaluate = Callable[["Session"], Any]
"""Called after each epoch; what it returns is recorded in the epoch."""


@dataclass(frozen=True, slots=True)
class Cycle:
    """One optimizer step. ``number`` counts from 1; ``loss`` is the mean over its micro-batches that this fit ran."""

    number: int
    loss: float
    micro_batches: int
    updated: bool
    overflow: bool | None


@dataclass(frozen=True, slots=True)
class Epoch:
    """``number`` counts from 1; ``loss`` is the mean over its micro-batches; ``dropped`` counts the samples at its end
    that did not fill a micro-batch; ``seconds`` is training alone, without ``evaluation``."""

    number: int
    loss: float
    micro_batches: int
    samples: int
    dropped: int
    seconds: float
    evaluation: Any = None


@dataclass(slots=True)
class History:
    """``flushed`` is how many micro-batches the short last cycle had, 0 if the training ended with a complete one."""

    cycles: list[Cycle] = field(default_factory=list)
    epochs: list[Epoch] = field(default_factory=list)
    flushed: int = 0

    @property
    def losses(self) -> list[float]:
        """The mean loss of each cycle."""
        return [cycle.loss for cycle in self.cycles]

    @property
    def dropped(self) -> int:
        """Samples left out because they did not fill a micro-batch, over all epochs."""
        return sum(epoch.dropped for epoch in self.epochs)


class Callback:
    """Base of callbacks for ``fit``; override what you need. Reading a value of a step result waits for the device."""

    def on_step(self, session: Session, number: int, result: StepResult) -> None:
        """After each micro-batch; ``number`` counts from 1."""

    def on_cycle(self, session: Session, cycle: Cycle) -> None:
        """After each optimizer step, the flushed one included."""

    def on_epoch(self, session: Session, epoch: Epoch) -> None:
        """After each epoch and its evaluation."""


def fit(
    session: Session,
    data: Any,
    *,
    epochs: int = 1,
    batch_size: int | None = None,
    shuffle: bool = True,
    seed: int = 0,
    callbacks: Sequence[Callback] = (),
    evaluate: Evaluate | None = None,
    progress: bool | None = None,
    allow_nonfinite: bool = False,
) -> History:
    """Trains for ``epochs`` over ``data`` and returns what happened.

    ``data`` is a tuple of arrays (one an input, one row a sample), a mapping of them, an ``.npz`` file, or a
    ``mindspore.dataset`` (batched or not, which orders itself: ``shuffle`` and ``seed`` are for arrays). With
    ``shuffle`` epoch e, from 0, takes the rows in the order ``numpy.random.default_rng((seed, e)).permutation(rows)``.
    A micro-batch has the size the graph was exported for; a graph with an open batch dimension needs ``batch_size``.
    Samples at the end of an epoch that do not fill a micro-batch are dropped and counted (run where the dimension is
    open). Cycles run on across epochs; the one that is incomplete at the end is flushed.

    ``evaluate(session)`` runs after each epoch. ``progress`` shows a bar on stderr; by default only on a terminal.

    A loss that is not finite ends the training with a :class:`RuntimeFailure` at the end of its cycle, unless the
    program reports an overflow for it (and so skipped the update) or ``allow_nonfinite`` is set.
    """
    if epochs < 1:
        raise RuntimeFailure(f"epochs={epochs}: give at least 1.")
    for callback in callbacks:
        if not isinstance(callback, Callback):
            raise RuntimeFailure(
                f"{type(callback).__name__} is no boost_compile callback (derive from runtime.fit.Callback). "
                f"Callbacks of MindSpore run in mindspore.train.Model(session.cell).train(…)."
            )
    source = open_source(data, session.consumer, batch_size, shuffle, seed)
    run = _Run(session, callbacks, allow_nonfinite)
    with progress_bar(progress, None if source.batches is None else source.batches * epochs) as bar:
        for number in range(epochs):
            run.begin_epoch()
            for batch in source.epoch(number):
                run.step(batch)
                bar.advance(len(batch[0]), run.history)
            if not run.micro_batches:
                raise RuntimeFailure("the data holds no complete micro-batch.")
            if number == epochs - 1:
                run.flush()
                bar.advance(0, run.history)
            run.end_epoch(number + 1, source.dropped, evaluate)
    return run.history


class _Run:
    """The state of one call of ``fit``. Losses are read once a cycle, so that the steps within it need not wait."""

    def __init__(self, session: Session, callbacks: Sequence[Callback], allow_nonfinite: bool):
        self.session = session
        self.callbacks = callbacks
        self.allow_nonfinite = allow_nonfinite
        self.history = History()
        self.steps = 0
        self.unread: list[tuple[int, StepResult]] = []
        self.cycle_losses: list[tuple[int, float]] = []
        self.begin_epoch()

    def begin_epoch(self) -> None:
        self.epoch_losses: list[float] = []
        self.micro_batches = 0
        self.samples = 0
        self.started = time.perf_counter()

    def step(self, batch: tuple[Any, ...]) -> None:
        result = self.session.step(*batch)
        self.steps += 1
        self.micro_batches += 1
        self.samples += len(batch[0])
        self.unread.append((self.steps, result))
        for callback in self.callbacks:
            callback.on_step(self.session, self.steps, result)
        if result.ended_cycle:
            self._end_cycle(result)

    def flush(self) -> None:
        result = self.session.flush()
        if result is not None:
            self.history.flushed = len(self.cycle_losses) + len(self.unread)
            self._end_cycle(result)

    def end_epoch(self, number: int, dropped: int, evaluate: Evaluate | None) -> None:
        self._read_losses()
        seconds = time.perf_counter() - self.started
        evaluation = None if evaluate is None else evaluate(self.session)
        loss = _mean(self.epoch_losses)
        epoch = Epoch(number, loss, self.micro_batches, self.samples, dropped, seconds, evaluation)
        self.history.epochs.append(epoch)
        for callback in self.callbacks:
            callback.on_epoch(self.session, epoch)

    def _end_cycle(self, last: StepResult) -> None:
        self._read_losses()
        self.session.check_skipped(last)
        if not self.allow_nonfinite and not last.overflow:
            for step, loss in self.cycle_losses:
                if not math.isfinite(loss):
                    raise RuntimeFailure(
                        f"the loss of step {step} is {loss}, and the update of its cycle has been applied. Load a "
                        f"state from before it, then lower the learning rate or look for bad values in the data; "
                        f"compile with 'overflow-check' to skip such updates, or set allow_nonfinite=True to train on."
                    )
        losses = [loss for _, loss in self.cycle_losses]
        cycle = Cycle(len(self.history.cycles) + 1, _mean(losses), len(losses), last.updated, last.overflow)
        self.cycle_losses.clear()
        self.history.cycles.append(cycle)
        for callback in self.callbacks:
            callback.on_cycle(self.session, cycle)

    def _read_losses(self) -> None:
        import numpy as np

        for step, result in self.unread:
            if result.loss is None:
                raise RuntimeFailure(f"graph '{result.graph}' returns no loss, which fit needs: use step().")
            loss = float(np.mean(result.loss))
            self.cycle_losses.append((step, loss))
            self.epoch_losses.append(loss)
        self.unread.clear()


def _mean(losses: Sequence[float]) -> float:
    return sum(losses) / len(losses)
