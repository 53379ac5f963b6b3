"""The cells that must stay in float32 so that all gradients keep within a bound: bisection over scopes, on data."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from glob import escape

from ...ir.core.errors import PassError
from ...ir.core.graph import Node


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


@dataclass(slots=True)
class Search:
    """``kept`` and the reason of each: the weight that is furthest off without it, and by how much. ``errors``: of the
    last measurement that was within the bound."""

    errors_of: Callable[[Sequence[str]], Mapping[str, float]]
    bound: float
    kept: dict[str, tuple[str, float]] = field(default_factory=dict)
    errors: Mapping[str, float] = field(default_factory=dict)
    measured: int = 0

    def run(self, cells: Sequence[str]) -> None:
        """Frees as many cells as the bound allows: all of them, else halves of what is left. While nothing is decided
        of a cell, it stays in float32. PassError where the bound leaves none in half precision."""
        pending: list[tuple[Sequence[str], list[str]]] = [(cells, [])]
        while pending:
            some, others = pending.pop()
            off = self._beyond([*self.kept, *others])
            if off is None:
                continue
            if len(some) == 1:
                self.kept[some[0]] = off
            else:
                half = len(some) // 2
                pending.append((some[half:], others))
                pending.append((some[:half], [*some[half:], *others]))
        if len(self.kept) == len(cells):
            cell, (weight, off_by) = min(self.kept.items(), key=lambda item: item[1][1])
            raise PassError(
                f"error={self.bound:g} leaves no cell in half precision: with '{cell}' alone the gradient of "
                f"'{weight}' is off by {off_by:.3g} on this data. Give a larger bound"
            )

    def _beyond(self, kept: Sequence[str]) -> tuple[str, float] | None:
        """The weight whose gradient is furthest off, and by how much; None where all are within the bound."""
        errors = self.errors_of(kept)
        self.measured += 1
        weight = max(errors, key=lambda w: errors[w], default="")
        if errors.get(weight, 0.0) <= self.bound:
            self.errors = errors
            return None
        return weight, errors[weight]
