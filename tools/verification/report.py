"""The report of a verification: one result a property, and the circumstances."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from ...ir.core.display import Displayed
from ...ir.core.naming import printable

PASSED, FAILED, VACUOUS, LEFT_OUT, NOT_APPLICABLE = "passed", "failed", "vacuous", "left out", "not applicable"
"""``vacuous``: everything measured would have come out right whatever the program does, or wrong because the
original does not repeat itself, so nothing was shown."""


STATUSES = (PASSED, FAILED, VACUOUS, LEFT_OUT, NOT_APPLICABLE)
WRONG, NOTHING = 1, 3
"""Exit statuses of boost-verify that say: not verified, and nothing was verified."""
_SHOWN = 6
"""How many properties ``repr`` names that do not hold."""


@dataclass(frozen=True)
class Deviation:
    """The worst element of a comparison: how far it is off and how far it may be.

    ``relative`` is by how far training moved the state that it stands in, ``ulps`` in units in the last place of the
    stored value. ``excess`` is error by tolerance: above one is too far.
    """

    where: str
    error: float
    relative: float
    ulps: float
    tolerance_relative: float
    tolerance_ulps: float
    excess: float
    equal: bool = False


EXACT = Deviation("", 0.0, 0.0, 0.0, 0.0, 0.0, 0.0)
EQUAL = Deviation("", 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, equal=True)
"""Equal in every bit to what was computed beside it, so that no tolerance was measured."""


@dataclass(frozen=True)
class Result:
    """The outcome of one property. ``detail`` says what was measured, why it does not apply, or what is wrong."""

    name: str
    status: str
    detail: str = ""
    deviation: Deviation | None = None
    promise: str = ""
    seconds: float = 0.0

    @property
    def failed(self) -> bool:
        return self.status == FAILED


@dataclass(frozen=True)
class Guilty:
    """The pass with which a property fails that holds before it. ``name`` is empty where the pipeline, run again, makes
    a program that is right: then the fault came into the program after compilation, or with another version."""

    name: str
    number: int
    passes: int
    result: Result
    note: str = ""


@dataclass(frozen=True, repr=False)
class Verification(Displayed):
    """The report of a verification. ``verified``: an update was compared, no property failed, and none was vacuous; it
    is true then. A quick verification leaves some properties out, and says which.
    """

    results: tuple[Result, ...]
    pipeline: str
    seed: int
    cycles: int
    data: str
    guilty: Guilty | None = None
    notes: tuple[str, ...] = ()
    versions: Mapping[str, str] = field(default_factory=dict)
    hashes: Mapping[str, str] = field(default_factory=dict)
    """sha256 by role: ``original``, and each file of the program."""
    seconds: float = 0.0
    unmatched: str = ""
    """Why no update was compared with one of the original; "" where one was."""
    reference: str = ""
    """What the program was compared with, where that is not the file as MindSpore runs it, and why."""

    trains: str = ""
    """As what the program trains: as one batch of all its micro-batches, as the loop over them, or as the original."""

    def __repr__(self) -> str:
        wrong = [r for r in self.results if r.status in (FAILED, VACUOUS)]
        lines = [self.verdict(), *(f"{r.status}: {r.name}: {r.detail}" for r in wrong[:_SHOWN])]
        if len(wrong) > _SHOWN:
            lines.append(f"… and {len(wrong) - _SHOWN} more")
        if self.guilty is not None and self.guilty.name:
            lines.append(f"guilty: pass {self.guilty.number} of {self.guilty.passes}, {self.guilty.name}")
        return "\n  ".join(map(printable, lines))

    def __bool__(self) -> bool:
        return self.verified

    def verdict(self) -> str:
        """The result in a sentence."""
        statuses = [r.status for r in self.results]
        counts = ", ".join(f"{statuses.count(s)} {s}" for s in STATUSES if s in statuses)
        left = [r.name for r in self.results if r.status == LEFT_OUT]
        circumstances = f"{counts} ({self.data} data, seed {self.seed}, {self.seconds:.1f} s)"
        if self.exit_status == NOTHING:
            return f"Nothing was verified: no update was compared, because {self.unmatched}; {circumstances}."
        against = f" ({self.reference})" if self.reference else ""
        if not self.verified:
            return f"NOT verified{against}: {circumstances}."
        but = f" but for what was left out ({', '.join(left)})" if left else ""
        trains = f": it trains {self.trains}" if self.trains else ""
        return f"Verified{but}{against}{trains}: {circumstances}."

    @property
    def verified(self) -> bool:
        return not self.exit_status

    @property
    def exit_status(self) -> int:
        """That of boost-verify: 0 verified, 1 a property failed or was vacuous, 3 nothing failed, but no update was
        compared."""
        if any(r.status in (FAILED, VACUOUS) for r in self.results):
            return WRONG
        return NOTHING if self.unmatched else 0

    @property
    def failures(self) -> tuple[Result, ...]:
        return tuple(r for r in self.results if r.failed)

    def result(self, name: str) -> Result:
        """The result of one property; KeyError if there is none of that name."""
        return {r.name: r for r in self.results}[name]

    def to_json(self) -> dict[str, Any]:
        return {"verified": self.verified, "verdict": self.verdict(), "exit_status": self.exit_status, **asdict(self)}


def numbers_of(r: Result) -> tuple[str, str, str, str]:
    """Error and tolerance as a table has them: relative, then in units in the last place."""
    d = r.deviation
    if d is None:
        return "", "", "", ""
    if d.equal:
        return "0", "not needed", "0", "not needed"
    if d.error == 0 and d.tolerance_relative == 0:
        return "0", "exact", "0", "exact"
    return (
        f"{d.relative:.1e}" if d.error else "0",
        f"{d.tolerance_relative:.1e}",
        f"{d.ulps:.3g}",
        f"{d.tolerance_ulps:.3g}",
    )
