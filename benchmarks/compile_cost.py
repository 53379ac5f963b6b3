"""What compiling costs a node: time and memory of each step, on graphs from 1,000 to 100,000 nodes and on wide nodes.

    python -m benchmarks.compile_cost [--quick]       prints the tables

Every graph is measured in processes of its own: one for time (processor time of the working thread, several
repetitions after a warm-up, the cyclic garbage collector off as `boost-compile` itself has it), one for peak memory by
tracemalloc, one for growth of the resident set while loading. Passes run on a copy of the loaded program that is made
outside of the measured time.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import subprocess
import sys
import tempfile
import tracemalloc
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from time import thread_time
from typing import Any

from benchmarks.machine import child_environment, kept, peak_resident
from benchmarks.tables import ROOT, table

STEPS = (
    "load", "copy", "verify", "anatomy", "dead-code-elimination", "common-subexpression-elimination",
    "effect-chain-minimization", "gradient-accumulation", "print", "parse", "save",
)  # fmt: skip
GRAPHS = (("layers", 1_000), ("layers", 10_000), ("layers", 100_000), ("wide", 64_000), ("clipped", 8_000))
LARGE_REPETITIONS = 3
GOALS = {
    "load": 15, "verify": 3, "dead-code-elimination": 3, "common-subexpression-elimination": 4,
    "effect-chain-minimization": 5, "gradient-accumulation": 25, "parse": 15, "save": 8,
}  # fmt: skip
"""µs a node; and for memory 2 kB a node at the peak of loading."""


@dataclass
class Step:
    """``prepare`` makes what ``run`` takes, outside of the measured time."""

    name: str
    prepare: Callable[[], Any]
    run: Callable[[Any], object]


def _steps(path: Path, scratch: Path) -> list[Step]:
    """The measured steps on the graph in ``path``; they use one loaded program, which none changes."""
    from boost_compile.ir.analysis.training.anatomy import anatomy
    from boost_compile.ir.formats.mindir.reader import read_mindir
    from boost_compile.ir.formats.storage.save import save
    from boost_compile.ir.text import parse_program, print_program
    from boost_compile.ir.verify.verifier import verify
    from boost_compile.passes.framework.pipeline import parse_pipeline

    program = read_mindir(path)
    text: list[str] = []

    def given() -> Any:
        return program

    def printed(p: Any) -> object:
        text[:] = [print_program(p)]
        return text

    steps = [
        Step("load", lambda: path, read_mindir),
        Step("copy", given, lambda p: p.copy()),
        Step("verify", given, verify),
        Step("anatomy", given, lambda p: anatomy(p.graphs["step"])),
    ]
    for name in STEPS[4:8]:
        (pass_,) = parse_pipeline(name)
        steps.append(Step(name, program.copy, pass_.run))
    steps.append(Step("print", given, printed))
    steps.append(Step("parse", lambda: text[0], parse_program))
    steps.append(Step("save", given, lambda p: save(p, scratch / "saved.mindir")))
    return steps


# -- in the measured process -------------------------------------------------------------------------------------------


def _measure_time(path: Path, scratch: Path, repetitions: int) -> dict[str, list[float]]:
    gc.disable()
    found: dict[str, list[float]] = {name: [] for name in STEPS}
    steps = _steps(path, scratch)
    warm_up = repetitions > LARGE_REPETITIONS  # a large graph warms up in its first thousand nodes
    for i in range(repetitions + warm_up):
        for step in steps:
            argument = step.prepare()
            start = thread_time()
            result = step.run(argument)
            seconds = thread_time() - start
            if i or not warm_up:
                found[step.name].append(seconds)
            del argument, result
            gc.collect()
    return found


def _measure_memory(path: Path, scratch: Path) -> dict[str, int]:
    """Peak of what Python's allocator handed out during each step, above what stood when it began, in bytes."""
    found = {}
    gc.disable()
    for step in _steps(path, scratch):
        argument = step.prepare()
        gc.collect()
        tracemalloc.start()
        result = step.run(argument)
        found[step.name] = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        del argument, result
        gc.collect()
    return found


def _measure_resident(path: Path) -> int:
    """Growth of the resident set's peak while loading, in bytes; the file's own mapped pages count too."""
    from boost_compile.ir.formats.mindir.reader import read_mindir

    gc.disable()
    before = peak_resident()
    program = read_mindir(path)
    after = peak_resident()
    del program
    return after - before


# -- the parent --------------------------------------------------------------------------------------------------------


