"""How an axis of a tensor holds the batch, and what reshaping makes of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod
from typing import NamedTuple


class Stuck(Exception):
    """A node whose batch cannot be followed, or cannot change: the message says why."""


class Span(NamedTuple):
    """An axis of ``outer * batch * inner`` elements, the batch between the two (row-major)."""

    outer: int = 1
    inner: int = 1

    def extent(self, batch: int) -> int:
        return self.outer * batch * self.inner


Axes = Mapping[int, Span]
"""The axes of one tensor that hold the batch."""


def reshaped(source: Sequence[int], axes: Axes, target: Sequence[int]) -> Axes:
    """Where the batch is after a tensor of shape ``source`` was reshaped to ``target``. Stuck where it is cut up.

    Row-major order keeps the numbers of elements before and after the batch. For a batch of 1 several axes may fit:
    then it is the axis that holds nothing else.
    """
    found: dict[int, Span] = {}
    said = f"it reshapes {list(source)} to {list(target)}"
    for axis, span in axes.items():
        around = (source[:axis], source[axis + 1 :])
        if any(d <= 0 for part in around for d in part):
            raise Stuck("it reshapes a tensor with open or empty axes")
        before, after = prod(around[0]) * span.outer, prod(around[1]) * span.inner
        fitting: list[tuple[int, Span]] = []
        for j, d in enumerate(target):
            ahead, behind = target[:j], target[j + 1 :]
            # An open batch stays on an open axis.
            if (d < 0) != (source[axis] < 0) or any(e <= 0 for e in (*ahead, *behind)):
                continue
            if before % prod(ahead) == 0 and after % prod(behind) == 0:
                fitting.append((j, Span(before // prod(ahead), after // prod(behind))))
        if not fitting:
            raise Stuck(f"{said}, where no axis holds the whole batch")
        j, new = min(fitting, key=lambda f: (f[1] != Span(), abs(f[0] - axis)))
        if j in found or (len(axes) > 1 and new != span):
            raise Stuck(f"{said}, which joins axes that both hold the batch")
        found[j] = new
    return found


def joined(axes: Axes, others: Axes) -> dict[int, Span]:
    """Both; Stuck where they contradict each other."""
    both = dict(axes)
    for axis, span in others.items():
        if both.setdefault(axis, span) != span:
            raise Stuck(f"its operands hold the batch in different ways on axis {axis}")
    return both
