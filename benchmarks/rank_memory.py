"""Ranks whose optimizer's state is dealt out, next to ranks that hold all of it, on CPU: memory and time of a step.

Two GPT with AdamWeightDecay: of 23 million weights, which whole weights balance, and of 18 million, nearly all of them
in two matrices, which are cut. Every rank is a process. What it holds is its own anonymous memory (``Anonymous`` in
``/proc/self/smaps_rollup``): libraries and the mapped program are no part of it. It is read when MindSpore is loaded,
and after some cycles. Times are of one job that trains all programs of a table in turns.

    python -m benchmarks.rank_memory          # prints the tables
    python -m benchmarks.rank_memory memory   # one of them: memory, pieces, step, cycle, step-pieces, cycle-pieces
"""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from statistics import median

import numpy as np
from boost_compile.ir.rewrite.ranks.dealing import bytes_of_ranks

import boost_compile as bc
from benchmarks.memory import MB, export_at, random_values
from benchmarks.tables import table
from tests.ranks import report, run_ranks

LARGE, WORDS, BATCH, CYCLES = "gpt_large", "gpt_words", 1, 4
RANKS = 4
PLAIN, CYCLE = "data-parallel", "gradient-accumulation{steps=4},data-parallel"
FIRST, FLAT, AUTO = (f"shard-optimizer{{{options}}}" for options in ("stage=1", "partition=flat", "partition=auto"))
SECOND, SECOND_FLAT = (f"shard-optimizer{{stage=2{options}}}" for options in ("", ",partition=flat"))
MEMORY = {
    "memory": ((LARGE, PLAIN, (FIRST,)), (LARGE, CYCLE, (SECOND,))),
    "pieces": ((WORDS, PLAIN, (FIRST, FLAT, AUTO)), (WORDS, CYCLE, (SECOND_FLAT,))),
}
TIMES = {
    "step": (2, 12, LARGE, PLAIN, (FIRST,)),
    "cycle": (2, 12, LARGE, CYCLE, (FIRST, SECOND)),
    "step-pieces": (RANKS, 10, WORDS, PLAIN, (FIRST, FLAT)),
    "cycle-pieces": (RANKS, 5, WORDS, CYCLE, (FLAT, SECOND_FLAT)),
}
"""By table: ranks and cycles, then network, what is compiled without the pass, and the pass. Without accumulation stage
2 is stage 1. Two ranks are as many as there are cores; they would not cut the second network."""


def anonymous() -> int:
    """Bytes of this process that are no file's."""
    for line in Path("/proc/self/smaps_rollup").read_text().splitlines():
        if line.startswith("Anonymous:"):
            return int(line.split()[1]) * 1024
    raise OSError("no Anonymous in /proc/self/smaps_rollup: this benchmark needs Linux")


def main() -> None:
    """A rank: trains the programs, and reports what it holds and how long a cycle of each takes."""
    import mindspore

    mindspore.set_device("CPU")
    before = anonymous()
    cycles, paths = int(sys.argv[1]), sys.argv[2:]
    sessions = [bc.Session(bc.load(path)) for path in paths]
    rng = np.random.default_rng(0)
    times: list[list[float]] = [[] for _ in sessions]
    for _ in range(cycles):
        for session, taken in zip(sessions, times, strict=True):
            start = time.perf_counter()
            for _ in range(session.cycle_length):
                batch = [random_values(rng, value.type) for value in session.consumer.inputs]
                np.asarray(session.step(*batch).loss)
            taken.append(time.perf_counter() - start)
    report({"memory": np.array(anonymous() - before), "times": np.array([median(taken[2:]) for taken in times])})


def compiled(network: str, pipeline: str, folder: Path) -> tuple[bc.Program, str]:
    program = bc.compile(bc.load(str(export_at(network, BATCH, folder))), pipeline)
    path = folder / f"{network}-{abs(hash(pipeline))}.boost"
    program.save(path)
    return program, str(path)


def memory_rows(folder: Path, network: str, plain: str, options: Sequence[str]) -> list[Sequence[str]]:
    """(network and pass, MB that a rank grew by: the mean and the most, MB less than data-parallel, MB of state less,
    the one as a part of the other and of all that was dealt out, the most state over the mean)."""
    rows: list[Sequence[str]] = []
    base = np.zeros(())
    for pipeline in (plain, *(f"{plain},{option}" for option in options)):
        program, path = compiled(network, pipeline, folder)
        grown = np.array([r["memory"] for r in run_ranks("benchmarks.rank_memory", RANKS, str(CYCLES), path)]) / MB
        held = np.array(bytes_of_ranks(program, RANKS)) / MB
        row = [f"{network} `{pipeline}`", f"{grown.mean():.1f}", f"{grown.max():.1f}"]
        if held.any():
            dealt = bytes_of_ranks(program, 1)[0] / MB
            less, state = base.mean() - grown.mean(), dealt - held.mean()
            off = f"{100 * (held.max() / held.mean() - 1):.1f} %"
            row += [f"{less:.1f}", f"{state:.1f}", f"{100 * less / state:.0f} %", f"{100 * less / dealt:.1f} %", off]
        else:
            base = grown
            row += [""] * 5
        rows.append(row)
        print(row, file=sys.stderr)
    return rows


def time_rows(
    folder: Path, ranks: int, cycles: int, network: str, plain: str, options: Sequence[str]
) -> list[Sequence[str]]:
    """(network and pass, ms a cycle, as a part of that of data-parallel): the slowest rank of one job that trains all
    in turns, the median but for the first two cycles."""
    pipelines = (plain, *(f"{plain},{option}" for option in options))
    paths = [compiled(network, pipeline, folder)[1] for pipeline in pipelines]
    reports = run_ranks("benchmarks.rank_memory", ranks, str(cycles), *paths)
    times = 1e3 * np.array([r["times"] for r in reports]).max(axis=0)
    return [[f"{network} `{p}`", f"{ms:.0f}", f"{ms / times[0]:.2f}"] for p, ms in zip(pipelines, times, strict=True)]


def run(parts: Sequence[str]) -> str:
    lines: list[str] = []
    with tempfile.TemporaryDirectory() as scratch:
        for part in parts:
            if part in MEMORY:
                ranks, found = RANKS, [row for case in MEMORY[part] for row in memory_rows(Path(scratch), *case)]
                heads = [
                    "",
                    "MB, mean",
                    "most",
                    "less",
                    "state less",
                    "part",
                    "of what is dealt out",
                    "most over the mean",
                ]
            else:
                ranks, found = TIMES[part][0], time_rows(Path(scratch), *TIMES[part])
                heads = ["", "ms", "of data-parallel"]
            lines += [f"{ranks} ranks:", "", *table(heads, found), ""]
    return "\n".join(lines)


if __name__ == "__main__":
    print(run(sys.argv[1:] or (*MEMORY, *TIMES)))
