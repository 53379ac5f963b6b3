"""How PadV3 and its gradient say by how much they pad."""

from __future__ import annotations

from collections.abc import Sequence

from .graph import Node

Width = tuple[int, int]
"""Elements in front of an axis, and behind it; fewer than 0 are taken away."""


def widths_by_axis(node: Node, given: Sequence[int], rank: int) -> list[Width]:
    """The width of each of ``rank`` axes. ``given`` is what the node takes: the last axis comes first, and axes may be
    missing at the end; in pairs, or, where the attribute ``paddings_contiguous`` is False, all that is in front first.
    """
    half = len(given) // 2
    if node.op.attributes.get("paddings_contiguous", True) is True:
        last_first = list(zip(given[::2], given[1::2], strict=True))
    else:
        last_first = list(zip(given[:half], given[half:], strict=True))
    return [(0, 0)] * (rank - half) + last_first[::-1]
