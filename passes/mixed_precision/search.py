"""The cells that must stay in float32 so that all gradients keep within a bound: bisection over scopes, on data."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from glob import escape
from math import isinf

from ...ir.core.errors import PassError
from ...ir.core.graph import Node
from ...ir.core.wording import counted

OTHERWISE = "scale the inputs down, or take dtype=bfloat16 on Ascend"
"""What to do about data that overflows in half precision, but for keeping cells in float32."""
MOST = 32
"""Measurements that are made. Each runs the network, which MindSpore compiles anew: one of a MobileNetV2 takes 5 s."""


def cells(nodes: Iterable[Node]) -> list[str]:
    """Globs for the cells that directly hold ``nodes``, in their order. Where a cell holds other cells too, the glob
    names its own nodes alone."""
    held: dict[str, list[str]] = {}
    for node in nodes:
        held.setdefault(node.scope.rpartition("/")[0], []).append(node.scope)
    around = {cell[:at] for cell in held for at, letter in enumerate(cell) if letter == "/"}
    return [
        "|".join(dict.fromkeys(map(escape, scopes))) if cell in around else escape(cell)
        for cell, scopes in held.items()
    ]


@dataclass(frozen=True, slots=True)
class Off:
    """Why a cell stays in float32: the ``weight`` whose gradient is furthest off without it, and by how much; infinity
    where it overflows. ``others``: how many cells were in half precision with it for the first time when that was
    measured."""

    weight: str
    by: float
    others: int

    def with_it(self, it: str, alone: str = "") -> str:
        return f"with {it} and {counted(self.others, 'other cell')}" if self.others else f"with {it}{alone}"

    def gradient(self, spelling: str) -> str:
        """What becomes of the gradient; ``spelling`` of the number."""
        by = "overflows at a loss scale of 1" if isinf(self.by) else f"is off by {self.by:{spelling}}"
        return f"the gradient of '{self.weight}' {by}"


@dataclass(slots=True)
class Search:
    """``kept`` and the reason of each. ``errors``: of the last measurement that was within the bound."""

    errors_of: Callable[[Sequence[str]], Mapping[str, float]]
    bound: float
    kept: dict[str, Off] = field(default_factory=dict)
    errors: Mapping[str, float] = field(default_factory=dict)
    measured: int = 0

    def run(self, cells: Sequence[str]) -> None:
        """Frees as many cells as the bound allows: all of them, else halves of what is left, the largest first. While
        nothing is decided of a cell, it stays in float32, also where that is so after :data:`MOST` measurements.
        PassError where the bound leaves none in half precision."""
        stays = dict.fromkeys(cells)
        pending = deque([(list(cells), Off("", 0.0, 0))])
        while pending and self.measured < MOST:
            some, _ = pending.popleft()
            off = self._beyond([cell for cell in stays if cell not in some], len(some) - 1)
            if off is None:
                for cell in some:
                    del stays[cell]
            elif len(some) == 1:
                self.kept[some[0]] = off
            else:
                half = len(some) // 2
                pending += [(some[:half], off), (some[half:], off)]
        self.kept |= {cell: off for some, off in pending for cell in some}
        self.kept = {cell: self.kept[cell] for cell in stays}
        if len(stays) == len(cells):
            cell, off = min(self.kept.items(), key=lambda item: item[1].by)
            with_it = off.with_it(f"'{cell}'", " alone")
            found = f"leaves no cell in half precision{f' in {MOST} measurements' if pending else ''}"
            larger = "Give a larger bound: beyond that this is in half precision"
            raise PassError(
                f"error={self.bound:g} {found}: {with_it} {off.gradient('.3g')} on this data. "
                + (f"So {OTHERWISE}" if isinf(off.by) else larger)
            )

    def _beyond(self, kept: Sequence[str], others: int) -> Off | None:
        """The weight whose gradient is furthest off, and by how much; None where all are within the bound."""
        errors = self.errors_of(kept)
        self.measured += 1
        weight = max(errors, key=lambda w: errors[w], default="")
        if errors.get(weight, 0.0) <= self.bound:
            self.errors = errors
            return None
        return Off(weight, errors[weight], others)