def _child(*arguments: str) -> Any:
    command = [sys.executable, "-m", "benchmarks.compile_cost", "--child", *arguments]
    done = subprocess.run(command, cwd=ROOT, env=child_environment(), stdout=subprocess.PIPE, check=True)
    return json.loads(done.stdout)


@dataclass
class Measured:
    shape: str
    size: int
    nodes: int
    seconds: dict[str, list[float]]
    peak: dict[str, int]
    resident: int

    @property
    def title(self) -> str:
        return f"{self.shape} {self.size:,}"

    def micros(self, step: str) -> float:
        return median(self.seconds[step]) * 1e6 / self.nodes

    def spread(self, step: str) -> float:
        """Half the distance between fastest and slowest, as a part of the median."""
        times = self.seconds[step]
        return (max(times) - min(times)) / 2 / median(times)


def measure(shape: str, size: int, memory: bool = True) -> Measured:
    with tempfile.TemporaryDirectory() as scratch:
        path = str(Path(scratch) / "graph.mindir")
        nodes = _child("write", shape, str(size), path)
        repetitions = 9 if nodes < 5_000 else 5 if nodes < 50_000 else LARGE_REPETITIONS
        return Measured(
            shape,
            size,
            nodes,
            _child("time", path, scratch, str(repetitions)),
            _child("memory", path, scratch) if memory else {},
            _child("resident", path),
        )


def _as_json(shape: str, size: int) -> dict[str, Any]:
    return asdict(measure(shape, size))


def report(found: list[Measured]) -> str:
    lines = [
        "`layers N`: a residual network of Dense layers with about N nodes, thousands of nodes deep. `wide N`: one",
        "tuple of N operands, a value with as many users, 3 N nodes. `clipped N`: N weights whose gradients meet in",
        "one norm, 7 N nodes. Each is written as MindIR first and loaded from that file.",
        "",
        "Processor time of each step, median, **µs a node** (± half the range as a part of the median); on an idle",
        "machine that is the time that passes, but for the disk:",
        "",
    ]
    head = ["step", *(f"{m.title}<br>{m.nodes:,} nodes" for m in found), "flat", "goal"]
    rows = []
    by_size = [m for m in found if m.shape == "layers"]
    for step in STEPS:
        cells = [f"{m.micros(step):.1f} ± {m.spread(step):.0%}" for m in found]
        growth = by_size[-1].micros(step) / by_size[1].micros(step)
        rows.append([step, *cells, f"× {growth:.2f}", str(GOALS.get(step, ""))])
    lines += table(head, rows)
    lines += [
        "",
        f"*flat*: µs a node of `{by_size[-1].title}` over `{by_size[1].title}`; a cost that is linear in nodes",
        "gives 1, a quadratic one the ratio of the sizes.",
        "",
        "Peak memory of each step above its beginning, **kB a node** (tracemalloc), and growth of the",
        "resident set while loading, with the mapped pages of the file (goal: 2 kB a node for loading):",
        "",
    ]
    rows = [[step, *(f"{m.peak[step] / m.nodes / 1000:.2f} kB" if m.peak else "" for m in found)] for step in STEPS]
    rows.append(["load, resident set", *(f"{m.resident / m.nodes / 1000:.2f}" for m in found)])
    lines += table(["step", *(m.title for m in found)], rows)
    return "\n".join(lines)


def run(quick: bool = False) -> str:
    found = []
    for shape, size in GRAPHS[:2] if quick else GRAPHS:
        print(f"  {shape} {size:,}", file=sys.stderr, flush=True)
        found.append(Measured(**kept(f"compile_cost {shape} {size}", _as_json, shape, size)))
    return report(found)


def _in_child(what: str, *arguments: str) -> object:
    if what == "write":
        from tests.synthetic import SHAPES, write

        return write(SHAPES[arguments[0]](int(arguments[1])), arguments[2])
    if what == "time":
        return _measure_time(Path(arguments[0]), Path(arguments[1]), int(arguments[2]))
    if what == "memory":
        return _measure_memory(Path(arguments[0]), Path(arguments[1]))
    return _measure_resident(Path(arguments[0]))


if __name__ == "__main__":
    if sys.argv[1:2] == ["--child"]:
        json.dump(_in_child(*sys.argv[2:]), sys.stdout)
        sys.stdout.flush()
        os._exit(0)  # taking a large graph apart again is nobody's gain
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="the two smallest graphs alone")
    print(run(parser.parse_args().quick))
