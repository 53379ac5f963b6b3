"""The state of a session in a file: what is written, and what a file must hold to be taken back."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ...ir.core.errors import RuntimeFailure, nearest
from ...ir.core.types import DType, TensorType
from ...ir.core.wording import counted
from ..engine.engine import Engine
from ..engine.exchange import Exchange
from ..lowering.context import Context
from .checkpoint import read_state_and_notes, tensor_to_numpy, write_state
from .own_state import RANKS, of_all, of_rank, pack_kept, refuse_unknown, split, unpack_kept
from .whole_state import whole_state

log = logging.getLogger("boost_compile")


@dataclass(frozen=True, slots=True)
class Saved:
    """``values`` by name, of the types of the state; ``kept``: the micro-batches of a cycle that a search needs again.
    ``foreign``: what other ranks had for themselves is left out."""

    origin: str
    values: dict[str, Any]
    kept: list[list[Any]]
    notes: Mapping[str, str]
    foreign: bool

    def warn_if_foreign(self) -> None:
        if self.foreign:
            log.warning(
                "%s was saved by %s ranks; what each had for itself (optimizer state, statistics, sums of a window) is "
                "that of the first, or their mean",
                self.origin,
                self.notes[RANKS],
            )


def read_saved(
    source: Mapping[str, Any] | str | os.PathLike[str],
    types: Mapping[str, TensorType],
    exchange: Exchange,
    strict: bool,
    starts: Mapping[str, Any],
) -> Saved:
    """A file, or arrays and Tensors by name, as this rank takes them for the state of these ``types``. States that
    ``starts`` names begin with these values where others are loaded, and the log says so.

    RuntimeFailure for another shape or dtype and, with ``strict``, for other names; DamagedState for a file that is not
    what was written."""
    if isinstance(source, (str, os.PathLike)):
        origin, (read, notes) = str(source), read_state_and_notes(source)
    elif isinstance(source, Mapping):
        origin, read, notes = "the given state", dict(source), {}
    else:
        raise RuntimeFailure(
            f"a state is read from a file, or from arrays by name, and not from a {type(source).__name__}."
        )
    given, foreign = split(read, notes, exchange.ranks.rank, exchange.ranks.size)
    kept = unpack_kept(given, origin)
    refuse_unknown(given, origin)
    begun = {name: value for name, value in starts.items() if strict and name not in given}
    if strict:
        _check_names(origin, list(given), [name for name in types if name not in begun])
    if begun:
        log.warning("%s was saved without monitors: their %s begin anew", origin, counted(len(begun), "state"))
    values = {name: _checked(origin, name, value, types[name]) for name, value in given.items() if name in types}
    return Saved(origin, begun | values, kept, notes, foreign)


def _check_names(origin: str, given: list[str], known: list[str]) -> None:
    expected, held = set(known), set(given)
    missing = [name for name in known if name not in held]
    for name in given:
        if name not in expected:
            raise _other_names(f"{origin} holds '{name}', which the program does not know{nearest(name, known)}.")
    if missing:
        first = f"first '{missing[0]}'{nearest(missing[0], given)}"
        raise _other_names(f"{origin} lacks {len(missing)} of {len(known)} names, {first}.")


def _other_names(what: str) -> RuntimeFailure:
    return RuntimeFailure(
        what,
        python="A state of the same program is expected; strict=False takes what both have.",
        command=(
            "boost-run --load and --resume take a state of the same program; --load … --partial takes what both have."
        ),
    )


def _checked(origin: str, name: str, value: Any, type_: TensorType) -> Any:
    import mindspore
    import numpy as np

    array = tensor_to_numpy(value) if isinstance(value, mindspore.Tensor) else np.asarray(value)
    if array.shape != type_.shape:
        raise RuntimeFailure(f"state '{name}' is {type_}, {origin} holds shape {list(array.shape)} for it.")
    dtype = "float32" if type_.dtype is DType.BFLOAT16 else type_.dtype.value
    if array.dtype != dtype:
        raise RuntimeFailure(f"state '{name}' is {type_}, {origin} holds {array.dtype}; convert it to {dtype}.")
    return array


def sums_over_ranks(saved: Saved, context: Context) -> dict[str, Any]:
    """The values of a file for the accumulators that hold sums over the ranks of this job. A file has their mean, and
    for a job of as many ranks the sums themselves."""
    if saved.notes.get(RANKS) == str(context.ranks):
        return {}
    summed = [
        name
        for name in saved.values
        if not context.is_common(name) and context.program.state[name].role == "accumulator"
    ]
    return {name: saved.values[name] * saved.values[name].dtype.type(context.ranks) for name in summed}


def write_saved(
    path: str | os.PathLike[str],
    engine: Engine,
    exchange: Exchange,
    names: Iterable[str],
    mean: Sequence[str],
    kept: Sequence[Sequence[Any]],
    notes: Mapping[str, str],
) -> None:
    """Writes the state of these names. In a job all ranks must call it, and the first one writes: its own state, what
    other ranks hold alone, the mean over the ranks of the names ``mean``, and beside that what differs between ranks.
    """
    values = whole_state(engine, exchange, names, exchange.ranks.rank == 0)
    pieces = engine.context.pieces
    parameters = {name: engine.parameters[name] for name in values if engine.context.holds(name) and name not in pieces}
    values |= pack_kept(kept)
    if exchange.ranks.size > 1:
        common = {name: value for name, value in values.items() if engine.context.is_common(name)}
        own = {name: values[name] for name in exchange.differing(common)}
        averaged = exchange.mean({name: values[name] for name in mean if name in common})
        for rank, parts in enumerate(exchange.gather(own)):
            values |= {of_rank(rank, name): value for name, value in parts.items()}
        values |= averaged
        # A sum over the ranks, which they do not hold each: the mean, as of sums that each has for itself.
        for name in (n for n in mean if not engine.context.is_common(n) and n in values):
            own[name] = values[name]
            values[of_all(name)] = own[name]
            values[name] = own[name] / own[name].dtype.type(exchange.ranks.size)
            parameters[name] = engine.memory.tensor(name, values[name])
        parameters |= {name: engine.memory.tensor(name, value) for name, value in averaged.items()}
        if own:
            notes = {**notes, RANKS: str(exchange.ranks.size)}
    if exchange.ranks.rank == 0:
        write_state(path, parameters, values, notes)
