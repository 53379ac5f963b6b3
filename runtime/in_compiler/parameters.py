"""The Parameters that something of the user's script holds."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import Any

from ...ir.core.walk import walk


def parameters_of(thing: Any) -> list[Any]:
    """Those of a Cell, an optimizer, a function (by what it closes over), or any collection of these. Optimizers of
    ``mindspore.mint`` and ``mindspore.experimental`` keep learning rates and counts outside of ``get_parameters()``."""
    import mindspore

    held: dict[int, Any] = {id(thing): thing}

    def parts(key: int) -> list[int]:
        here = held[key]
        found: list[Any] = []
        if isinstance(here, mindspore.nn.Cell):
            found = [*here.get_parameters(), *vars(here).values()]
        elif isinstance(here, Mapping):
            found = list(here.values())
        elif isinstance(here, (list, tuple, set)):
            found = list(here)
        elif inspect.ismethod(here):
            found = [here.__self__, here.__func__]
        elif inspect.isfunction(here):
            closed = inspect.getclosurevars(here)
            found = [*closed.nonlocals.values(), *closed.globals.values(), getattr(here, "__wrapped__", None)]
        for part in found:
            held.setdefault(id(part), part)
        return [id(part) for part in found]

    return [held[key] for key in walk([id(thing)], parts) if isinstance(held[key], mindspore.Parameter)]
