"""The protocol of lowerings, and the context that they are told."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import Protocol

from ...ir.core.graph import Graph
from ...ir.core.program import Program
from ...ir.rewrite.ranks.dealing import Deal, deal
from ...ir.rewrite.ranks.shares import shared_states
from .philox import Draw


@dataclass(frozen=True)
class Context:
    """Where the graphs of ``program`` will run: on ``target``, as ``rank`` of ``ranks``, with ``seed``. The maps are
    what the lowerings ask of whoever runs the graphs."""

    program: Program
    target: str
    rank: int = 0
    ranks: int = 1
    seed: int | None = None
    draws: dict[str, list[Draw]] = field(default_factory=dict)
    """By graph: the arrays that each run takes as its last inputs."""
    groups: dict[str, tuple[int, ...]] = field(default_factory=dict)
    """The members of each group of ranks that graphs name and that this rank is in."""
    unseeded: dict[str, list[str]] = field(default_factory=dict)
    """By graph: the random nodes that the seed does not reach."""
    cleared: dict[str, list[str]] = field(default_factory=dict)
    """By graph: the states to clear when it has run."""

    @cached_property
    def shared(self) -> set[str]:
        """The states of which each rank holds a share."""
        return shared_states(self.program, self.ranks)

    @cached_property
    def holders(self) -> dict[str, int]:
        """The rank that holds a state, by name, for all states that one rank alone holds."""
        return self.dealt.holders

    @cached_property
    def pieces(self) -> dict[str, slice]:
        """The elements, in a row, that this rank holds of a state of which each rank has a piece, by name."""
        return self.dealt.pieces(self.rank)

    @cached_property
    def dealt(self) -> Deal:
        """Who holds the states that this rank does not hold whole together with all others."""
        return deal(self.program, self.ranks)

    def nbytes(self, name: str) -> int:
        """The bytes that this rank holds of a state."""
        variable, piece = self.program.state[name], self.pieces.get(name)
        if piece is not None:
            return int(piece.stop - piece.start) * variable.dtype.itemsize
        return variable.nbytes if self.holds(name) else 0

    def holds(self, name: str) -> bool:
        """Whether this rank holds a state, or a part of it; another one that owns it may hold it alone."""
        return self.holders.get(name, self.rank) == self.rank

    def is_common(self, name: str) -> bool:
        """Whether each rank holds all of a state."""
        return name not in self.holders and name not in self.pieces

    def __str__(self) -> str:
        seed = "no seed" if self.seed is None else f"seed {self.seed}"
        return f"{self.target}, rank {self.rank} of {self.ranks}, {seed}"


class Lowering(Protocol):
    """A module is one, here or in ``ir/rewrite/cpu/``: its name, a docstring that says what it does, why and for which
    target, and two functions."""

    __name__: str

    def applies(self, graph: Graph, context: Context) -> bool:
        """Whether ``run`` has anything to do. Changes nothing."""

    def run(self, graph: Graph, context: Context) -> str:
        """Changes the graph, of which nobody else knows, and says what it did; "" where there is nothing to do."""


def name_of(lowering: Lowering) -> str:
    return lowering.__name__.rpartition(".")[2].replace("_", "-")
