"""Cases by seed, in processes of their own: what crashes or hangs is a failure like any other."""

from __future__ import annotations

import gc
import multiprocessing
import os
import tempfile
import time
from collections.abc import Iterable, Iterator
from dataclasses import replace
from multiprocessing.connection import Connection
from pathlib import Path

from .outcome import FAILED, NOT_RUN, Outcome
from .plan import Plan

TIME_LIMIT = 180.0
"""Seconds for one case, and for MindSpore alone to train it."""
JUDGE, JUDGE_AND_VERIFY, TRAIN = "judge", "judge and verify", "train"
CASES_A_PROCESS = 40
"""MindSpore keeps what it has compiled."""


def draw(seed: int) -> Plan:
    """The plan of a seed, with one version of hypothesis and of the grammar. Some seeds in a row share all but the
    pipeline, so that there is one export and one native training for them."""
    import hypothesis
    from hypothesis import HealthCheck, Phase

    from .training import PIPELINES, families

    found: list[tuple[Plan, ...]] = []

    # The first example is the simplest one, whatever the seed.
    @hypothesis.seed(seed // PIPELINES)
    @hypothesis.settings(
        max_examples=2,
        phases=[Phase.generate],
        database=None,
        deadline=None,
        suppress_health_check=list(HealthCheck),
    )
    @hypothesis.given(families())
    def example(family: tuple[Plan, ...]) -> None:
        found.append(family)

    example()
    return found[-1][seed % PIPELINES]


def run(seeds: Iterable[int], verify_every: int = 1) -> Iterator[tuple[int, Plan, Outcome]]:
    """Each case judged; boost-verify is asked of every so-many-th (0: only where no native training can judge)."""
    worker: Worker | None = None
    done = 0
    try:
        for seed in seeds:
            if worker is None:
                worker = Worker()
            plan = draw(seed)
            outcome = worker.judge(plan, JUDGE_AND_VERIFY if verify_every and seed % verify_every == 0 else JUDGE)
            done += 1
            if not worker.alive:
                outcome = _natively(plan, outcome)
            if not worker.alive or done % CASES_A_PROCESS == 0:
                worker.close()
                worker = None
            yield seed, plan, outcome
    finally:
        if worker is not None:
            worker.close()


def judge_alone(plan: Plan) -> Outcome:
    """One plan, in a process of its own, by all judges."""
    worker = Worker()
    outcome = worker.judge(plan, JUDGE_AND_VERIFY)
    worker.close()
    return outcome if worker.alive else _natively(plan, outcome)


def _natively(plan: Plan, outcome: Outcome) -> Outcome:
    """A hang or a crash of the process that MindSpore shows without this project, too, is not ours."""
    worker = Worker()
    alone = worker.judge(plan, TRAIN)
    worker.close()
    if worker.alive:
        return outcome
    return Outcome(NOT_RUN, "native", f"{alone.stage} in native training: {alone.message}", seconds=outcome.seconds)


class Worker:
    """One process that judges plans."""

    def __init__(self) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="boost-random-")
        context = multiprocessing.get_context("spawn")
        self._pipe, theirs = context.Pipe()
        self._process = context.Process(target=_serve, args=(theirs, self._folder.name), daemon=True)
        self._process.start()
        theirs.close()
        self.alive = True

    def judge(self, plan: Plan, what: str) -> Outcome:
        start = time.perf_counter()
        try:
            self._pipe.send((plan.to_json(), what))
            if self._pipe.poll(TIME_LIMIT):
                outcome: Outcome = self._pipe.recv()
                return outcome
            stage, message = "hang", f"not done after {TIME_LIMIT:.0f} seconds"
        except (EOFError, OSError):
            self._process.join(10)
            errors = (Path(self._folder.name) / "errors").read_text(errors="replace")
            stage, message = "death", f"the process ended with {self._process.exitcode}: {errors[-2000:]}"
        self.alive = False
        return Outcome(FAILED, stage, message, seconds=time.perf_counter() - start)

    def close(self) -> None:
        self._pipe.close()
        self._process.join(10)
        if self._process.is_alive():
            self._process.kill()
            self._process.join()
        self._folder.cleanup()


def _serve(pipe: Connection, folder: str) -> None:
    os.environ.setdefault("ONEDNN_MAX_CPU_ISA", "AVX2")
    os.chdir(folder)  # MindSpore writes its analysis of errors to where it stands
    # What MindSpore logs of graphs that it refuses says nothing here; kept for a process that dies.
    os.dup2(os.open("errors", os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), 2)
    from .judge import Training, judge, train_natively

    gc.collect()
    gc.freeze()  # native training collects after each run, and MindSpore's modules are many objects
    training: Training | None = None
    while True:
        try:
            text, what = pipe.recv()
        except (EOFError, OSError):
            return
        plan = Plan.from_json(text)
        if what == TRAIN:
            pipe.send(train_natively(plan))
            continue
        if training is None or training.cell != replace(plan, pipeline=(), calls=()):
            training = Training(plan, Path(folder))
        pipe.send(judge(plan, training, what == JUDGE_AND_VERIFY))
