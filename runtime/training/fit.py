"""The training loop: epochs over data, cycle by cycle."""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any

from ...ir.core.errors import RuntimeFailure
from ...ir.core.graph import Graph
from ...ir.core.wording import counted
from ..data.data_check import Column, check_finite
from ..data.data_position import END, ENDS, DataPosition, EndOfEpoch
from ..data.inputs import to_tensors
from ..data.read_ahead import read_ahead
from ..data.sources import NamedArrays, Shard, open_source
from ..state.finite_state import checks_overflow
from .arguments import check_evaluate, checked_callbacks, whole_number
from .bar import Bar, Tally
from .callback import Callback, Evaluate
from .history import Cycle, Epoch, History
from .progress import progress_bar
from .rate import learning_rates
from .result import StepResult
from .resuming import resumed_position
from .stop import Interruption, interruptible
from .trainee import Trainee

log = logging.getLogger("boost_compile")


@dataclass(frozen=True, slots=True, kw_only=True)
class FitOptions:
    """How ``fit`` trains; see there."""

    epochs: int = 1
    batch_size: int | None = None
    shuffle: bool = True
    seed: int = 0
    callbacks: Sequence[Callback] = ()
    evaluate: Evaluate | None = None
    progress: bool | Bar | None = None
    allow_nonfinite: bool = False
    resume: bool = False
    shard: bool = True
    end_of_epoch: EndOfEpoch = "carry"


def fit(session: Trainee, data: Any, options: FitOptions) -> History:
    """Trains for ``epochs`` over ``data`` and returns the record of the training.

    ``data`` is a tuple of arrays (one an input, one row a sample), a mapping of them, an ``.npz`` file, or a
    ``mindspore.dataset`` (batched or not, which orders itself: ``shuffle`` and ``seed`` are for arrays). Arrays of a
    mapping or a file go to the inputs by name, or in their order where none has the name of an input. With
    ``shuffle`` epoch e, from 0, takes the rows in the order ``numpy.random.default_rng((seed, e)).permutation(rows)``.
    A micro-batch has the size the graph was exported for; a graph with an open batch dimension needs ``batch_size``.
    Samples at the end of an epoch that do not fill a micro-batch are dropped and counted (run where the dimension is
    open).

    An epoch may end in the middle of a cycle. With ``end_of_epoch="carry"`` the cycle goes on in the next epoch, and
    only the one that is incomplete at the end of the training is flushed (ends with an update from the micro-batches it
    has). ``"flush"`` flushes it, so each epoch ends with an update. ``"drop"`` does not run the micro-batches at the
    end of the epoch that do not fill a cycle, and counts their samples as dropped.

    In a job of several ranks each gets the same data and takes its own part (see :class:`.data.Shard`), so N ranks
    train as one process with N times the batch. ``shard=False`` says that the data is this rank's part already.

    ``resume`` goes on where the loaded state was saved: it skips the samples that were consumed then, and trains up to
    ``epochs`` in all.

    ``evaluate(session)`` runs after each epoch; where it raises, :class:`.saving.SaveEvery` saves the state before the
    training ends with its error. ``progress`` shows a bar on stderr, in a notebook in the output of its
    cell; by default only on a terminal and in a notebook.

    A loss that is not finite ends the training with a :class:`RuntimeFailure` at the end of its cycle, unless the
    program reports an overflow for it (and so skipped the update) or ``allow_nonfinite`` is set. So do weights,
    statistics and slots that are no longer finite, at the end of the epoch and before a callback saves them. NaN in
    ``data`` is refused, unless the program checks for overflows or ``allow_nonfinite`` is set. Infinities are a
    warning. A program that returns no loss trains too: its losses are NaN, and a warning says so.

    Ctrl-C (SIGINT, or SIGTERM) ends the training after the running micro-batch with KeyboardInterrupt: in the main
    thread of a process by itself, where no handler of SIGTERM is set. The session can train on, ``resume=True`` from
    there. A second one ends it at once.
    """
    with interruptible(session.ranks.size == 1) as stop:
        return _fit(session, data, options, stop)


