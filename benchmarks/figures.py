"""The figures of a section as it is printed, the record of the last run on each type of machine, and what got worse.

A figure is a cell of a table that says how sure it is: `14.3 ± 4%` and `254 ms (250 to 256)` are times with their
spread, `1.54 kB` is memory, which is nearly the same in every run. More is worse. Other cells are not judged, nor are
rows in italics, which measure something else than this project.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

ALLOWED = 0.05
"""By how much a figure may get worse, beside the spread of both runs."""
RECORDS = Path(__file__).with_name("results.json")
_NUMBER = r"([0-9][0-9,]*\.?[0-9]*)"
_TIME = re.compile(rf"{_NUMBER}(?: ms)? (?:± ([0-9.]+)%|\({_NUMBER} to {_NUMBER}\))")
_MEMORY = re.compile(rf"{_NUMBER} [kMG]B")


@dataclass(frozen=True)
class Figure:
    """``spread``: how far from the median the run's own repetitions were, in the same unit; None for memory, which does
    not depend on how fast the machine is at the moment. ``rounding``: the last digit that is printed."""

    value: float
    spread: float | None
    rounding: float = 0.0


@dataclass(frozen=True)
class Record:
    """A run of one section. ``load``: the load average before it. ``yardstick``: :func:`.machine.yardstick` then."""

    day: str
    load: float
    yardstick: float
    figures: Mapping[str, Figure]


@dataclass(frozen=True)
class Worse:
    """A figure that got worse: both values in the figure's unit, the new one as on a machine as fast as the old one."""

    name: str
    before: Figure
    now: Figure

    def __str__(self) -> str:
        more = f"{self.now.value / self.before.value - 1:.0%} more" if self.before.value else "none before"
        allowed = f"allowed are {ALLOWED:.0%}"
        if self.before.spread is not None and self.now.spread is not None:
            allowed += " and the spread of both runs, "
            allowed += f"± {self.before.spread / self.before.value:.0%} and ± {self.now.spread / self.now.value:.0%}"
        return f"{self.name}: {self.before.value:.4g} to {self.now.value:.4g}, {more} ({allowed})"


def figures(printed: str) -> dict[str, Figure]:
    """The figures of a section by row and column, below a heading by that too, and of later tables with the same rows
    and columns by the first cell of their heads."""
    found: dict[str, Figure] = {}
    heading, head = "", [""]
    before = ""
    for line in printed.splitlines():
        if line.startswith("#"):
            heading = line.lstrip("# ") + ": "
        if line.startswith("|"):
            cells = [cell.strip().split("<br>")[0] for cell in line.strip("|").split(" | ")]
            if not before.startswith("|"):
                head = cells
            elif not cells[0].startswith("*"):
                for column, cell in zip(head[1:], cells[1:], strict=True):
                    if (figure := _figure(cell)) is not None:
                        name = f"{heading}{cells[0]}, {column}" + (" (memory)" if figure.spread is None else "")
                        found[name if name not in found else f"{name} ({head[0]})"] = figure
        before = line
    return found


def _figure(cell: str) -> Figure | None:
    if memory := _MEMORY.fullmatch(cell):
        return Figure(_number(memory.group(1)), None, _rounding(memory.group(1)))
    if time := _TIME.fullmatch(cell):
        middle, part, low, high = time.groups()
        value = _number(middle)
        if part is not None:
            return Figure(value, value * float(part) / 100, _rounding(middle))
        return Figure(value, max(value - _number(low), _number(high) - value), _rounding(middle))
    return None


def _rounding(text: str) -> float:
    return 10.0 ** -len(text.partition(".")[2])


def _number(text: str) -> float:
    return float(text.replace(",", ""))


def worse(before: Record, now: Record) -> list[Worse]:
    """The figures of both runs that got worse by more than :data:`ALLOWED` beyond the spread of both. Times are
    compared as on a machine that is as fast as it was then."""
    found = []
    for name, old in before.figures.items():
        new = now.figures.get(name)
        if new is None:
            continue
        if new.spread is not None:
            faster = before.yardstick / now.yardstick
            new = Figure(new.value * faster, new.spread * faster, new.rounding)
        allowed = (old.value + (old.spread or 0)) * (1 + ALLOWED) + max(old.rounding, new.rounding)
        if new.value - (new.spread or 0) > allowed:
            found.append(Worse(name, old, new))
    return found


def recorded(machine: str, path: Path = RECORDS) -> dict[str, Record]:
    """The last run of each section on machines of this type."""
    sections = _read(path).get(machine, {})
    return {
        section: Record(r["day"], r["load"], r["yardstick"], {n: Figure(*pair) for n, pair in r["figures"].items()})
        for section, r in sections.items()
    }


def machines(path: Path = RECORDS) -> list[str]:
    """The types of machine that there are records of."""
    return sorted(_read(path))


def record(machine: str, section: str, run: Record, path: Path = RECORDS) -> None:
    """Puts a run in the place of the last one on this type of machine."""
    every = _read(path)
    kept = {n: [f.value, f.spread and round(f.spread, 4), f.rounding] for n, f in run.figures.items()}
    every.setdefault(machine, {})[section] = asdict(run) | {"figures": kept}
    text = re.sub(r"\[\s+(.+),\s+(.+),\s+(.+)\s+\]", r"[\1, \2, \3]", json.dumps(every, indent=1, ensure_ascii=False))
    path.write_text(text + "\n", encoding="utf-8")


def _read(path: Path) -> dict[str, dict[str, dict[str, object]]]:
    return json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
