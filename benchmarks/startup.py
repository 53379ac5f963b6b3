"""What a whole run of `boost-compile` costs: start-up, a graph of 2,000 nodes, and 200 MB of weights.

    python -m benchmarks.startup        prints the tables

Every run is a fresh process. Bytes are in the page cache, as right after an export.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from time import perf_counter

from benchmarks.machine import child_environment, peak_resident
from benchmarks.tables import ROOT, table
from tests.synthetic import layers, write

NODES = 2_000
WIDTH = 440
"""Of the layers whose weights and slots make up 200 MB."""
REPETITIONS = 11
PIPELINE = "common-subexpression-elimination,effect-chain-minimization,dead-code-elimination"
COMMAND = [sys.executable, "-c", "from boost_compile.tools.compile import main; main()"]
INSPECT = [sys.executable, "-c", "from boost_compile.tools.inspect import main; main()"]
WATCHED = [sys.executable, "-m", "benchmarks.startup", "--watched"]


def _watched(arguments: Sequence[str]) -> None:
    """`boost-compile` in this process; on stderr, at exit: the peak of the resident set, and whether MindSpore came."""
    import atexit

    atexit.register(lambda: print(peak_resident(), int("mindspore" in sys.modules), file=sys.stderr))
    sys.argv[1:] = arguments
    from boost_compile.tools.compile import main

    main()


@dataclass
class Times:
    """Of several runs of one command: seconds that passed, and seconds of processor time."""

    wall: list[float]
    processor: list[float]

    def cells(self) -> list[str]:
        low, middle, high = (round(f(self.wall) * 1000) for f in (min, median, max))
        return [f"{middle} ms ({low} to {high})", f"{median(self.processor) * 1000:.0f} ms"]


def seconds(command: Sequence[str], repetitions: int = REPETITIONS) -> Times:
    """Whole runs, after one that warms the file cache up."""
    found = Times([], [])
    for i in range(repetitions + 1):
        start = perf_counter()
        child = subprocess.Popen(command, env=child_environment(), stdout=subprocess.DEVNULL)
        _, status, usage = os.wait4(child.pid, 0)
        wall = perf_counter() - start
        child.returncode = os.waitstatus_to_exitcode(status)
        if child.returncode:
            raise subprocess.CalledProcessError(child.returncode, command)
        if i:
            found.wall.append(wall)
            found.processor.append(usage.ru_utime + usage.ru_stime)
    return found


def _ratio(times: Times, base: Times) -> str:
    return f"{median(times.wall) / median(base.wall):.1f}"


def _starts() -> list[str]:
    bare = seconds([sys.executable, "-c", "pass"])
    rows = [["`python -c pass`", *bare.cells(), "1.0"]]
    for name, command in (
        ("boost-compile --help", [*COMMAND, "--help"]),
        ("boost-inspect --help", [*INSPECT, "--help"]),
        ("boost-compile --list-passes", [*COMMAND, "--list-passes"]),
    ):
        times = seconds(command)
        rows.append([f"`{name}`", *times.cells(), _ratio(times, bare)])
    head = ["process", "median (fastest to slowest)", "processor", "× bare Python"]
    return [*table(head, rows), "", "Goal: under 250 ms."]


def _compiles(scratch: Path) -> list[str]:
    """Whole runs on a graph of 2,000 nodes, and where the time goes as the command itself measures it."""
    source = scratch / "graph.mindir"
    nodes = write(layers(NODES), source)
    rows = []
    for title, arguments in (
        ("clean-up (default)", ["--passes", PIPELINE]),
        ("gradient accumulation", ["--accumulate", "4"]),
        ("gradient accumulation, one MindIR", ["--accumulate", "4", "--emit", "mindir"]),
    ):
        output = str(scratch / ("out.mindir" if "mindir" in arguments else "out.boost"))
        command = [*COMMAND, str(source), "-o", output, *arguments]
        whole = seconds([*command, "-q"])
        parts: dict[str, list[float]] = {}
        for _ in range(5):
            done = subprocess.run([*command, "--json"], stdout=subprocess.PIPE, check=True)
            for name, value in json.loads(done.stdout)["seconds"].items():
                parts.setdefault(name, []).append(value)
        split = ", ".join(f"{name} {median(times) * 1000:.0f}" for name, times in parts.items())
        rows.append([title, *whole.cells(), split])
    head = ["pipeline", "whole process, median (fastest to slowest)", "processor", "of it, ms"]
    return [
        f"{nodes:,} nodes, with verification before and after the passes:",
        "",
        *table(head, rows),
        "",
        "Goal: under a second.",
    ]


def _weights(scratch: Path) -> list[str]:
    """A state of 200 MB: what reading, rewriting and writing it costs beside copying its bytes."""
    source, output = scratch / "big.mindir", scratch / "big.boost"
    write(layers(NODES, WIDTH, os.urandom(4 * WIDTH * WIDTH)), source)
    size = source.stat().st_size
    copy = seconds([sys.executable, "-c", COPY, str(source), str(scratch / "copy")], 5)
    rows = [["copy of the file (read, write, fsync)", *copy.cells(), "1.0", ""]]
    for title, out in (("to a program directory", output), ("to one MindIR", scratch / "out.mindir")):
        arguments = [str(source), "-q", "-o", str(out)]
        times = seconds([*COMMAND, *arguments], 5)
        done = subprocess.run(
            [*WATCHED, *arguments], cwd=ROOT, env=child_environment(), stderr=subprocess.PIPE, check=True
        )
        peak, mindspore = map(int, done.stderr.split())
        assert not mindspore
        rows.append(
            [
                f"`boost-compile` {title}",
                *times.cells(),
                _ratio(times, copy),
                f"{peak / 1e6:.0f} MB",
            ]
        )
    head = ["", "median (fastest to slowest)", "processor", "× copy", "peak memory"]
    return [
        f"A file of {size / 1e6:.0f} MB, nearly all of it weights. Reading includes the sha256 of the file, which the",
        "program records. Memory: the peak of the resident set, pages of the mapped file included; bare Python takes",
        "about 10 MB.",
        "",
        *table(head, rows),
    ]


COPY = """
import os, shutil, sys
with open(sys.argv[1], "rb") as a, open(sys.argv[2], "wb") as b:
    shutil.copyfileobj(a, b, 1 << 20)
    b.flush()
    os.fsync(b.fileno())
"""


def run() -> str:
    with tempfile.TemporaryDirectory() as folder:
        scratch = Path(folder)
        sections = [
            ["### Start-up", "", *_starts()],
            ["### A graph of 2,000 nodes", "", *_compiles(scratch)],
            ["### 200 MB of weights", "", *_weights(scratch)],
        ]
    return "\n\n".join("\n".join(section) for section in sections)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--watched"]:
        _watched(sys.argv[2:])
    print(run())
