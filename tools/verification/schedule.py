"""The learning rates that a schedule promises, from its options alone: nothing that the pass left in a program."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from ...ir.core.program import Program
from ...passes.framework.base import Pass

STEP, RATE = "global_step", "learning_rate"
"""How MindSpore's optimizers call their states; the rates of groups have an ending."""


def rates_of(original: Program) -> list[str]:
    """The states of an original that each hold a learning rate, or a list of those of its steps; none where a step
    count does not stand beside it."""
    held = [n for n, v in original.state.items() if n.startswith(RATE) and v.type.size and v.dtype.is_float]
    return held if STEP in original.state else []


def scheduled(schedule: Pass, original: Program, state: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """``state`` with the rates of the update that comes next: in a list everywhere. It stays where the original holds
    no rate."""
    options = schedule.options()
    given = {name: float(original.state[name].initial.max()) for name in rates_of(original)}
    if not given:
        return dict(state)
    largest = max(given.values())
    peak = largest if options["lr"] is None else options["lr"]
    at = int(state[STEP].reshape(-1)[0])
    if options["table"]:
        rate = options["table"][min(at, len(options["table"]) - 1)]
    else:
        rate = peak * _part(options, at)
    changed = {
        name: np.full(state[name].shape, rate * (value / largest), state[name].dtype) for name, value in given.items()
    }
    return {**state, **changed}


def _part(options: Mapping[str, Any], at: int) -> float:
    """The rate of update number ``at`` as a part of the largest one."""
    cycle = options["kind"] == "one-cycle"
    total = options["total"] or 0
    warmup = int(0.3 * total) if cycle and options["warmup"] is None else options["warmup"] or 0
    start, end = options["start"], options["end"]
    first = (0.04 if cycle else 0.0) if start is None else start
    last = (4e-6 if cycle else 0.0) if end is None else end
    if at < warmup:
        way = at / warmup
        return float(first + (1 - first) * (np.sin(np.pi / 2 * way) ** 2 if cycle else way))
    if options["kind"] == "constant":
        return 1.0
    way = min((at - warmup) / (total - warmup), 1.0)
    return float(1 - (1 - last) * (way if options["kind"] == "linear" else np.sin(np.pi / 2 * way) ** 2))
