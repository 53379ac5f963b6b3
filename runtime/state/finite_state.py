"""Whether the state of a training is finite. A loss need not tell: ReLU turns NaN into zero."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ...ir.core.errors import RuntimeFailure
from ...ir.core.names import OVERFLOW
from ...ir.core.program import CYCLE_ROLES, Program
from ...ir.core.wording import agreed, counted

if TYPE_CHECKING:
    from ..engine.engine import Engine

log = logging.getLogger("boost_compile")

_ORDER = ("weight", "statistic", "slot")
"""The roles that are named first, where several states are not finite; and those that must hold no NaN at the start."""

_LOOK = "Look for bad values in the data, or lower the learning rate"
_REMEDY = {
    "python": f"{_LOOK}; compile with 'overflow-check' to skip updates that are not finite, or set "
    "allow_nonfinite=True to train on.",
    "command": f"{_LOOK}; boost-compile --check-overflow makes a program that skips updates that are not finite, and "
    "boost-run --allow-nonfinite trains on.",
}
_WRITTEN = (
    "The overflow check skips updates, but the forward part writes statistics of every micro-batch: leave samples that "
    "are not finite out of the data"
)
_REMEDY_WITH_CHECK = {
    "python": f"{_WRITTEN}, or set allow_nonfinite=True to train on.",
    "command": f"{_WRITTEN}, or train on with boost-run --allow-nonfinite.",
}
_BEGIN_ELSEWHERE = "Training does not make it finite again: begin with a state that is finite"
_REMEDY_AT_THE_START = {
    "python": f"{_BEGIN_ELSEWHERE}, or set allow_nonfinite=True to train all the same.",
    "command": f"{_BEGIN_ELSEWHERE} (boost-run --load FILE), or train all the same with boost-run --allow-nonfinite.",
}


def checks_overflow(program: Program) -> bool:
    """Whether updates whose gradients are not finite are skipped by the program itself."""
    return any(OVERFLOW in graph.outputs for graph in program.graphs.values())


class FiniteState:
    """Finds weights, slots and statistics that are NaN at the start, and those that were finite once and are not any
    more.

    Sums of a cycle are left out, because a program that checks for overflows drops them. So is state that was never
    finite, such as a mask of infinities. A check reads the state once.
    """

    def __init__(self, engine: Engine, program: Program):
        self._engine = engine
        self._roles = {
            name: variable.role
            for name, variable in program.state.items()
            if variable.dtype.is_float
            and variable.role not in CYCLE_ROLES
            and variable.role != "fixed"
            and engine.context.holds(name)
        }
        self._skips = checks_overflow(program)
        self._never: set[str] = set()
        self._origins: dict[str, str] = {}
        self._good = 0
        self._refuses = False
        self._told = False

    def came_from(self, origin: str, names: Iterable[str]) -> None:
        """The states of these names were set from ``origin``."""
        self._origins.update(dict.fromkeys(names, origin))

    def begin(self, step: int, refuse: bool = True) -> None:
        """A training begins after optimizer step ``step``; without ``refuse`` it goes on whatever becomes of its state,
        and warns once. RuntimeFailure, or the warning, where its state holds NaN already."""
        self._refuses, self._told = refuse, False
        self._good = step
        never = list(self._not_finite())
        text = self._holds_nan(never)
        if text and refuse:
            raise RuntimeFailure(f"{text}.", **_REMEDY_AT_THE_START)
        if text:
            self._warn(f"{text}. Training goes on, as was asked for.")
        self._never = set(never)

    def warn_of_nan(self) -> None:
        """A warning where predictions are made with NaN, unless there was one before."""
        if not self._told and (text := self._holds_nan(self._not_finite())):
            self._warn(f"{text}: what the network predicts with it says nothing")

    def check(self, step: int) -> None:
        """RuntimeFailure, or a warning, which names the first weight, where state is not finite after optimizer step
        ``step``."""
        if self._told or step == self._good:
            return
        spoiled = [name for name in self._not_finite() if name not in self._never]
        if not spoiled:
            self._good = step
            return
        first = self._first(spoiled)
        remedy = _REMEDY_WITH_CHECK if self._skips else _REMEDY
        text = (
            f"{self._named(first)} is not finite after optimizer step {step}: "
            f"{self._count(first)}{_others(spoiled, 'is', 'are')}. After step {self._good} all were finite"
        )
        if self._refuses:
            raise RuntimeFailure(f"{text}; what was saved before stays.", **remedy)
        self._warn(f"{text}. Training goes on, as was asked for.")

    def _holds_nan(self, names: Iterable[str]) -> str:
        """Which of these trained states hold NaN, in words; nothing where none does. Infinities may be meant."""
        trained = (name for name in names if self._roles[name] in _ORDER)
        found = [name for name in trained if np.isnan(self._engine.memory.look(name)).any()]
        if not found:
            return ""
        first = self._first(found)
        origin = f", loaded from {self._origins[first]}," if first in self._origins else ""
        return f"{self._named(first)}{origin} holds NaN: {self._count(first)}{_others(found, 'does', 'do')}"

    def _warn(self, text: str) -> None:
        self._told = True
        log.warning("%s", text)

    def _first(self, names: Iterable[str]) -> str:
        return min(names, key=lambda name: _ORDER.index(r) if (r := self._roles[name]) in _ORDER else len(_ORDER))

    def _named(self, name: str) -> str:
        return f"{self._roles[name].replace('unknown', 'state')} '{name}'"

    def _not_finite(self) -> Iterator[str]:
        return (name for name in self._roles if not is_finite(self._engine.memory.look(name)))

    def _count(self, name: str) -> str:
        array = self._engine.memory.look(name)
        bad = int(array.size - np.isfinite(array).sum())
        return f"{bad:,} of {counted(array.size, 'value')} {'is' if bad == 1 else 'are'} NaN or infinite"


def _others(names: Sequence[str], one: str, several: str) -> str:
    more = len(names) - 1
    return f", and so {agreed(more, one, several)} {counted(more, 'other state')}" if more else ""


def is_finite(array: Any) -> bool:
    """Whether no number of a floating-point array is NaN or infinite. These survive a sum of squares, which is the
    fastest pass over memory that numpy has, and makes no copy."""
    with np.errstate(all="ignore"):
        if array.dtype != np.float16 and array.flags.forc:
            row = array.ravel(order="K")
            total = row.dot(row)
        else:
            total = array.sum(dtype=np.float32 if array.dtype == np.float16 else None)
    # The sum of finite numbers may overflow.
    return bool(np.isfinite(total)) or bool(np.isfinite(array).all())
