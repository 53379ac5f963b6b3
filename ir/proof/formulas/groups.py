"""Parameter groups: some weights have a learning rate or a weight decay of their own."""

from __future__ import annotations

from collections.abc import Mapping
from fnmatch import fnmatchcase
from typing import Any

from ...core.graph import tensor_type
from ...core.program import StateVariable
from ...symbolic.execution import Unproved
from .statement import DECAY, RATE, STEP, Statement

PASS = "parameter-groups"
_DIVIDES_BY_RATE = frozenset({"ApplyFtrl"})
"""Optimizers whose step is scaled instead of their rate where the factor is 0."""


def says(options: Mapping[str, Any]) -> str:
    parts = []
    if options.get("weight_decay") is not None:
        parts.append(f"the decay of the weight w is {options['weight_decay']:g} · w")
    if options.get("lr_factor") is not None:
        parts.append(f"its learning rate is multiplied by {options['lr_factor']:g}")
    return ", ".join(parts)


def members(options: Mapping[str, Any], states: Mapping[str, StateVariable]) -> tuple[str, ...]:
    """The weights of the group: those with a name and as many axes as the options ask for."""
    ranks = {"any": (0, 99), "matrix": (2, 99), "vector": (0, 1)}[options["rank"]]
    return tuple(
        name
        for name, v in states.items()
        if v.role == "weight" and v.trainable is not False and ranks[0] <= len(v.shape) <= ranks[1]
        and any(fnmatchcase(name, glob) for glob in options["match"])
    )  # fmt: skip


def decay(statement: Statement, options: Mapping[str, Any], group: tuple[str, ...]) -> None:
    """Replaces the weight decay: what is added to the gradient, or the coefficient that the primitive takes."""
    value, w = options.get("weight_decay"), statement.nodes
    if value is None:
        return
    for name in group:
        one = statement.taken.get(name)
        if one is None:
            continue
        if one.update.at:
            raise Unproved(f"several primitives update weight '{name}': law missing for the decay among them")
        if one.update.facts.decay is not None:
            statement.gives[DECAY, name] = w.number(value)
            continue
        dtype = tensor_type(one.gradient).dtype
        one.rest, one.changed = None, True
        if value:
            one.rest = w.op("Mul", w.cast(statement.weight(name), dtype), w.cast(w.number(value), dtype))


def rate(statement: Statement, options: Mapping[str, Any], group: tuple[str, ...]) -> None:
    """Multiplies the learning rate; the step of the weight where the optimizer takes no rate as it is."""
    factor, w = options.get("lr_factor"), statement.nodes
    if factor is None:
        return
    for name in group:
        now = statement.rate(name) if name in statement.taken else None
        node = statement.taken[name].update.node if name in statement.taken else None
        if now is not None and node is not None and (factor or node.op.name not in _DIVIDES_BY_RATE):
            statement.gives[RATE, name] = w.op("Mul", now, w.cast(w.number(factor), tensor_type(now).dtype))
        else:
            statement.gives[STEP, name] = w.number(factor)
