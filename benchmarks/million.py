"""A graph of a million nodes, once: read, accumulated, written. Needs 8 GB.

    python -m benchmarks.million [--nodes N]       prints the table

The graph is `layers` of `tests/synthetic.py`. One process writes it, another does the steps as `boost-compile` does.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from time import perf_counter, process_time

from benchmarks.machine import child_environment, peak_resident
from benchmarks.tables import ROOT, table

NODES = 1_000_000
PIPELINE = "gradient-accumulation{steps=4}"


def _steps(path: Path, folder: Path) -> list[tuple[str, float, float, int]]:
    """Name, seconds of processor time and by the clock, peak of the resident set since the process began."""
    import boost_compile as bc

    gc.disable()
    found = [("the process, modules imported", 0.0, 0.0, peak_resident())]

    def measured(name: str, begun: tuple[float, float]) -> None:
        found.append((name, process_time() - begun[0], perf_counter() - begun[1], peak_resident()))

    begun = process_time(), perf_counter()
    program = bc.load(path)
    measured("load", begun)
    begun = process_time(), perf_counter()
    compiled = bc.compile(program, PIPELINE)
    measured(f"`{PIPELINE}`, verified before and after", begun)
    begun = process_time(), perf_counter()
    compiled.save(folder / "saved.boost")
    measured("save", begun)
    return found


def _child(*arguments: str) -> str:
    command = [sys.executable, "-m", "benchmarks.million", "--child", *arguments]
    done = subprocess.run(command, cwd=ROOT, env=child_environment(), stdout=subprocess.PIPE, text=True, check=True)
    return done.stdout


def run(size: int = NODES) -> str:
    with tempfile.TemporaryDirectory() as scratch:
        path = str(Path(scratch) / "graph.mindir")
        nodes = json.loads(_child("write", str(size), path))
        file_size = Path(path).stat().st_size
        rows = [
            [
                name,
                *(f"{s:.1f} s" if wall else "" for s in (processor, wall)),
                f"{processor * 1e6 / nodes:.1f}" if wall else "",
                f"{peak / 1e9:.2f} GB",
                f"{peak / 1000 / nodes:.2f}",
            ]
            for name, processor, wall, peak in json.loads(_child("steps", path, scratch))
        ]
    head = ["step", "processor", "by the clock", "µs a node", "peak resident set so far", "kB a node"]
    title = f"`layers {size:,}`, {nodes:,} nodes in a file of {file_size / 1e6:.0f} MB. One run, one process:"
    return "\n".join([title, "", *table(head, rows)])


if __name__ == "__main__":
    if sys.argv[1:2] == ["--child"]:
        what, *rest = sys.argv[2:]
        if what == "write":
            from tests.synthetic import layers, write

            print(json.dumps(write(layers(int(rest[0])), rest[1])))
        else:
            print(json.dumps(_steps(Path(rest[0]), Path(rest[1]))))
        sys.stdout.flush()
        os._exit(0)  # taking a million nodes apart again is nobody's gain
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", type=int, default=NODES, help="how many nodes (default: %(default)s)")
    print(run(parser.parse_args().nodes))
