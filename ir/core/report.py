"""The report of a pass: counts, and every site it did not rewrite with the reason. Part of the program, saved with
it."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class Miss:
    """A site that a pass looked at and left alone."""

    site: str
    reason: str


@dataclass(slots=True)
class PassResult:
    """The report of a pass.

    ``matched`` counts the sites that the pass was made for, ``changed`` those that it rewrote, and ``misses`` lists
    those that it left alone. A pass that ``preserves`` training gives the same weights up to rounding. ``statistics``
    are named numbers worth showing.
    """

    name: str
    options: dict[str, Any] = field(default_factory=dict)
    matched: int = 0
    changed: int = 0
    misses: list[Miss] = field(default_factory=list)
    statistics: dict[str, Any] = field(default_factory=dict)
    preserves: bool = True
    seconds: float = 0.0
    summary: str = ""

    def miss(self, site: str, reason: str) -> None:
        self.misses.append(Miss(site, reason))

    def to_json(self) -> dict[str, Any]:
        return asdict(self)
