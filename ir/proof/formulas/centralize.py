"""Gradient centralization: what an update takes loses its mean over the axes that a weight's note says.

Source: Yong et al., Gradient Centralization, 2020.
"""

from __future__ import annotations

from collections.abc import Mapping

from ...builders.reduce import reduce_mean
from ...core.graph import tensor_type
from ...core.program import StateVariable
from .statement import Statement

PASS = "lower-gradient-centralization"
NOTE = "centralize"
SAYS = f"g' = g - mean(g), over the axes that the note '{NOTE}' of the weight says"


def state(statement: Statement, states: Mapping[str, StateVariable]) -> tuple[str, ...]:
    """Changes what the updates of the weights take that have the note; returns these."""
    w, changed = statement.nodes, []
    for name, one in statement.taken.items():
        axes = states[name].info.get(NOTE) if name in states else None
        if axes:
            taken = statement.whole(name)
            own = tensor_type(taken).dtype
            wide = w.cast(taken, own.widened)
            centred = w.op("Sub", wide, reduce_mean(statement.graph, wide, axes, keep=True))
            one.gradient, one.changed = w.cast(centred, own), True
            changed.append(name)
    return tuple(changed)
