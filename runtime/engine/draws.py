"""Random numbers that a session draws itself (see :mod:`.lowering.draws`): where they stand, and what comes next."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from ...ir.core.errors import RuntimeFailure
from ..lowering.philox import Draw

NOTE = "boost_compile.draws"
"""The name of what :meth:`Draws.to_text` says among the notes of a state file."""


class Draws:
    """The draws of all graphs of a session. ``runs`` counts how often each graph that draws has run."""

    def __init__(self, seed: int, rank: int):
        self.seed = seed
        self.rank = rank
        self.loaded_seed: int | None = None
        """The seed with which the loaded state drew random numbers; None where it does not say."""
        self.runs: dict[str, int] = {}
        self._draws: dict[str, Sequence[Draw]] = {}

    def add(self, graph: str, draws: Sequence[Draw]) -> None:
        """``draws`` are the last inputs of a graph in each run."""
        if draws:
            self._draws[graph] = draws
            self.runs[graph] = 0

    def take_over(self, graph: str, other: Draws) -> None:
        """Goes on where ``other`` stands in a graph that both run."""
        self.add(graph, other._draws.get(graph, ()))
        self.runs.update({name: run for name, run in other.runs.items() if name == graph})

    def next(self, graph: str) -> tuple[Any, ...]:
        """The Tensors of the next run of a graph."""
        draws = self._draws.get(graph)
        if draws is None:
            return ()
        import mindspore

        run = self.runs[graph]
        self.runs[graph] += 1
        return tuple(mindspore.Tensor.from_numpy(draw.array(self.seed, graph, self.rank, run)) for draw in draws)

    def resume(self, drawn: tuple[int, dict[str, int]] | None) -> None:
        """Goes on where a loaded state stood, as :meth:`check_text` read it; None where the state does not say."""
        self.loaded_seed = None
        if drawn is not None:
            self.loaded_seed, runs = drawn
            self.runs.update(runs)

    def to_text(self) -> str:
        return json.dumps({"seed": self.seed, "runs": dict(self.runs)}, sort_keys=True)

    def check_text(self, text: str, where: str) -> tuple[int, dict[str, int]]:
        """The seed and the runs that a note says. RuntimeFailure, which names ``where``, if it says nothing."""
        try:
            fields = json.loads(text)
            seed, runs = fields["seed"], dict(fields["runs"])
        except (ValueError, TypeError, KeyError, RecursionError):
            raise RuntimeFailure(f"{where}: its note of the random numbers cannot be read.") from None
        if any(type(n) is not int or not 0 <= n < 1 << 63 for n in runs.values()) or type(seed) is not int:
            raise RuntimeFailure(f"{where}: its note of the random numbers holds no whole numbers.")
        return seed, {graph: runs.get(graph, 0) for graph in self.runs}
