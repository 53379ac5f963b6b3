"""Runs benchmarks and writes their sections of `docs/benchmarks.md` (all of them: what `make bench` does).

python -m benchmarks.run [SECTION ...]
python -m benchmarks.run native_step --rows lenet_bn,8 gpt,4     # a part of a section, whose other rows stay

A part of a benchmark stands behind a dot: `memory.cycles` is what `python -m benchmarks.memory cycles` prints. A
long benchmark can be measured in several runs: with BENCHMARKS_KEPT=FILE in the environment, one that was cut off goes
on where it was (`benchmarks/machine.py`).
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

`make bench` writes this page, and takes hours. `python -m benchmarks.run SECTION` measures one section anew; `--help`
lists their names. Above each table stands the day and the machine.

Times are medians of several repetitions, with their range. Python's cyclic garbage collector is off while a step of the
compiler is measured, as it is in the commands. Large graphs are synthetic (`tests/synthetic.py`).
[accuracy.md](accuracy.md) says how exact accumulation is.

`make bench-check` measures start-up and the cost of a node anew, `python -m benchmarks.check SECTION` another section.
It fails where a figure is more than 5 % above the last run on the same type of machine (`benchmarks/results.json`),
beyond the spread of both runs."""
SECTIONS = {
    "startup": "Whole runs of boost-compile",
    "models": "Networks",
    "compile_cost": "What a node costs",
    "million": "A million nodes",
    "peers": "Other graph IRs",
    "call_cost": "What a call costs beside the graph",
    "native_step": "A step against MindSpore's own",
    "in_compiler": "A step that bc.enable rewrote",
    "in_compiler.memory": "Memory of a step that bc.enable rewrote",
    "feeding": "Feeding a step",
    "step_time": "What a pass costs in a step",
    "safety": "What safety costs in a step",
    "less_bn": "What fewer BatchNorms save",
    "memory.cycles": "Memory of an accumulated step",
    "memory.estimates": "Memory, measured and estimated",
    "recompute.steps": "What recompute costs in a step",
    "memory.activations": "Memory in mixed precision",
    "memory.steps": "Time in mixed precision",
    "digits_precision.59": "Digits in mixed precision",
    "gradient_bounds": "Gradients in mixed precision",
    "fine_tuning": "What adapters cost",
    "monitors": "What monitors cost",
    "rank_memory.memory": "Memory of ranks",
    "scaling.passes": "A graph of 100 billion parameters",
    "scaling.ranks": "What a rank holds and receives",
}


def _measured() -> dict[str, str]:
    """The sections of the page as it stands, by heading."""
    parts = PAGE.read_text(encoding="utf-8").split("\n## ")[1:] if PAGE.exists() else []
    return {heading: body.strip() for heading, _, body in (part.partition("\n") for part in parts)}


def measure(section: str, options: Sequence[str] = ()) -> tuple[str, Record]:
    """What a benchmark prints, in a process of its own (with MindSpore imported, protobuf is slow), and its figures.
    A part of it stands behind a dot in its name."""
    module, *given = section.split(".")
    command = [sys.executable, "-m", f"benchmarks.{module}", *given, *options]
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
