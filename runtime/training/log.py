"""The log of a training: a record of each cycle and epoch, in files that other tools read, and what is wrong."""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from typing import Any

from ...ir.core.names import MONITORED_CYCLES, lora_a_of
from .callback import Callback
from .findings import Examiner, Finding
from .history import Cycle, Epoch
from .log_files import Writer, open_log, target_of
from .monitors import Readings, last_measured
from .rate import learning_rates
from .trainee import Trainee

log = logging.getLogger("boost_compile")


class Log(Callback):
    """Writes a record of each optimizer step and each epoch to every one of ``targets``: ``"jsonl:FILE"``,
    ``"tensorboard:DIR"`` (needs tensorboardX) or ``"mindinsight:DIR"``.

    A record of a step has loss, learning rate, loss scale, skipped steps, samples a second and, of a program with
    ``monitor``, what was measured in that cycle. Values are read once a cycle, after its loss. In a job the first rank
    writes: its own loss, and the samples of all ranks.

    What the monitors show to be wrong (a gradient that is not finite, one of zero, a spike, an update as long as its
    weight) is part of the record and of :attr:`findings`, and a warning says so when it begins. Without targets that is
    all that is done.

    A new training begins its file anew; one that is resumed goes on in it.
    """

    def __init__(self, *targets: str):
        self.targets = list(dict.fromkeys(map(target_of, targets)))
        self.findings: list[Finding] = []
        """All that was found, in order."""
        self._stack = ExitStack()
        self._files: list[Writer] = []

    def on_begin(self, session: Trainee) -> None:
        program, position = session.program, session.data_position
        start = 0 if position is None else position.cycle
        self.findings, self._told = [], set[tuple[str, str]]()
        adapters = program.state.keys() & {lora_a_of(name) for name in program.state}
        self._examiner = Examiner(resting=program.schedule.choice is not None, waiting=adapters)
        self._skipped = 0
        self._cycle = start
        if session.ranks.rank == 0:
            self._files = [self._stack.enter_context(open_log(*target, resumed=start > 0)) for target in self.targets]
        self._write(
            {
                "event": "begin", "cycle": start, "program": program.name, "passes": program.pipeline,
                "micro_batches_a_cycle": session.cycle_length, "ranks": session.ranks.size, "time": time.time(),
            }
        )  # fmt: skip
        self._measured = MONITORED_CYCLES in program.state
        self._ahead = self._counted(session) - start if self._measured else 0
        self._since = time.perf_counter()

    def on_end(self, session: Trainee) -> None:
        self._stack.close()
        self._files = []

    def on_cycle(self, session: Trainee, cycle: Cycle) -> None:
        seconds = time.perf_counter() - self._since
        self._cycle = cycle.number
        self._skipped += not cycle.updated
        readings, found = self._examined(session, cycle)
        if self.targets:
            record = {
                "event": "cycle", "cycle": cycle.number, "loss": cycle.loss, "updated": cycle.updated,
                "skipped": self._skipped, "learning_rate": _one_or_all(learning_rates(session)),
                "loss_scale": _one_or_all(cycle.loss_scales), "micro_batches": cycle.micro_batches,
                "samples_per_second": cycle.samples * session.ranks.size / seconds if seconds > 0 else None,
            }  # fmt: skip
            if readings is not None:
                record["monitors"] = readings.values
                if readings.noise_scale is not None:
                    record["noise_scale"] = readings.noise_scale
            if found:
                record["findings"] = [{"weight": f.weight, "what": f.what, "detail": f.detail} for f in found]
            self._write(record)
        self._since = time.perf_counter()

    def on_epoch(self, session: Trainee, epoch: Epoch) -> None:
        self._write(
            {
                "event": "epoch", "epoch": epoch.number, "cycle": self._cycle, "loss": epoch.loss,
                "samples": epoch.samples, "dropped": epoch.dropped, "seconds": epoch.seconds, "skipped": epoch.skipped,
                "evaluation": epoch.evaluation,
            }
        )  # fmt: skip
        self._since = time.perf_counter()  # an evaluation is no training

    def _examined(self, session: Trainee, cycle: Cycle) -> tuple[Readings | None, Sequence[Finding]]:
        """What this cycle measured, if it did, and what is wrong with it."""
        number = cycle.number + self._ahead
        if not self._measured or last_measured(session.program, number) != number:
            return None, ()
        readings = session.monitors()
        found = self._examiner.examine(readings)
        self.findings.extend(found)
        new = [f for f in found if (f.weight, f.what) not in self._told]
        self._told = {(f.weight, f.what) for f in found}
        if session.ranks.rank == 0:
            for finding in new:
                log.warning("%s", finding)
        return readings, found

    @staticmethod
    def _counted(session: Trainee) -> int:
        return int(session.state([MONITORED_CYCLES])[MONITORED_CYCLES])

    def _write(self, record: Mapping[str, Any]) -> None:
        for file in self._files:
            file.write(record)


def _one_or_all(numbers: Sequence[float]) -> float | Sequence[float] | None:
    return numbers[0] if len(numbers) == 1 else numbers or None
