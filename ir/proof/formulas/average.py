"""Averages of weights: what follows each weight from one update to the next, and what Lookahead gives back to it.

An update that is skipped moves no average. What is averaged is a weight as the update has left it.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from ...builders.nodes import Nodes
from ...core.graph import Value, tensor_type
from ...core.names import average_of
from ...core.program import Program, StateVariable
from ...core.types import DType, tensor
from ...core.wording import counted
from .rules import Rule, written
from .statement import Stated

PASS, LOOKAHEAD = "weight-average", "lookahead"
_DECAY, _EVERY = {"ema": 0.999, LOOKAHEAD: 0.5}, {LOOKAHEAD: 5}


def asked(program: Program) -> Mapping[str, Any] | None:
    return next((r.options for r in reversed(program.reports) if r.name == PASS and r.changed), None)


def rules(original: Program, program: Program) -> dict[str, Rule]:
    """The rules of the averages, of the count of updates, and with Lookahead of the weights themselves."""
    options = asked(program)
    if options is None:
        return {}
    own = {n: v for n, v in program.state.items() if n not in original.state and v.role in ("average", "slot")}
    counts = tuple(n for n, v in own.items() if v.type == tensor("int32"))
    found = {n: written((n,), [own[n].type], (), _more, lambda w, n: n) for n in counts}
    for weight, v in original.state.items():
        average = average_of(weight)
        if average in own:
            types = [own[average].type, *(own[n].type for n in counts), v.type]
            takes, after = (average, *counts), (weight,)

            found[average] = written(takes, types, after, _moving(options, 0), lambda w, old, *_: old)
            if options["kind"] == LOOKAHEAD:
                found[weight] = written(takes, types, after, _moving(options, -1), lambda w, *rest: rest[-1])
    return found


def objections(original: Program, program: Program) -> Iterator[tuple[str, str]]:
    """States that do not begin as they should, and why: a count with 0, an average as a copy of its weight."""
    for name, variable in program.state.items():
        weight = original.state.get(variable.weight)
        if name in original.state:
            continue
        counts = variable.dtype is DType.INT32 and variable.role in ("counter", "average", "slot")
        if weight is not None and name == average_of(variable.weight) and not _copies(variable, weight):
            yield name, "it does not begin as its weight does"
        if weight is None and counts and not variable.data.is_zero():
            yield name, "it counts, and does not begin with 0"


def _copies(average: StateVariable, weight: StateVariable) -> bool:
    """In float32."""
    if average.data is weight.data:
        return True
    given = weight.initial
    if weight.dtype is DType.BFLOAT16:
        given = (given.astype("uint32") << 16).view("float32")
    return bool((average.initial == given.astype("float32")).all())


def state(program: Program, weights: tuple[str, ...]) -> list[Stated]:
    """``weights``: those that Lookahead moves."""
    options = asked(program)
    if options is None or not weights:
        return []
    every, kept = options["every"] or _EVERY[LOOKAHEAD], _decay(options)
    says = f"after every {counted(every, 'update')} w' = a' = {kept:g} · a + (1 - {kept:g}) · w, a its slow weight"
    return [Stated(PASS, options, says, weights)]


def _more(w: Nodes, count: Value) -> Value:
    return w.op("Add", count, w.number(1, "int32"))


def _decay(options: Mapping[str, Any]) -> float:
    """As float32."""
    given = _DECAY.get(options["kind"], 0.0) if options["decay"] is None else options["decay"]
    return float(struct.unpack("<f", struct.pack("<f", given))[0])


def _moving(options: Mapping[str, Any], stays: int) -> Callable[..., Value]:
    """What an average moves to, from the old one, the count of updates before if there is one, and the weight.
    ``stays``: which of them it is where none moves."""

    def moved(w: Nodes, *given: Value) -> Value:
        due, kept, taken = _move(w, options, *given[1:-1])
        new = w.op("Mul", w.cast(given[-1], DType.FLOAT32), taken)
        mean = w.cast(w.op("Add", w.op("Mul", given[0], kept), new), tensor_type(given[stays]).dtype)
        return w.op("Select", due, mean, given[stays]) if due else mean

    return moved


def _move(w: Nodes, options: Mapping[str, Any], *counts: Value) -> tuple[Value | None, Value, Value]:
    """Whether an average moves (None: always), and the shares of the old average and of the weight."""
    kind, warmup, every = options["kind"], options["warmup"], options["every"] or _EVERY.get(options["kind"], 1)
    kept: Value = w.number(_decay(options))
    taken: Value = w.number(1.0 - _decay(options))
    if not counts:
        return None, kept, taken
    n = _more(w, counts[0])
    since = w.op("Sub", n, w.number(warmup, "int32")) if kind != "ema" else n
    due: Value = w.op("Equal", w.op("FloorMod", since, w.number(every, "int32")), w.number(0, "int32"))
    if kind == "ema" and warmup:
        share = w.op("Div", w.cast(n, DType.FLOAT32), w.number(warmup))
        kept = w.op("Mul", kept, w.op("Sub", w.number(1.0), w.op("Exp", w.op("Neg", share))))
        taken = w.op("Sub", w.number(1.0), kept)
    if kind == "swa":
        taken = w.op("Div", w.number(1.0), w.op("Div", w.cast(since, DType.FLOAT32), w.number(every)))
    if kind != "ema" and warmup:
        follows = w.op("LessEqual", n, w.number(warmup, "int32"))
        due, taken = w.op("LogicalOr", due, follows), w.op("Select", follows, w.number(1.0), taken)
    if kind == "swa" or (kind == LOOKAHEAD and warmup):
        kept = w.op("Sub", w.number(1.0), taken)
    return due, kept, taken
