"""Arenas: stretches of memory that hold several states, one after the other, so that one kernel works on all of them.

An arena is a state of the graphs that use it alone. Its members stay states of their own, for whoever reads or writes
them one by one: both are the same memory. A lowering that lets a graph use an arena sees to the order of the two.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

ALIGNED = 16
"""Elements of which each member begins at a multiple: a line of the cache holds so many."""


@dataclass(frozen=True, slots=True, eq=False)
class Arena:
    """``begins``: where each member begins, by name. Between them and behind them is room, up to ``size`` elements."""

    name: str
    begins: Mapping[str, int]
    size: int


@dataclass(slots=True)
class Arenas:
    """All arenas of a program. A state is in one of them at most."""

    by_name: dict[str, Arena] = field(default_factory=dict)
    holding: dict[str, Arena] = field(default_factory=dict)
    """By member."""

    def fits(self, names: Sequence[str], begins: Sequence[int], size: int) -> bool:
        """Whether :meth:`of` these is an arena, or can become one."""
        held = {self.holding.get(name) for name in names}
        if held == {None}:
            return len(set(names)) == len(names)
        arena = held.pop()
        if held or arena is None or arena.size != size:
            return False
        return arena.begins == dict(zip(names, begins, strict=True))

    def of(self, names: Sequence[str], begins: Sequence[int], size: int) -> Arena:
        """The arena of states that begin at these places."""
        arena = self.holding.get(names[0])
        if arena is None:
            arena = Arena(f"arena.{len(self.by_name)}", dict(zip(names, begins, strict=True)), size)
            self.by_name[arena.name] = arena
            self.holding.update(dict.fromkeys(names, arena))
        return arena
