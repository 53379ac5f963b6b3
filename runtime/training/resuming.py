"""Going on where a state was saved."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from ...ir.core.errors import RuntimeFailure
from ..data.data_position import WITHOUT_POSITION, DataPosition, Order
from ..engine.draws import Draws
from .trainee import Trainee

log = logging.getLogger("boost_compile")


def resumed_position(session: Trainee, order: Order) -> DataPosition:
    """Where in the data the loaded state was saved; RuntimeFailure where nothing says so, or where ``order`` gives
    other micro-batches or the session draws other numbers than then."""
    found = session.data_position
    if found is None:
        raise RuntimeFailure(
            "resume: nothing says where in the data the session's state was saved. Load a file that was saved while "
            "or after fit trained, and feed nothing by hand in between; or train on from the start of the data."
        )
    found.check(order)
    session.check_draws()
    return found


def check_draws(draws: Draws, unrepeatable: Sequence[str]) -> None:
    """RuntimeFailure where the loaded state was drawn with another seed; a warning where ``unrepeatable`` nodes keep
    their generators for themselves."""
    if draws.runs and draws.loaded_seed not in (None, draws.seed):
        raise RuntimeFailure(
            f"cannot go on where the state was saved: the session drew random numbers from the seed "
            f"{draws.loaded_seed} then and from {draws.seed} now.",
            **WITHOUT_POSITION,
        )
    if unrepeatable:
        more = f" and {len(unrepeatable) - 1} more" if len(unrepeatable) > 1 else ""
        log.warning(
            "training goes on with other random numbers than an uninterrupted one would have: MindSpore does not "
            "tell where the generator of %s%s stood%s",
            unrepeatable[0],
            more,
            "" if draws.runs else " (Session(seed=…) draws masks itself)",
        )
