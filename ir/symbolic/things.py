"""The things that a run on terms (:mod:`.execution`) computes with, and the memory that holds them."""

from __future__ import annotations

from dataclasses import dataclass

from ..core.graph import Graph


@dataclass(frozen=True, slots=True)
class Ref:
    """A place in memory: a state, by name, or a tensor that the graph made and writes, by its number."""

    place: str | int


@dataclass(frozen=True, slots=True, eq=False)
class Closure:
    function: Graph
    bound: tuple[Thing, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Choice:
    condition: int
    yes: Thing
    no: Thing


Thing = int | Ref | Closure | Choice | tuple["Thing", ...] | None
"""What a value is while a graph runs: a term, a place, a function, a tuple of things; None: a token."""


@dataclass(slots=True)
class Memory:
    """What each place holds; a branch writes on top of what was there before it."""

    held: dict[str | int, int]
    before: Memory | None = None

    def read(self, place: str | int) -> int | None:
        here: Memory | None = self
        while here is not None:
            found = here.held.get(place)
            if found is not None:
                return found
            here = here.before
        return None
