"""A training step against MindSpore's own ways to train: time of a micro-batch, per sample.

All programs of a network run in one process, in turns, in the same MindSpore with the same settings.

    python -m benchmarks.native_step                          # prints the table
    python -m benchmarks.native_step lenet_bn,8 gpt,4         # these rows of it
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import mindspore as ms
from mindspore import nn, ops

import boost_compile as bc
from benchmarks.networks import NETWORKS as LARGER
from benchmarks.tables import table
from benchmarks.turns import FEWEST, MOST, in_turns, milliseconds, ratio
from tests.networks import CASES, Batch, Case, build, export

N = 4
STEPS = 8
MEASURED = (
    "lenet_bn,8", "lenet_bn,32", "lenet_bn_adam,32", "resnet18,4", "resnet18,8", "resnet18,32", "resnet18_adam,8",
    "mobilenet_v2,8", "gpt,4", "gpt,32", "gpt_medium,4",
)  # fmt: skip
"""Networks and the size of their micro-batches."""
CLEAN_UP = "effect-chain-minimization,common-subexpression-elimination,dead-code-elimination"
ACCUMULATE = f"gradient-accumulation{{steps={N}}}"
Step = Callable[[Batch], Any]
"""Consumes one micro-batch; what it returns can be waited for."""

_add = ops.MultitypeFuncGraph("add")
_clear = ops.MultitypeFuncGraph("clear")


@_add.register("Tensor", "Tensor")
def _add_gradient(accumulated, gradient):
    return ops.assign_add(accumulated, gradient)


@_clear.register("Tensor")
def _clear_gradient(accumulated):
    return ops.assign(accumulated, ops.zeros_like(accumulated))


class Accumulate(nn.Cell):
    """The first of the three cells of MindSpore's tutorial "Gradient accumulation"; N divides the loss's gradient, so
    that the optimizer sees the mean as ours does."""

    def __init__(self, network: nn.Cell, weights: ms.ParameterTuple, sums: ms.ParameterTuple) -> None:
        super().__init__(auto_prefix=False)
        self.network = network
        self.network.set_grad()
        self.weights, self.sums = weights, sums
        self.grad = ops.GradOperation(get_by_list=True, sens_param=True)
        self.map = ops.HyperMap()

    def construct(self, *inputs):
        loss = self.network(*inputs)
        gradients = self.grad(self.network, self.weights)(*inputs, ops.fill(loss.dtype, loss.shape, 1.0 / N))
        return ops.depend(loss, self.map(_add, self.sums, gradients))


class Update(nn.Cell):
    def __init__(self, optimizer: nn.Cell, sums: ms.ParameterTuple) -> None:
        super().__init__(auto_prefix=False)
        self.optimizer, self.sums = optimizer, sums

    def construct(self):
        return self.optimizer(self.sums)


class Clear(nn.Cell):
    def __init__(self, sums: ms.ParameterTuple) -> None:
        super().__init__(auto_prefix=False)
        self.sums = sums
        self.map = ops.HyperMap()

    def construct(self):
        return self.map(_clear, self.sums)


def tutorial(case: Case) -> Step:
    built = build(case)
    weights = built.optimizer.parameters
    sums = weights.clone(prefix="sum", init="zeros")
    first = Accumulate(built.loss_network, weights, sums)
    second, third = Update(built.optimizer, sums), Clear(sums)
    for cell in (first, second, third):
        cell.set_train()
    count = 0

    def step(batch: Batch) -> Any:
        nonlocal count
        loss = first(*(ms.Tensor(x) for x in batch))
        count += 1
        if count % N == 0:
            second()
            third()
        return loss

    return step


def native(case: Case) -> Step:
    cell = build(case).train_step
    return lambda batch: cell(*(ms.Tensor(x) for x in batch))


def graph_cell(path: Path) -> Step:
    cell = nn.GraphCell(ms.load(str(path)))
    return lambda batch: cell(*(ms.Tensor(x) for x in batch))


def session(program: bc.Program) -> Step:
    made = bc.Session(program)
    return lambda batch: made.step(*batch)


def _wait(result: Any) -> None:
    loss = result.loss if hasattr(result, "loss") else result
    if isinstance(loss, ms.Tensor):
        loss.asnumpy()


def seconds(step: Step, batches: Sequence[Batch]) -> float:
    """Mean of one micro-batch; waits for the device once, at the end."""
    start = time.perf_counter()
    for batch in batches:
        result = step(batch)
    _wait(result)
    return (time.perf_counter() - start) / len(batches)


def measure(case: Case, folder: Path) -> dict[str, list[float]]:
    path = export(case, folder)
    source = bc.load(str(path))
    one = folder / "accumulated.mindir"
    bc.compile(source, ACCUMULATE).save(str(one))
    steps: dict[str, Step] = {
        "TrainOneStepCell": native(case),
        "GraphCell": graph_cell(path),
        "Session.step": session(source),
        "clean-up": session(bc.compile(source, CLEAN_UP)),
        "accumulation": session(bc.compile(source, ACCUMULATE)),
        "fused": session(bc.compile(source, f"gradient-accumulation{{steps={N},split=fused}}")),
        "one MindIR": graph_cell(one),
        "one MindIR, session": session(bc.load(str(one))),
        "tutorial": tutorial(case),
    }
    batches = case.batches(STEPS)
    timed = [partial(seconds, step, batches) for step in steps.values()]
    return dict(zip(steps, in_turns(timed), strict=True))


NOTES = f"""\
Time of a micro-batch, wall clock, by that of `nn.TrainOneStepCell` at the same micro-batch: the median ratio of
{FEWEST} to {MOST} turns of {STEPS} micro-batches, all in turns in one process.
*GraphCell*: the exported file through `mindspore.load` and `nn.GraphCell`. *Session.step*: the untouched file;
*clean-up*: after the passes that run by default. *accumulation*: over {N} micro-batches, `split=apply` and *fused*;
*one MindIR*: the self-contained form, through `nn.GraphCell` and in a session. Where cores are few, the callers of
MindSpore's own cells lose time that a session does not ([mindir.md](mindir.md), *Running a graph*).
*tutorial*: the three cells of MindSpore's tutorial on gradient accumulation. Goals: Session.step at most 1.02 of
TrainOneStepCell for LeNet and 1.00 for resnet18, accumulation 1.00 of it and 0.90 of the tutorial's."""


def run(measured: Sequence[str] = MEASURED) -> str:
    rows = []
    for row in measured:
        name, size = row.split(",")
        case = replace({**CASES, **LARGER}[name], batch_size=int(size))
        with tempfile.TemporaryDirectory() as folder:
            times = measure(case, Path(folder))
        base = times["TrainOneStepCell"]
        rows.append(
            [
                f"{name}, {size}",
                milliseconds(base),
                *(f"{ratio(taken, base):.2f}" for taken in times.values() if taken is not base),
                f"{ratio(times['accumulation'], times['tutorial']):.2f}",
            ]
        )
    columns = ["network, batch", *times, "accumulation by tutorial"]
    return "\n".join([NOTES, "", *table(columns, rows)])


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("rows", nargs="*", metavar="NETWORK,SIZE", help=" ".join(MEASURED))
    options = parser.parse_args()
    if unknown := [row for row in options.rows if row not in MEASURED]:
        parser.error(f"no row {unknown[0]}: give any of {' '.join(MEASURED)}")
    print(run(options.rows or MEASURED))
