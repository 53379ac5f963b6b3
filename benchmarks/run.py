"""Runs benchmarks and writes their sections of `docs/benchmarks.md` (all of them: what `make bench` does), or tables of
other pages.

python -m benchmarks.run [SECTION | TABLE ...]
python -m benchmarks.run native_step --rows lenet_bn,8 gpt,4     # a part of a section, whose other rows stay

A table of another page stands between two comments, the first of which names this command with the benchmark and what
it is given: `<!-- python -m benchmarks.run memory.cycles -->` is what `python -m benchmarks.memory cycles` prints. A
long benchmark can be measured in several runs: with BENCHMARKS_KEPT=FILE in the environment, one that was cut off goes
on where it was (`benchmarks/machine.py`).
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import replace
from datetime import date
from pathlib import Path

from benchmarks.figures import Record, figures, record
from benchmarks.machine import child_environment, describe, machine_type, yardstick
from benchmarks.tables import ROOT

PAGE = ROOT / "docs" / "benchmarks.md"
INTRODUCTION = """\
# Benchmarks

Written by `make bench` (`benchmarks/run.py`); `python -m benchmarks.run SECTION` measures one section anew, and
`python -m benchmarks.SECTION` prints it. Above each stands when and where it was measured.

Medians of several repetitions, with their range. Python's cyclic garbage collector is off while a step of the compiler
is measured, as it is in the commands, and as it is while a file is read and while passes run. The graphs are synthetic
(`tests/synthetic.py`): built through the project's own IR and marked as `mindspore.export` marks a training cell. How
exact accumulation is stands in [accuracy.md](accuracy.md) (`python -m benchmarks.accuracy`).

Every run is recorded by the type of the machine, in `benchmarks/results.json`. `make bench-check` measures start-up
and the cost of a node anew (`python -m benchmarks.check SECTION` another section). It fails where a figure is more than
5 % above the last run on the same type of machine, beyond the spread of both runs. Judged are memory, and times whose
spread the table gives. A time is divided by that of a piece of plain Python, which is measured beside it, and counts as
worse only where three runs agree.

Other pages have figures too. `python -m benchmarks.run TABLE` measures those that have a name anew, and writes them in
their place; above each stands when it was measured or, where that was not recorded, when it was written down.

| page | figures | written by |
| --- | --- | --- |
| [accuracy.md](accuracy.md) | all | `python -m benchmarks.accuracy`, the whole page |
| [memory.md](memory.md) | cycles, estimates, budgets | `memory.cycles`, `memory.estimates`, `recompute.budgets` |
| [scaling.md](scaling.md) | all tables | `scaling.passes`, `scaling.ranks`, `scaling.largest`, `scaling.model` |
| [monitoring.md](monitoring.md) | time of a step | `monitors` |
| [convolutions.md](convolutions.md) | all tables | `convolutions` |
| [fine-tuning.md](fine-tuning.md) | what adapters cost | `fine_tuning` |
| [mixed-precision.md](mixed-precision.md) | digits | `digits_precision.59` |
| [memory.md](memory.md) | recompute, by the clock | hand, from `python -m benchmarks.recompute steps` |
| [distributed.md](distributed.md) | memory and time of ranks | hand, from `python -m benchmarks.rank_memory` |
| [proof.md](proof.md) | pairs that are proved | hand, from `python -m benchmarks.proof FOLDER` |
| [training.md](training.md) | writers that were killed | hand, from `make crash` |
| [random-testing.md](random-testing.md) | cases | hand, from `make test-random` and `make long-run` |
| [monitoring.md](monitoring.md) | memory of a training | hand, from a trial; no benchmark repeats it |
| [evaluation.md](evaluation.md) | what averages cost | hand, from `python -m benchmarks.averages` |
| [mixed-precision.md](mixed-precision.md) | bits, errors, bytes | hand, from trials; no benchmark repeats them |"""
SECTIONS = {
    "startup": "Whole runs of boost-compile",
    "models": "Networks",
    "compile_cost": "What a node costs",
    "million": "A million nodes",
    "peers": "Other graph IRs",
    "call_cost": "What a call costs beside the graph",
    "native_step": "A step against MindSpore's own",
    "feeding": "Feeding a step",
    "step_time": "What a pass costs in a step",
    "safety": "What safety costs in a step",
    "less_bn": "What fewer BatchNorms save",
}
TABLE = re.compile(r"(<!-- python -m benchmarks\.run (\S+) -->\n).*?(\n<!-- end of what it wrote -->)", re.DOTALL)
"""A table in another page: its mark with its name, and its end."""


def tables() -> dict[str, Path]:
    """The pages of all tables that stand elsewhere, by the tables' names."""
    pages = {page: page.read_text(encoding="utf-8") for page in sorted(PAGE.parent.glob("*.md"))}
    return {found[2]: page for page, text in pages.items() for found in TABLE.finditer(text)}


def _write_table(name: str, page: Path, text: str) -> None:
    def written(found: re.Match[str]) -> str:
        return found[0] if found[2] != name else f"{found[1]}\n{text}\n{found[3]}"

    page.write_text(TABLE.sub(written, page.read_text(encoding="utf-8")), encoding="utf-8")


def _measured() -> dict[str, str]:
    """The sections of the page as it stands, by heading."""
    parts = PAGE.read_text(encoding="utf-8").split("\n## ")[1:] if PAGE.exists() else []
    return {heading: body.strip() for heading, _, body in (part.partition("\n") for part in parts)}


def measure(section: str, options: Sequence[str] = ()) -> tuple[str, Record]:
    """What a benchmark prints, in a process of its own (with MindSpore imported, protobuf is slow), and its figures.
    What it is given may stand behind dots in its name."""
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
    elsewhere = tables()
    known = [*SECTIONS, *elsewhere]
    parser.add_argument("sections", nargs="*", metavar="SECTION", help=", ".join(known))
    parser.add_argument("--rows", nargs="+", default=[], metavar="ROW", help="these rows of one SECTION alone")
    options = parser.parse_args()
    if options.rows and (len(options.sections) != 1 or options.sections[0] in elsewhere):
        parser.error("--rows are of one section: name it")
    unknown = [name for name in options.sections if name not in known]
    if unknown:
        parser.error(f"no section {unknown[0]}: give any of {', '.join(known)}")
    found = _measured()
    for name in options.sections or SECTIONS:
        where = describe()
        printed, run = measure(name, options.rows)
        if name in elsewhere:
            _write_table(name, elsewhere[name], f"{where}\n\n{printed}")
            print(f"{name}: wrote its table in {elsewhere[name].name}", file=sys.stderr)
            continue
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
