"""The state of a session copied into the Parameters of a network."""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping
from typing import Any

from ...ir.core.errors import RuntimeFailure, nearest
from ...ir.core.program import Program
from ..engine.engine import Engine
from ..engine.exchange import Exchange
from .whole_state import whole_state

log = logging.getLogger("boost_compile")


def _type(of: Any) -> str:
    """``float32[2, 3]``, of a type or a Parameter."""
    return f"{str(of.dtype).lower()}{list(of.shape)}"


def update_network(
    network: Any,
    program: Program,
    engine: Engine,
    exchange: Exchange,
    instead: Mapping[str, Any],
    gone: Collection[str] = (),
) -> list[str]:
    """Copies the state into the Parameters of ``network`` by name, or arrays that are given ``instead``, but for what
    is ``gone`` into these; see :meth:`.Session.update`."""
    from mindspore import nn

    if not isinstance(network, nn.Cell):
        raise RuntimeFailure(f"a {type(network).__name__} has no Parameters: give the network, a Cell.")
    theirs = {parameter.name: parameter for parameter in network.get_parameters()}
    common = [name for name in engine.types if name in theirs and name not in gone]
    weights = [name for name, variable in program.state.items() if variable.role == "weight" and name not in gone]
    if not common:
        first = next(iter(theirs), None)
        what = "it has none" if first is None else f"the first is '{first}'{nearest(first, weights)}"
        raise RuntimeFailure(f"no Parameter of this {type(network).__name__} is state of the program: {what}.")
    for name in common:
        ours, parameter = engine.types[name], theirs[name]
        if _type(ours) != _type(parameter):
            raise RuntimeFailure(
                f"'{name}' is {_type(ours)} in the session and {_type(parameter)} in this {type(network).__name__}: "
                "it is another network, or a pass changed it."
            )
    trained = next((n for n in common if n in instead and theirs[n] is engine.parameters.get(n)), None)
    if trained is not None:
        raise RuntimeFailure(
            f"this {type(network).__name__} is trained in place: its '{trained}' is what the session trains, and the "
            "other values would overwrite it. Give a network of its own."
        )
    elsewhere = [name for name in common if theirs[name] is not engine.parameters.get(name)]
    values = whole_state(engine, exchange, [name for name in elsewhere if name not in instead])
    for name in elsewhere:
        theirs[name].set_data(engine.memory.tensor(name, instead[name] if name in instead else values[name]))
    missing = [n for n in theirs if n not in engine.types]
    besides = [n for n in weights if n not in theirs]
    if missing or besides:
        log.warning(
            "%s was updated, but for some weights, without which it computes something else: %s",
            type(network).__name__,
            "; ".join(
                f"{what} {', '.join(names[:3])}{' …' if len(names) > 3 else ''}"
                for what, names in (("the session lacks", missing), ("the network lacks", besides))
                if names
            ),
        )
    return common