def _fit(session: Trainee, data: Any, options: FitOptions, stop: Interruption) -> History:
    session.check_trains()
    _check_options(session, options)
    part = Shard(session.ranks.rank, session.ranks.size) if options.shard else Shard()
    source = open_source(data, session.consumer, options.batch_size, options.shuffle, options.seed, part)
    refuses = not options.allow_nonfinite and not checks_overflow(session.program)
    if source.columns and not (isinstance(data, NamedArrays) and data.looked_at):
        check_finite(session.consumer, source.columns, refuses)
    order = {**source.order, END: options.end_of_epoch}
    start = resumed_position(session, order) if options.resume else DataPosition(0, 0, 0, order)
    batches = source.batches
    if options.end_of_epoch == "drop" and batches is not None:
        batches -= batches % session.cycle_length
    session.data_position = start  # where it really begins, for callbacks: a loaded state may stand elsewhere
    session.finite_state.begin(start.cycle, refuse=not options.allow_nonfinite)
    with progress_bar(options.progress) as bar, _begun(session, options.callbacks):
        run = _Run(session, options, start, bar, batches, stop)
        for number in range(start.epoch, options.epochs):
            consumed = start.micro_batch if number == start.epoch else 0
            run.begin_epoch(number, consumed)
            given = source.epoch(number, consumed)
            if not source.columns:
                given = _checked(session, given, source.names, number, consumed, refuses)
            tensors = _tensors(session.consumer, given)
            with read_ahead(tensors) if source.reads_ahead else nullcontext(tensors) as micro_batches:
                if options.end_of_epoch == "drop":
                    dropped = run.whole_cycles(micro_batches) * part.ranks
                else:
                    dropped = run.all_of(micro_batches)
            if not run.micro_batches and not consumed:
                raise _nothing_to_train(dropped, session.cycle_length)
            if options.end_of_epoch == "flush" or number == options.epochs - 1:
                run.flush()
            if run.micro_batches or consumed:  # of a whole epoch nothing may be left but its evaluation
                run.end_epoch(source.dropped + dropped)
            stop.obey(f"after epoch {number + 1}")
    return run.history


def _check_options(session: Trainee, options: FitOptions) -> None:
    whole_number(options.epochs, "epochs")
    whole_number(options.seed, "seed", least=0)
    if options.batch_size is not None:
        whole_number(options.batch_size, "batch size")
    if options.end_of_epoch not in ENDS:
        raise RuntimeFailure(f"end of epoch {options.end_of_epoch!r}: give 'carry', 'flush' or 'drop'.")
    checked_callbacks(options.callbacks)
    check_evaluate(options.evaluate)
    if options.end_of_epoch == "flush" and not session.can_flush:
        raise RuntimeFailure(
            "the program has no graph that ends a window early, as a self-contained MindIR has none: choose 'carry' or "
            "'drop' for the end of an epoch, or train the program directory."
        )


def _checked(
    session: Trainee, batches: Iterable[tuple[Any, ...]], names: Sequence[str], epoch: int, consumed: int, refuse: bool
) -> Iterator[tuple[Any, ...]]:
    """Micro-batches of which nobody knew before, each looked at as :func:`.data_check.check_finite` does."""
    for number, batch in enumerate(batches, consumed + 1):
        where = f"micro-batch {number} of epoch {epoch + 1}"
        columns = [Column(array, f"{where}, {name}") for array, name in zip(batch, names, strict=True)]
        check_finite(session.consumer, columns, refuse)
        yield batch


def _tensors(graph: Graph, batches: Iterable[tuple[Any, ...]]) -> Iterator[tuple[Any, ...]]:
    for batch in batches:
        yield to_tensors(graph, batch, owned=True)


def _nothing_to_train(dropped: int, cycle: int) -> RuntimeFailure:
    if not dropped:
        return RuntimeFailure("the data holds no complete micro-batch.")
    return RuntimeFailure(
        f"an epoch holds no complete window of {counted(cycle, 'micro-batch')}, and the end of epoch 'drop' leaves out "
        "what does not fill one: nothing would be trained. Choose 'carry' or 'flush', or give more data."
    )


@contextmanager
def _begun(session: Trainee, callbacks: Sequence[Callback]) -> Iterator[None]:
    with ExitStack() as stack:
        for callback in callbacks:
            stack.callback(callback.on_end, session)
            callback.on_begin(session)
        yield


