"""A training step that bc.enable rewrote against the step as it was, and against a Session of the same program.

All of a network run in one process, in turns.

    python -m benchmarks.in_compiler                          # prints the table
    python -m benchmarks.in_compiler lenet_bn,8 gpt,4         # these rows of it
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence
from dataclasses import replace
from functools import partial

import mindspore as ms
from boost_compile.runtime.in_compiler import hook

import boost_compile as bc
from benchmarks.native_step import ACCUMULATE, STEPS, N, Step, native, seconds, session
from benchmarks.networks import NETWORKS as LARGER
from benchmarks.tables import table
from benchmarks.turns import FEWEST, MOST, in_turns, milliseconds, ratio
from tests.networks import CASES, Case, build

MEASURED = ("mlp,32", "lenet_bn,8", "gpt,4", "vit,8", "resnet18,8")
"""Networks and the size of their micro-batches."""
CHECKED = f"{ACCUMULATE},overflow-check,clip-gradients{{limit=1.0}}"
Share = tuple[float, float]
"""The seconds of a first step, and those of them that the hook took."""


def enabled(case: Case, pipeline: str) -> tuple[Step, Share]:
    cell, inside = build(case).train_step, 0.0
    rewrite = hook.rewrite

    def timed(*graph):
        nonlocal inside
        start = time.perf_counter()
        try:
            return rewrite(*graph)
        finally:
            inside += time.perf_counter() - start

    def step(batch):
        return cell(*(ms.Tensor(x) for x in batch))

    hook.rewrite = timed
    try:
        with bc.enable(pipeline, cell=cell):
            start = time.perf_counter()
            step(case.batches(1)[0])
            whole = time.perf_counter() - start
    finally:
        hook.rewrite = rewrite
    return step, (whole, inside)


def measure(case: Case) -> tuple[dict[str, list[float]], Share]:
    enabled(replace(CASES["mlp"]), ACCUMULATE)  # imports what the hook needs
    step, share = enabled(case, ACCUMULATE)
    captured = bc.capture(build(case).train_step, *(ms.Tensor(x) for x in case.batches(1)[0]))
    steps: dict[str, Step] = {
        "as it was": native(case),
        "accumulation": step,
        "with the checks": enabled(case, CHECKED)[0],
        "accumulation, Session": session(bc.compile(captured, ACCUMULATE)),
        "with the checks, Session": session(bc.compile(captured, CHECKED)),
    }
    batches = case.batches(STEPS)
    timed = [partial(seconds, step, batches) for step in steps.values()]
    return dict(zip(steps, in_turns(timed), strict=True)), share


NOTES = f"""\
Time of a micro-batch of the step that `bc.enable` rewrote, by that of the same cell as it was: the median ratio of
{FEWEST} to {MOST} turns of {STEPS} micro-batches, all in turns in one process. *accumulation* is over {N} of them;
*the checks* are overflow-check and clip-gradients. *Session*: the same program in a session. *first step*: its
seconds, and the part of them that reading, rewriting and writing the graph took. Goals: accumulation at most 1.05,
with the checks 1.10, the part at most 5 %."""


def run(measured: Sequence[str] = MEASURED) -> str:
    rows = []
    for row in measured:
        name, size = row.split(",")
        times, (whole, inside) = measure(replace({**CASES, **LARGER}[name], batch_size=int(size)))
        base = times["as it was"]
        ratios = [f"{ratio(taken, base):.2f}" for taken in times.values() if taken is not base]
        rows.append([f"{name}, {size}", milliseconds(base), *ratios, f"{whole:.1f} s", f"{inside / whole:.0%}"])
    return "\n".join([NOTES, "", *table(["network, batch", *times, "first step", "part of it"], rows)])


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("rows", nargs="*", metavar="NETWORK,SIZE", help=" ".join(MEASURED))
    options = parser.parse_args()
    if unknown := [row for row in options.rows if row not in MEASURED]:
        parser.error(f"no row {unknown[0]}: give any of {', '.join(MEASURED)}")
    print(run(options.rows or MEASURED))
