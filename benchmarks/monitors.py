"""What monitors cost in a training step: all of them, every ten cycles, beside the same program without.

    python -m benchmarks.monitors [NETWORK]

Both run in one process, in turns of ten steps, one of which is measured. The least of the turns counts: the time on the
wall, and behind it the processor time of all threads, which other work on the machine changes less.
"""

from __future__ import annotations

import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path

import boost_compile as bc
from benchmarks.memory import export_at
from benchmarks.networks import NETWORKS as LARGE
from benchmarks.sessions import seconds_a_step
from benchmarks.tables import table
from tests.networks import CASES

NETWORKS = (("lenet_bn", 32, 15), ("gpt_medium", 4, 3), ("resnet18", 8, 3))
"""Each with its batch size, and how many turns there are."""
EVERY = 10
BASE = "gradient-accumulation{steps=2}"
FOUR = "gradient-norm,weight-norm,update-ratio,non-finite"
ROWS = (("", FOUR, EVERY), (BASE, f"{FOUR},noise-scale", EVERY), ("", FOUR, 1))


def _ratio(path: Path, network: tuple[str, int, int], base: str, what: str, every: int) -> str:
    """Time of a micro-batch without monitors, and what they add."""
    (name, size, turns), source = network, bc.load(str(path))
    plain = bc.compile(source, base) if base else source
    sessions = [bc.Session(p) for p in (plain, bc.compile(plain, f"monitor{{what=[{what}],every={every}}}"))]
    case = replace(LARGE.get(name) or CASES[name], batch_size=size)
    batches = case.batches(1) * (EVERY * plain.micro_batches())
    times: tuple[list[tuple[float, float]], list[tuple[float, float]]] = ([], [])
    for turn in range(turns + 1):
        for session, into in zip(sessions, times, strict=True):
            start = time.process_time()
            wall = seconds_a_step(session, batches)
            if turn:  # the first compiles
                into.append((wall, (time.process_time() - start) / len(batches)))
    before, after = ([min(clock) for clock in zip(*found, strict=True)] for found in times)
    more = [f"{100 * (b / a - 1):+.1f} %" for a, b in zip(before, after, strict=True)]
    return f"{before[0] * 1000:.2f} ms, {more[0]} ({more[1]})"


def run(only: str = "") -> str:
    networks = [n for n in NETWORKS if only in (n[0], "")]
    with tempfile.TemporaryDirectory() as folder:
        paths = [(export_at(*network[:2], Path(folder)), network) for network in networks]
        rows = [
            [f"`{what}`", f"every {every}", base or "none", *(_ratio(*path, base, what, every) for path in paths)]
            for base, what, every in ROWS
        ]
    heads = ["monitors", "cycles", "on top of", *(f"{name}, batch {size}" for name, size, _ in networks)]
    return "\n".join(table(heads, rows))


if __name__ == "__main__":
    print(run(*sys.argv[1:]))
