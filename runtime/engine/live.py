"""The Parameters that a captured program shares with its Cell."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any
from weakref import WeakValueDictionary

from ...ir.core.data import Data
from ...ir.core.program import Program, StateVariable

log = logging.getLogger("boost_compile")

_TRAINERS: WeakValueDictionary[int, Any] = WeakValueDictionary()
"""The session that trains a live Parameter, by the Parameter's id."""


@dataclass(frozen=True, eq=False)
class LiveCell:
    """``parameters``: the Parameters of the Cell, by the names of the program's state. ``captured``: the values that
    they had then; a state that has other data now was given another value. ``roles``: what each was for."""

    parameters: Mapping[str, Any]
    captured: Mapping[str, Data]
    roles: Mapping[str, str]
    export: Callable[[int, Mapping[str, int]], Program]

    def exported_at(self, size: int, axes: Mapping[str, int]) -> Program:
        """The program of the Cell, exported anew with ``size`` samples on this axis of each input, by name."""
        return self.export(size, axes)

    def parameter_of(self, variable: StateVariable) -> Any | None:
        """The Parameter that is this state; None where there is none, or one of another shape or type."""
        parameter = self.parameters.get(variable.name)
        if parameter is None or tuple(parameter.shape) != variable.shape:
            return None
        return parameter if str(parameter.dtype).rsplit(".", 1)[-1].lower() == variable.dtype.value else None

    def has_new_value(self, variable: StateVariable) -> bool:
        """Whether something gave the state another value than it was captured with."""
        return self.captured.get(variable.name) is not variable.data

    def differences(self, program: Program) -> list[str]:
        """Weights and statistics by which the network of ``program`` is another than the Cell's, each with the reason:
        the Cell computes something else than what is trained."""
        learnt = [name for name, role in self.roles.items() if role in ("weight", "statistic")]
        state = program.state
        removed = [f"'{name}' is removed" for name in learnt if name not in state]
        reshaped = [f"'{n}' has another shape" for n in learnt if n in state and self.parameter_of(state[n]) is None]
        added = [f"'{n}' is new" for n, v in state.items() if v.role == "weight" and n not in self.parameters]
        return removed + reshaped + added


def live_cell(program: Program) -> LiveCell | None:
    """None for a program that was read from a file."""
    return program.live if isinstance(program.live, LiveCell) else None


def tell_of_sharing(live: LiveCell, program: Program, session: Any, parameters: Iterable[Any]) -> None:
    """Warns where ``session`` is not the only one that trains these Parameters of the live Cell, and where the Cell's
    network is not the one that is trained."""
    ours = [id(parameter) for parameter in parameters]
    if any(_TRAINERS.get(key) is not None for key in ours):
        log.warning(
            "another session trains the same network: this one goes on from the weights that it has now, and both "
            "change them (share=False gives a session weights of its own)"
        )
    _TRAINERS.update(dict.fromkeys(ours, session))
    differences = live.differences(program)
    if differences:
        more = f" and {len(differences) - 3} more" if len(differences) > 3 else ""
        log.warning(
            "the passes made another network of the live one: %s%s. Called itself, the live network computes something "
            "else than what is trained; session.network and session.predict are the trained one",
            ", ".join(differences[:3]),
            more,
        )
