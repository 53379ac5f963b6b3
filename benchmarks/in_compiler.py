"""A training step that bc.enable rewrote against the step as it was, and against a Session of the same program.

All of a network run in one process, in turns.

    python -m benchmarks.in_compiler                          # prints the table
    python -m benchmarks.in_compiler lenet_bn,8 gpt,4         # these rows of it
    python -m benchmarks.in_compiler memory                   # what a process grows by, each in one of its own
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import mindspore as ms
from boost_compile.runtime.in_compiler import hook

import boost_compile as bc
from benchmarks.machine import peak_resident
from benchmarks.memory import MB, resident
from benchmarks.native_step import ACCUMULATE, STEPS, N, Step, native, seconds, session
from benchmarks.networks import NETWORKS as LARGER
from benchmarks.tables import ROOT, table
from benchmarks.turns import FEWEST, MOST, in_turns, milliseconds, ratio
from tests.networks import CASES, Case, build

MEASURED = ("mlp,32", "lenet_bn,8", "gpt,4", "vit,8", "resnet18,8")
"""Networks and the size of their micro-batches."""
GROWING = ("deep_mlp,2048", "resnet18,32", "gpt_medium,4")
WAYS = ("enabled", "session")
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


def grown(way: str, row: str, pipeline: str) -> int:
    """The bytes by which this process grows while it builds a cell and trains it for three windows."""
    name, size = row.split(",")
    case = replace({**CASES, **LARGER}[name], batch_size=int(size))
    batches = case.batches(N)
    before = resident()
    cell = build(case).train_step
    step: Step = native_of(cell)
    if way == "enabled":
        bc.enable(pipeline, cell=cell)
    elif way == "session":
        step = session(bc.compile(bc.capture(cell, *(ms.Tensor(x) for x in batches[0])), pipeline))
    for batch in 3 * batches:
        seconds(step, [batch])
    return peak_resident() - before


def native_of(cell: Any) -> Step:
    return lambda batch: cell(*(ms.Tensor(x) for x in batch))


MEMORY_NOTES = """\
Growth of a process of its own, in MB, that builds the training cell and trains it for three windows: the cell as it is,
with `bc.enable`, and in a Session of the same program. Goal: within 5 % of the Session."""


def memory() -> str:
    rows = []
    for row in GROWING:
        found = [row]
        for way, pipeline in (("plain", ""), *((way, p) for p in (ACCUMULATE, CHECKED) for way in WAYS)):
            command = [sys.executable, "-m", "benchmarks.in_compiler", "--grown", way, row, pipeline]
            done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
            found.append(f"{int(done.stdout.splitlines()[-1]) / MB:.0f}")
        rows.append(found)
    ways = [f"{what}, {way}" for what in ("accumulation", "with the checks") for way in ("bc.enable", "Session")]
    return "\n".join([MEMORY_NOTES, "", *table(["network, batch", "as it was", *ways], rows)])


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
    parser.add_argument("--grown", nargs=3, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.grown:
        print(grown(*options.grown))
        sys.exit()
    if options.rows == ["memory"]:
        print(memory())
        sys.exit()
    if unknown := [row for row in options.rows if row not in MEASURED]:
        parser.error(f"no row {unknown[0]}: give any of {', '.join(MEASURED)}")
    print(run(options.rows or MEASURED))