class _Run:
    """The state of one call of ``fit``. Losses are read once a cycle, so that the steps within it need not wait."""

    def __init__(
        self,
        session: Trainee,
        options: FitOptions,
        start: DataPosition,
        bar: Bar,
        batches: int | None,
        stop: Interruption,
    ):
        self.session = session
        self.options = options
        self.history = History()
        self.order = start.order
        self.bar = bar
        self.stop = stop
        self.total = None if batches is None else batches * options.epochs
        self.done = start.epoch * (batches or 0) + start.micro_batch
        self.cycles = start.cycle
        self.steps = 0
        self.all_samples = self.samples_before = 0
        self.unread: list[tuple[int, StepResult]] = []
        self.cycle_losses: list[tuple[int, float]] = []
        self.begin_epoch(start.epoch, start.micro_batch)

    def begin_epoch(self, number: int, consumed: int) -> None:
        """``number`` from 0; ``consumed`` micro-batches of it were trained on before this fit."""
        self.epoch = number
        self.consumed = consumed
        self.epoch_losses: list[float] = []
        self.micro_batches = 0
        self.samples = 0
        self.cycles_before = len(self.history.cycles)
        self.started = time.perf_counter()

    def step(self, batch: tuple[Any, ...]) -> None:
        result = self.session.advance(batch)
        self.steps += 1
        self.micro_batches += 1
        self.samples += batch[0].shape[0]
        self.done += 1
        self.all_samples += batch[0].shape[0]
        self.unread.append((self.steps, result))
        self.cycles += result.ended_cycle
        self._stands_at(self.epoch, self.consumed + self.micro_batches)
        for callback in self.options.callbacks:
            callback.on_step(self.session, self.steps, result)
        if result.ended_cycle:
            self._end_cycle(result, self.session.cycle_length)
        self._show()
        self.stop.obey(f"after micro-batch {self.consumed + self.micro_batches} of epoch {self.epoch + 1}")

    def all_of(self, batches: Iterable[tuple[Any, ...]]) -> int:
        for batch in batches:
            self.step(batch)
        return 0

    def whole_cycles(self, batches: Iterable[tuple[Any, ...]]) -> int:
        """Runs the micro-batches that fill cycles, and returns how many samples the others hold.

        They wait until their cycle is there as a whole, for not every dataset says beforehand how many it has."""
        waiting: list[tuple[Any, ...]] = []
        for batch in batches:
            waiting.append(batch)
            if len(waiting) == self.session.cycle_length - self.session.position:
                self.all_of(waiting)
                waiting.clear()
        return sum(batch[0].shape[0] for batch in waiting)

    def flush(self) -> None:
        micro_batches = self.session.position
        if micro_batches and not self.session.can_flush:
            log.warning(
                "the training ends in the middle of a window: %d of %d micro-batches are pending, and the weights are "
                "not updated from them. A state that is saved now goes on there",
                micro_batches,
                self.session.cycle_length,
            )
            return
        result = self.session.end_cycle()
        if result is not None:
            self.cycles += 1
            self._stands_at(self.epoch + 1, 0)
            self._end_cycle(result, micro_batches, flushed=True)
            self._show()

    def _stands_at(self, epoch: int, micro_batch: int) -> None:
        self.session.data_position = DataPosition(epoch, micro_batch, self.cycles, self.order)

    def _show(self) -> None:
        known = bool(self.history.cycles) and self.history.returns_loss
        loss = self.history.cycles[-1].loss if known else None
        tally = Tally(self.done, self.total, self.all_samples, self.cycles, loss, self.epoch + 1, self.options.epochs)
        self.bar.show(tally)

    def end_epoch(self, dropped: int) -> None:
        self._stands_at(self.epoch + 1, 0)
        self._read_losses()
        seconds = time.perf_counter() - self.started
        self.session.finite_state.check(self.cycles)
        evaluation = self._evaluated()
        cycles = self.history.cycles[self.cycles_before :]
        epoch = Epoch(
            number=self.epoch + 1,
            loss=_mean(self.epoch_losses),
            micro_batches=self.micro_batches,
            samples=self.samples,
            dropped=dropped,
            seconds=seconds,
            evaluation=evaluation,
            steps=len(cycles),
            skipped=sum(not cycle.updated for cycle in cycles),
            rates=learning_rates(self.session),
        )
        self.history.epochs.append(epoch)
        self.bar.epoch(epoch, self.options.epochs)
        for callback in self.options.callbacks:
            callback.on_epoch(self.session, epoch)

    def _evaluated(self) -> Any:
        if self.options.evaluate is None:
            return None
        try:
            return self.options.evaluate(self.session)
        except Exception as error:
            for callback in self.options.callbacks:
                callback.on_failed_evaluation(self.session, error)
            raise

    def _end_cycle(self, last: StepResult, micro_batches: int, flushed: bool = False) -> None:
        self._read_losses()
        self.session.check_skipped(last)
        if self.history.returns_loss and not self.options.allow_nonfinite and not last.overflow:
            for step, loss in self.cycle_losses:
                if not math.isfinite(loss):
                    raise RuntimeFailure(
                        f"the loss of step {step} is {loss}, and the update of its window has been applied. Load a "
                        f"state from before it, then lower the learning rate or look for bad values in the data;",
                        python="compile with 'overflow-check' to skip such updates, or set allow_nonfinite=True to "
                        "train on.",
                        command="boost-compile --check-overflow makes a program that skips such updates, and "
                        "boost-run --allow-nonfinite trains on.",
                    )
        losses = [loss for _, loss in self.cycle_losses]
        cycle = Cycle(
            self.cycles,
            _mean(losses),
            micro_batches,
            last.updated,
            last.overflow,
            flushed,
            self.all_samples - self.samples_before,
            last.scales,
        )
        self.samples_before = self.all_samples
        self.cycle_losses.clear()
        self.history.cycles.append(cycle)
        for callback in self.options.callbacks:
            callback.on_cycle(self.session, cycle)

    def _read_losses(self) -> None:
        import numpy as np

        for step, result in self.unread:
            value = result.loss
            loss = math.nan if value is None else value if isinstance(value, float) else float(np.mean(value))
            if value is None and self.history.returns_loss:
                self.history.returns_loss = False
                log.warning(
                    "graph '%s' returns no loss, so none is shown or watched; return it from the training cell to see "
                    "how training goes",
                    result.graph,
                )
            self.cycle_losses.append((step, loss))
            self.epoch_losses.append(loss)
        self.unread.clear()


def _mean(losses: Sequence[float]) -> float:
    return sum(losses) / len(losses) if losses else math.nan
