"""What a proof says: of each state and each result one verdict, with the laws that it took."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from .formulas.rules import Rule
from .formulas.statement import Stated

SAME, REALS, PURPOSE, OWN, UNPROVED = (
    "same bits", "equal over the reals", "changed on purpose", "the program's own", "not proved",
)  # fmt: skip
KINDS = (SAME, REALS, PURPOSE, OWN, UNPROVED)
STATE, RESULT, ORDER = "state", "result", "order"


Added = tuple[str | None, str, tuple[str, ...]]
"""A summand: a gradient of the original, by its node (None: a number alone), a factor, and loss scales, by state
(:data:`WEIGHT`: the weight of the micro-batch)."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """``what``: a state, a result, or the order of effects; ``kind``: one of :data:`KINDS`. ``expected`` and ``found``
    are terms: those that were compared, or the first that differ. ``graph``: where the program computes it."""

    what: str
    name: str
    kind: str
    laws: tuple[str, ...] = ()
    detail: str = ""
    graph: str = ""
    expected: int | None = None
    found: int | None = None


@dataclass
class Proof:
    """``claim``: what the verdicts are about, in words. ``trusted``: what the proof rests on."""

    claim: str
    verdicts: list[Verdict] = field(default_factory=list)
    trusted: list[str] = field(default_factory=list)
    besides: str = ""
    """What updates take of the last micro-batch besides gradients, in words."""
    accumulating: str = ""
    """The graph that takes a micro-batch and updates nothing."""
    updating: list[str] = field(default_factory=list)
    adds: dict[str, list[Added]] = field(default_factory=dict)
    """What a micro-batch adds to each of the program's own states."""
    drops: dict[str, list[Added]] = field(default_factory=dict)
    """The same of a micro-batch that is dropped, where the program drops some."""
    counted: tuple[str, int] | None = None
    """Of a program whose one graph counts the micro-batches of a cycle itself: the state, and how many there are."""
    rules: dict[str, Rule] = field(default_factory=dict)
    """What the program's own states follow from one cycle to the next, but for those that add up or stay."""
    alike: bool = False
    """Whether draws with other seeds count as the same."""
    tested: bool = False
    """Whether the program tests gradients for finite values, as the original does not; or the original does so itself,
    and the program follows it."""
    itself: bool = False
    """Whether the original does."""
    stated: list[Stated] = field(default_factory=list)
    """What passes change on purpose, in words."""
    formula: dict[str, Any] | None = None
    """What the updates take then, for the checker: the graph of the formulas, and what its inputs and outputs are of
    which weights."""
    frozen: list[str] = field(default_factory=list)
    """States that the updates of a variant leave as they are, though the original's change them."""
    idle: list[str] = field(default_factory=list)
    """Gradients that only those updates take, by their nodes: what the program tests and measures is without them."""
    variants: list[Proof] = field(default_factory=list)
    """The proofs of a program's variants, of which this one is made."""
    loose: list[str] = field(default_factory=list)
    """States that the original loads and overwrites with nothing to say that the loaded value is a copy."""

    @property
    def proved(self) -> bool:
        return bool(self.verdicts) and all(v.kind != UNPROVED for v in self.verdicts)

    @property
    def failures(self) -> list[Verdict]:
        return [v for v in self.verdicts if v.kind == UNPROVED]

    @property
    def laws(self) -> list[str]:
        return sorted({law for v in self.verdicts for law in v.laws})
