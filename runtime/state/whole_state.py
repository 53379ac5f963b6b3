"""The state of a session as a whole, where ranks hold parts of it alone."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ..engine.engine import Engine
    from ..engine.exchange import Exchange


def whole_state(engine: Engine, exchange: Exchange, names: Iterable[str], wanted: bool = True) -> dict[str, Any]:
    """A copy of the values of these states, in their order. All ranks must call it with the same names where one rank
    alone holds some of them; a rank that has not ``wanted`` those gets the others only."""
    asked = list(names)
    holders = {name: engine.context.holders[name] for name in asked if name in engine.context.holders}
    found = {name: engine.read(name) for name in asked if engine.holds(name)}
    if holders:
        own = {name: found[name] for name in holders if name in found}
        found |= exchange.collect(own, holders, {name: engine.like(name) for name in holders}, wanted)
    return {name: found[name] for name in asked if name in found}
