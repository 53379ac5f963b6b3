"""What a graph leaves to the host (:class:`HostPart`), computed when the graph has run."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from ..lowering.host_part import HostPart, Pairs
from .moving import Moves
from .state_memory import StateMemory


class HostWork:
    """Computes parts of graphs, in the memory of their states where the host can write it."""

    def __init__(self, memory: StateMemory):
        self._memory = memory
        self._parts: dict[HostPart, tuple[Sequence[Callable[[], int]], Sequence[int] | None, Mapping[str, Any]]] = {}
        """Of the states that a part needs: what says where each one's memory begins, where it began, and as arrays."""
        self._moves: dict[Pairs, Moves] = {}
        """The averages that the host moved in their memory."""

    def finish(self, part: HostPart, results: tuple[Any, ...]) -> tuple[Any, ...]:
        """Computes what a graph left to the host, and puts its results beside those of the device."""
        views = self._views_of(part)

        def read(name: str) -> Any:
            return (self._memory.read(name) if (view := views[name]) is None else view).item()

        finished = part.run(results, read)
        if finished.moves:
            with np.errstate(all="ignore"):
                for pairs, kept, taken in finished.moves:
                    self._move(pairs, kept, taken)
        for name, value in finished.written:
            if (view := views[name]) is None:
                self._memory.assign(name, np.full_like(self._memory.like(name), value))
            else:
                view.fill(value)
        own = finished.returned
        return tuple([own[i] if host else results[i] for i, host in part.results])

    def _views_of(self, part: HostPart) -> Mapping[str, Any]:
        """As :meth:`StateMemory.view_of`, by name, for all states that a part needs."""
        addresses, begins, views = self._parts.get(part, ((), None, {}))
        if [address() for address in addresses] == begins:
            return views
        views = {name: self._memory.view_of(name) for name in part.states}
        if all(view is not None for view in views.values()):
            addresses = [self._memory.address_of(name) for name in part.states]
            self._parts[part] = addresses, [view.ctypes.data for view in views.values()], views
        return views

    def _move(self, pairs: Pairs, kept: Any, taken: Any) -> None:
        moves = self._moves.get(pairs)
        if moves is None or not moves.stand():
            views = [(self._memory.view_of(average), self._memory.view_of(weight)) for average, weight in pairs]
            if any(view is None for pair in views for view in pair):
                self._move_copies(pairs, kept, taken)
                return
            moves = Moves(views, [self._memory.address_of(name) for pair in pairs for name in pair])
            self._moves[pairs] = moves
        moves.run(kept, taken)

    def _move_copies(self, pairs: Pairs, kept: Any, taken: Any) -> None:
        """Where the host cannot write the memory."""
        for average, weight in pairs:
            moved = self._memory.read(average)
            Moves([(moved, self._memory.read(weight))]).run(kept, taken)
            self._memory.assign(average, moved)
