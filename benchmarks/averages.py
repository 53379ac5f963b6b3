"""What averages of weights cost in a training step: the pass with every=1, beside a cell that is written natively.

    python -m benchmarks.averages [NETWORK [BATCH]]

The graph of the session is that of a step without averages, which the session moves when it has run. So their time is
taken within the step: two sessions of one program differ by more. All run in one process, in turns, and the median
counts. The native step is ``nn.TrainOneStepCell``, alone and with a cell behind it that moves the averages; there the
least of the turns counts. The last column is an addition in place of as many numbers by numpy: it reads two arrays and
writes one, as an average must.
"""

from __future__ import annotations

import sys
import tempfile
import time
import timeit
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from statistics import median
from typing import Any

import mindspore as ms
import numpy as np
from boost_compile.runtime.lowering.host_part import HostPart
from mindspore import nn, ops

import boost_compile as bc
from benchmarks.memory import export_at
from benchmarks.networks import NETWORKS as LARGE
from benchmarks.sessions import seconds_a_step
from benchmarks.tables import table
from tests.native import tensors
from tests.networks import CASES, Batch, build

NETWORKS = (
    ("lenet_bn", 32, 30, 9),
    ("gpt_medium", 4, 2, 6),
    ("resnet18", 8, 3, 6),
    ("resnet18", 16, 2, 6),
    ("resnet18", 32, 2, 5),
)
"""Each with its batch size, the steps of a turn and the turns."""
DECAY = 0.999

_move = ops.MultitypeFuncGraph("move")


@_move.register("Tensor", "Tensor")
def _move_average(average, weight):
    return ops.assign(average, average * DECAY + weight * (1 - DECAY))


class Averaged(nn.Cell):
    """A training step, and behind it the averages."""

    def __init__(self, step: nn.Cell) -> None:
        super().__init__(auto_prefix=False)
        self.step = step
        self.weights = ms.ParameterTuple(step.network.trainable_params())
        self.averages = self.weights.clone("average")
        self.map = ops.HyperMap()

    def construct(self, *inputs):
        loss = self.step(*inputs)
        return loss, self.map(_move, self.averages, self.weights)


def _natively(cell: nn.Cell, batches: Sequence[Batch]) -> float:
    """Seconds of a native step."""
    start = time.perf_counter()
    for batch in batches:
        result = cell(*tensors(batch))
    (result[0] if isinstance(result, tuple) else result).asnumpy()
    return (time.perf_counter() - start) / len(batches)


def _row(network: tuple[str, int, int, int], folder: Path) -> list[str]:
    name, size, steps, turns = network
    source = bc.load(str(export_at(name, size, folder)))
    case = replace(LARGE.get(name) or CASES[name], batch_size=size)
    batches = case.batches(1) * steps
    session = bc.Session(bc.compile(source, f"weight-average{{decay={DECAY}}}"))
    moving = _time_of_host(session)
    cells = [build(case).train_step, Averaged(build(case).train_step)]
    whole, best = [], [float("inf")] * len(cells)
    for turn in range(turns + 1):
        moving.clear()
        step, times = seconds_a_step(session, batches), [_natively(cell, batches) for cell in cells]
        if turn:  # the first compiles
            whole.append((step, median(moving)))
            best = list(map(min, best, times))
    step, moved = map(median, zip(*whole, strict=True))
    added = _addition(sum(v.type.size for v in source.state.values() if v.role == "weight"))
    milliseconds = [f"{1000 * value:.1f} ms" for value in (step - moved, moved)]
    shares = [f"{100 * share:.1f} %" for share in (moved / (step - moved), best[1] / best[0] - 1)]
    return [f"{name}, batch {size}", *milliseconds, *shares, f"{1000 * added:.1f} ms"]


def _time_of_host(session: bc.Session) -> list[float]:
    """The seconds that the session takes for what its graphs leave to it, which is here the averages alone: one number
    for each step from now on."""
    engine, spent = session._engine, list[float]()
    finish = engine._finish

    def timed(part: HostPart, results: tuple[Any, ...]) -> tuple[Any, ...]:
        start = time.perf_counter()
        finished = finish(part, results)
        spent.append(time.perf_counter() - start)
        return finished

    engine._finish = timed
    return spent


def _addition(elements: int) -> float:
    """Seconds of an addition in place, the least of ten."""
    one, other = np.ones(elements, np.float32), np.ones(elements, np.float32)
    return min(timeit.repeat(lambda: np.add(one, other, out=one), number=1, repeat=10))


def run(only: str = "", batch: str = "") -> str:
    chosen = [n for n in NETWORKS if only in (n[0], "") and batch in (str(n[1]), "")]
    with tempfile.TemporaryDirectory() as folder:
        rows = [_row(network, Path(folder)) for network in chosen]
    heads = ["network", "step without", "averages", "share", "native cell", "one addition"]
    return "\n".join(table(heads, rows))


if __name__ == "__main__":
    print(run(*sys.argv[1:]))
