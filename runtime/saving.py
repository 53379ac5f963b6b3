"""Saving the state while `fit` trains."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from .fit import Callback, Cycle

if TYPE_CHECKING:
    from .session import Session


class SaveEvery(Callback):
    """Writes the state to ``path`` after every ``cycles``-th optimizer step, in the place of the one before.

    ``sync`` is that of ``Session.save``. Training goes on from there with ``load_state(path)`` and
    ``fit(…, resume=True)``.
    """

    def __init__(self, path: str | os.PathLike[str], cycles: int, sync: str = "none"):
        self.path = path
        self.cycles = cycles
        self.sync = sync

    def on_cycle(self, session: Session, cycle: Cycle) -> None:
        if cycle.number % self.cycles == 0:
            session.save(self.path, self.sync)
