"""Measures sections of `docs/benchmarks.md` anew, and fails where a figure got worse than in the last recorded run on
the same type of machine (what `make bench-check` does).

    python -m benchmarks.check [SECTION ...]

Without a section: those that take few minutes, of the second one the smaller graphs. What seems worse is measured
again, up to three times in all, so that a busy moment does not count. Exit status: 0 where nothing got worse, 1 where
something did, 2 where there is nothing to compare with.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from benchmarks.figures import RECORDS, Record, Worse, figures, machines, recorded, worse
from benchmarks.machine import machine_type
from benchmarks.run import SECTIONS, measure

QUICK = {"startup": [], "compile_cost": ["--quick"]}
TIMES = 3


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("sections", nargs="*", metavar="SECTION", help=", ".join(SECTIONS))
    parser.add_argument("--records", type=Path, default=RECORDS, help="the recorded runs (default: %(default)s)")
    parser.add_argument("--machine", default=machine_type(), help="the type of this machine (default: %(default)s)")
    parser.add_argument("--printed", type=Path, help="what a section printed, instead of measuring it: for one SECTION")
    options = parser.parse_args()
    unknown = [name for name in options.sections if name not in SECTIONS]
    if unknown:
        parser.error(f"no section {unknown[0]}: give any of {', '.join(SECTIONS)}")
    if options.printed is not None and len(options.sections) != 1:
        parser.error("--printed is of one section: name it")
    records = recorded(options.machine, options.records)
    failed = lacking = False
    for section in options.sections or QUICK:
        before = records.get(section)
        if before is None:
            lacking = True
            _nothing(section, options.machine, machines(options.records))
            continue
        found, compared = _worse(section, before, [] if options.sections else QUICK[section], options.printed)
        if not compared:
            lacking = True
            print(f"{section}: none of its {len(before.figures)} recorded figures was measured", file=sys.stderr)
        elif found:
            failed = True
            _tell(section, before, found, compared)
        else:
            print(f"{section}: {compared} figures, none worse than on {before.day}")
    sys.exit(1 if failed else 2 if lacking else 0)


def _worse(section: str, before: Record, extent: list[str], printed: Path | None) -> tuple[list[Worse], int]:
    """The figures that are worse in each of up to :data:`TIMES` runs, and how many were compared."""
    if printed is not None:
        now = Record("", 0.0, before.yardstick, figures(printed.read_text(encoding="utf-8")))
        return worse(before, now), len(before.figures.keys() & now.figures.keys())
    bad: set[str] | None = None
    found: list[Worse] = []
    for _ in range(TIMES):
        _, now = measure(section, extent)
        found = [w for w in worse(before, now) if bad is None or w.name in bad]
        bad = {w.name for w in found}
        if not bad:
            break
    return found, len(before.figures.keys() & now.figures.keys())


def _nothing(section: str, machine: str, others: list[str]) -> None:
    known = f"there are runs of: {' | '.join(others)}" if others else "no run is recorded at all"
    print(
        f"{section}: nothing to compare with: no run of it is recorded on a machine of this type ({machine}); {known}. "
        f"Record one with: python -m benchmarks.run {section}",
        file=sys.stderr,
    )


def _tell(section: str, before: Record, found: list[Worse], compared: int) -> None:
    lines = [f"{section}: {len(found)} of {compared} figures got worse since {before.day}:"]
    lines += [f"  {one}" for one in found]
    lines += [
        f"Look for the cause in what changed since: git log --since={before.day}. If that is what it costs now, record",
        f"it: python -m benchmarks.run {section}",
    ]
    print("\n".join(lines), file=sys.stderr)


if __name__ == "__main__":
    main()
