"""The things that a run on terms (:mod:`.execution`) computes with."""

from __future__ import annotations

from dataclasses import dataclass

from ..core.graph import Graph


@dataclass(frozen=True, slots=True, eq=False)
class Closure:
    function: Graph
    bound: tuple[Thing, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Choice:
    condition: int
    yes: Thing
    no: Thing


Thing = int | Closure | Choice | tuple["Thing", ...] | None
"""What a value is while a graph runs: a term, a function, a tuple of things; None: a token."""
