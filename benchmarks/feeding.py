"""What feeding costs: `Session.fit` and `Model.train` beside steps on tensors that are there already.

python -m benchmarks.feeding            # prints the table
"""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

import mindspore as ms
import mindspore.dataset as ds
import numpy as np
from mindspore.train import Model

import boost_compile as bc
from benchmarks.tables import table
from benchmarks.turns import in_turns, milliseconds, ratio
from tests.networks import CASES, Batch, Case, build, export

MEASURED = {"lenet_bn, 32": 128, "resnet18, 8": 10}
"""The micro-batches of an epoch by the network and the samples of a micro-batch."""
TURNS = 15
Epoch = Callable[[], object]
"""Trains for one epoch, and waits for its end."""


def rows_of(columns: Batch) -> ds.Dataset:
    """The samples from Python, one by one, each through a function, as batches."""
    rows = [tuple(np.asarray(column[i]) for column in columns) for i in range(len(columns[0]))]
    return ds.GeneratorDataset(rows, ["image", "label"], shuffle=False).map(lambda image: image * 1.0, ["image"])


def epochs(case: Case, count: int, folder: Path) -> dict[str, Epoch]:
    batches = case.batches(count)
    columns = tuple(np.concatenate(column) for column in zip(*batches, strict=True))
    tensors = [tuple(ms.Tensor(array) for array in batch) for batch in batches]
    slices = ds.NumpySlicesDataset(columns, ["image", "label"], shuffle=False).batch(case.batch_size)
    mapped = rows_of(columns).batch(case.batch_size)
    session = bc.Session(str(export(case, folder)))
    native = build(case).train_step
    model = Model(native)

    def steps(step: Callable[..., object], loss: Callable[[object], object]) -> Epoch:
        def epoch() -> None:
            for batch in tensors:
                result = step(*batch)
            loss(result)

        return epoch

    return {
        "Session.step": steps(session.step, lambda result: result.loss),  # type: ignore[attr-defined]
        "fit: arrays": lambda: session.fit(columns),
        "fit: slices": lambda: session.fit(slices),
        "fit: generator, map": lambda: session.fit(mapped),
        "TrainOneStepCell": steps(native, lambda result: result.asnumpy()),  # type: ignore[attr-defined]
        "Model.train: slices": lambda: model.train(1, slices, dataset_sink_mode=False),
        "Model.train: generator, map": lambda: model.train(1, mapped, dataset_sink_mode=False),
    }


def measure(case: Case, count: int) -> dict[str, list[float]]:
    """Seconds of a micro-batch, in turns."""
    with tempfile.TemporaryDirectory() as folder:
        ways = epochs(case, count, Path(folder))

    def seconds(epoch: Epoch) -> float:
        begun = time.perf_counter()
        epoch()
        return (time.perf_counter() - begun) / count

    times = in_turns([partial(seconds, epoch) for epoch in ways.values()], fewest=TURNS, most=TURNS)
    return dict(zip(ways, times, strict=True))


NOTES = f"""\
Micro-batches in a second, by those of steps on tensors that are there already (the first column, in ms a micro-batch):
medians of {TURNS} epochs, all in turns in one process, of ratios the median of the turns'. *fit: arrays*: `Session.fit`
over numpy arrays, shuffled; *slices*: `NumpySlicesDataset`, batched; *generator, map*: `GeneratorDataset` with a
function of Python on each sample, batched. *Model.train*: over `nn.TrainOneStepCell`, by that cell's own steps; on a
CPU MindSpore does not sink datasets. An epoch has
{" and ".join(f"{count} micro-batches ({row})" for row, count in MEASURED.items())}. Goal of fit: 0.97.
`fit` looks at all state for NaN before its first and after its last step.
The threads that read a dataset take the cores from the step, in `fit` and in `Model.train`."""


def run(measured: Sequence[str] = tuple(MEASURED)) -> str:
    rows = []
    for row in measured:
        name, size = row.split(",")
        times = measure(replace(CASES[name], batch_size=int(size)), MEASURED[row])
        cells = [row]
        bare = ""
        for way, of in times.items():
            if way in ("Session.step", "TrainOneStepCell"):
                bare = way
                cells.append(milliseconds(of))
            else:
                cells.append(f"{ratio(times[bare], of):.3f}")
        rows.append(cells)
    return "\n".join([NOTES, "", *table(["network, batch", *times], rows)])


if __name__ == "__main__":
    print(run(tuple(sys.argv[1:]) or tuple(MEASURED)))
