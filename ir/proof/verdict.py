"""What a proof says: of each state and each result one verdict."""

from __future__ import annotations

from dataclasses import dataclass, field

from .formulas.statement import Stated

SAME, REALS, PURPOSE, OWN, UNPROVED = (
    "same bits", "equal over the reals", "changed on purpose", "the program's own", "not proved",
)  # fmt: skip
KINDS = (SAME, REALS, PURPOSE, OWN, UNPROVED)
STATE, RESULT, ORDER = "state", "result", "order"


@dataclass(frozen=True, slots=True)
class Verdict:
    """``what``: a state, a result, or the order of effects; ``kind``: one of :data:`KINDS`. ``expected`` and ``found``
    are the first terms that differ. ``graph``: where the program computes it."""

    what: str
    name: str
    kind: str
    detail: str = ""
    graph: str = ""
    expected: int | None = None
    found: int | None = None


@dataclass
class Proof:
    """``claim``: what the verdicts are about, in words. ``trusted``: what the proof rests on. ``besides``: what updates
    take of the last micro-batch besides gradients, in words; ``stated``: what passes change on purpose."""

    claim: str
    verdicts: list[Verdict] = field(default_factory=list)
    trusted: list[str] = field(default_factory=list)
    besides: str = ""
    stated: list[Stated] = field(default_factory=list)

    @property
    def proved(self) -> bool:
        return bool(self.verdicts) and all(v.kind != UNPROVED for v in self.verdicts)

    @property
    def failures(self) -> list[Verdict]:
        return [v for v in self.verdicts if v.kind == UNPROVED]
