"""Runs benchmarks and writes their sections of `docs/benchmarks.md` (all of them: what `make bench` does).

python -m benchmarks.run [SECTION ...]
python -m benchmarks.run native_step --rows lenet_bn,8 gpt,4     # a part of a section, whose other rows stay
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import replace
from datetime import date

from benchmarks.figures import Record, figures, record
from benchmarks.machine import child_environment, describe, machine_type, yardstick
from benchmarks.tables import ROOT

PAGE = ROOT / "docs" / "benchmarks.md"
INTRODUCTION = """\
# Benchmarks

Written by `make bench` (`benchmarks/run.py`); `python -m benchmarks.run SECTION` measures one section anew, and
`python -m benchmarks.SECTION` prints it. Above each stands when and where it was measured.

Medians of several repetitions, with their range. Python's cyclic garbage collector is off while a
step of the compiler is measured, as it is in the commands. The graphs are synthetic (`tests/synthetic.py`): built
through the project's own IR and marked as `mindspore.export` marks a training cell. How exact accumulation is stands in
[accuracy.md](accuracy.md) (`python -m benchmarks.accuracy`).

Every run is recorded by the type of the machine, in `benchmarks/results.json`. `make bench-check` measures start-up
and the cost of a node anew (`python -m benchmarks.check SECTION` another section). It fails where a figure is more than
5 % above the last run on the same type of machine, beyond the spread of both runs. Judged are memory, and times whose
spread the table gives. A time is divided by that of a piece of plain Python, which is measured beside it, and counts as
worse only where three runs agree."""
SECTIONS = {
    "startup": "Whole runs of boost-compile",
    "models": "Networks",
    "compile_cost": "What a node costs",
    "million": "A million nodes",
    "peers": "Other graph IRs",
    "call_cost": "What a call costs beside the graph",
    "native_step": "A step against MindSpore's own",
    "step_time": "What a pass costs in a step",
    "less_bn": "What fewer BatchNorms save",
    "memory": "Memory",
    "scaling": "Large graphs and many ranks",
}


def _measured() -> dict[str, str]:
    """The sections of the page as it stands, by heading."""
    parts = PAGE.read_text(encoding="utf-8").split("\n## ")[1:] if PAGE.exists() else []
    return {heading: body.strip() for heading, _, body in (part.partition("\n") for part in parts)}


def measure(section: str, options: Sequence[str] = ()) -> tuple[str, Record]:
    """What a benchmark prints, in a process of its own (with MindSpore imported, protobuf is slow), and its figures."""
    command = [sys.executable, "-m", f"benchmarks.{section}", *options]
    load, fast = os.getloadavg()[0], yardstick()
    done = subprocess.run(command, cwd=ROOT, env=child_environment(), stdout=subprocess.PIPE, text=True, check=True)
    printed = done.stdout.strip()
    day = date.today().isoformat()
    return printed, Record(day, round(load, 1), round(min(fast, yardstick()), 6), figures(printed))


def joined(before: str, where: str, printed: str) -> str:
    """The body of a section of which some rows were measured anew: those that it had stay, where they are of the same
    day and machine."""
    if before.partition(" Load average")[0] != where.partition(" Load average")[0]:
        return f"{where}\n\n{printed}"
    fresh = {line.partition(" | ")[0]: line for line in printed.splitlines() if line.startswith("|")}
    lines = [fresh.pop(line.partition(" | ")[0], line) for line in before.splitlines()]
    return "\n".join([where, *lines[1:], *fresh.values()])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("sections", nargs="*", metavar="SECTION", help=", ".join(SECTIONS))
    parser.add_argument("--rows", nargs="+", default=[], metavar="ROW", help="these rows of one SECTION alone")
    options = parser.parse_args()
    if options.rows and len(options.sections) != 1:
        parser.error("--rows are of one section: name it")
    unknown = [name for name in options.sections if name not in SECTIONS]
    if unknown:
        parser.error(f"no section {unknown[0]}: give any of {', '.join(SECTIONS)}")
    found = _measured()
    for name in options.sections or SECTIONS:
        where = describe()
        printed, run = measure(name, options.rows)
        heading = SECTIONS[name]
        if options.rows:
            found[heading] = joined(found.get(heading, ""), where, printed)
            run = replace(run, figures=figures(found[heading]))
        else:
            found[heading] = f"{where}\n\n{printed}"
        record(machine_type(), name, run)
        sections = [f"## {heading}\n\n{found[heading]}" for heading in SECTIONS.values() if heading in found]
        PAGE.write_text("\n\n".join([INTRODUCTION, *sections]) + "\n", encoding="utf-8")
        print(f"{name}: wrote {PAGE.relative_to(ROOT)}", file=sys.stderr)


if __name__ == "__main__":
    main()
