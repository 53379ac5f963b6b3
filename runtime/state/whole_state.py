"""The state of a session as a whole, where ranks hold parts of it alone."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import product
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from ..engine.engine import Engine
    from ..engine.exchange import Exchange


def whole_state(engine: Engine, exchange: Exchange, names: Iterable[str], wanted: bool = True) -> dict[str, Any]:
    """A copy of the values of these states, in their order. All ranks must call it with the same names where one rank
    alone holds some of them, or each a piece; a rank that has not ``wanted`` those gets the others only."""
    asked = list(names)
    context = engine.context
    found = {
        name: engine.memory.read(name) for name in asked if engine.context.holds(name) and name not in context.pieces
    }
    holders = {name: context.holders[name] for name in asked if name in context.holders}
    own = {name: found[name] for name in holders if name in found}
    like = {name: engine.memory.like(name) for name in holders}
    cut = [name for name in asked if name in context.pieces]
    for name, rank in product(cut, range(context.ranks)):
        part = _part(name, rank)
        holders[part] = rank
        like[part] = engine.memory.like(name, context.dealt.piece(context.program.state[name].weight, rank))
        if rank == context.rank:
            own[part] = engine.memory.read(name)
    if holders:
        found |= exchange.collect(own, holders, like, wanted)
    if wanted:
        for name in cut:
            parts = [found.pop(_part(name, rank)) for rank in range(context.ranks)]
            found[name] = np.concatenate(parts).reshape(engine.types[name].shape)
    return {name: found[name] for name in asked if name in found}


def _part(name: str, rank: int) -> str:
    return f"{name}[{rank}]"
