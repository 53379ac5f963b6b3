"""Runs all benchmarks and writes `docs/benchmarks.md` (what `make bench` does).

python -m benchmarks.run [--million]
"""

from __future__ import annotations

import argparse
import sys

from benchmarks import compile_cost, less_bn, machine, models, startup, step_time
from benchmarks.peers.__main__ import run as peers
from benchmarks.tables import ROOT

PAGE = ROOT / "docs" / "benchmarks.md"
INTRODUCTION = """\
# Benchmarks

Written by `make bench` (`benchmarks/run.py`). {machine}

Medians of several repetitions, with their range. Python's cyclic garbage collector is off while a
step is measured, as it is in the commands. The graphs are synthetic (`benchmarks/synthetic.py`): built through the
project's own IR and marked as `mindspore.export` marks a training cell. How exact accumulation is stands in
[accuracy.md](accuracy.md) (`python -m benchmarks.accuracy`).
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--million", action="store_true", help="graphs of a million nodes, too (needs 8 GB)")
    million = parser.parse_args().million
    page = [INTRODUCTION.format(machine=machine.describe())]
    page.append(f"## Whole runs of boost-compile\n\n{startup.run()}")
    page.append(f"## Networks\n\n{models.run()}")
    page.append(f"## What a node costs\n\n{compile_cost.run(million)}")
    page.append(f"## Other graph IRs\n\n{peers()}")
    page.append(f"## What a pass costs in a step\n\n{step_time.run()}")
    page.append(f"## What fewer BatchNorms save\n\n{less_bn.run()}")
    PAGE.write_text("\n\n".join(part.strip() for part in page) + "\n", encoding="utf-8")
    print(f"wrote {PAGE.relative_to(ROOT)}", file=sys.stderr)


if __name__ == "__main__":
    main()
