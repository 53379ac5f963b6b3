"""The memory of arenas (:mod:`runtime.lowering.arenas`): Parameters that are parts of another one. Imports no MindSpore
before it is asked."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from functools import cache
from typing import Any

import numpy as np

from ...ir.core.errors import RuntimeFailure
from ..lowering.arenas import ALIGNED, Arena


class Placing:
    """The arenas of sessions that share their state. ``is_handed_out``: whether somebody else has the Parameters, and
    may give them other memory between two graphs."""

    def __init__(self) -> None:
        self.is_handed_out = False
        self._placed: dict[str, Placed] = {}

    def whole(self, arena: Arena, parameters: Mapping[str, Any]) -> Any:
        """The Parameter that an arena is. When it is asked for first, its members move there."""
        if arena.name not in self._placed:
            self._placed[arena.name] = Placed(arena, parameters)
        return self._placed[arena.name].whole

    def clear(self, names: Collection[str]) -> list[str]:
        """Writes zeros to the arenas of which all members are among ``names``, and to the room between these: a product
        with an infinity makes NaN of a zero there. Returns the other names."""
        given, done = frozenset(names), set[str]()
        for placed in self._placed.values():
            if placed.names <= given:
                placed.memory.fill(0)
                done |= placed.names
        return [name for name in names if name not in done]

    def begin(self) -> None:
        """Before a graph runs."""
        if self.is_handed_out:
            for placed in self._placed.values():
                placed.move_in()

    def check(self) -> None:
        """When a graph has run for the first time: MindSpore compiled it, and might have moved memory."""
        for placed in self._placed.values():
            placed.check()


class Placed:
    """The memory of an arena, ``members`` its Parameters by name, which move there with their values. ``whole``: the
    Parameter that all of it is."""

    def __init__(self, arena: Arena, members: Mapping[str, Any]) -> None:
        import mindspore

        self.names = frozenset(arena.begins)
        self._members = [(members[name], begin) for name, begin in arena.begins.items()]
        room = np.zeros(arena.size + ALIGNED, np.float32)
        start = -room.ctypes.data // room.itemsize % ALIGNED
        self.memory = room[start : start + arena.size]
        self._begins = [self.memory[begin:].ctypes.data for begin in arena.begins.values()]
        self.whole = mindspore.Parameter(mindspore.Tensor(self.memory), name=arena.name, requires_grad=False)
        _bind(self.whole, self.memory)
        self.move_in()

    def move_in(self) -> None:
        """Lets members that have memory elsewhere, because somebody gave them another value, be parts of the arena."""
        for (parameter, begin), address in zip(self._members, self._begins, strict=True):
            if parameter.data_ptr() != address:
                value = parameter.asnumpy()
                view = self.memory[begin : begin + value.size].reshape(value.shape)
                view[...] = value
                _bind(parameter, view)

    def check(self) -> None:
        """Names a state that did not stay where it was put: an update would have gone elsewhere."""
        for (parameter, _), address in zip(self._members, self._begins, strict=True):
            if parameter.data_ptr() != address:
                raise RuntimeFailure(
                    f"MindSpore gave state '{parameter.name}' other memory while a graph ran, so what was computed of "
                    "it is not to be trusted: train again from the last saved state, with another version of MindSpore"
                )


def _bind(parameter: Any, view: Any) -> None:
    """Gives a Parameter the memory of an array of its shape, which lives as long as the Parameter has it."""
    import mindspore

    parameter.set_data(mindspore.Tensor.from_numpy(view))


@cache
def can_place() -> bool:
    """Whether this MindSpore lets Parameters be parts of one array."""
    import mindspore

    if not hasattr(mindspore.Tensor, "data_ptr"):
        return False
    memory = np.zeros(2 * ALIGNED, np.float32)
    view = memory[ALIGNED:]
    parameter = mindspore.Parameter(mindspore.Tensor(np.ones_like(view)))
    _bind(parameter, view)
    return bool(parameter.data_ptr() == view.ctypes.data and parameter.asnumpy().ctypes.data == view.ctypes.data)
