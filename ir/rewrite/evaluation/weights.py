"""The network of a program with the weights that are asked for."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ...core.errors import OptionError
from ...core.program import Program
from ...core.which_weights import WEIGHTS, Weights
from .adapters import adapters_of, merged_values, without_adapters
from .averages import averaged_values, averages_of
from .network import Evaluation, evaluation


def check_weights(program: Program, which: str) -> None:
    """OptionError where there are no such weights, PassError where the program has none of them."""
    if which not in WEIGHTS:
        raise OptionError(f"no weights are called '{which}': give one of {', '.join(WEIGHTS)}")
    if which == "average":
        averages_of(program)
    if which == "merged":
        adapters_of(program)


def values_of(program: Program, which: Weights, values: Mapping[str, Any]) -> dict[str, Any]:
    """The state ``values`` of ``program``, as a network with these weights has it."""
    if which == "merged":
        return merged_values(program, values)
    return {**values, **(averaged_values(program, values) if which == "average" else {})}


def _samples(batch: int | str) -> int | None:
    if batch == "any":
        return None
    if not str(batch).isdecimal() or int(batch) < 1:
        raise OptionError(f"a batch of {batch!r}: give a whole number of at least 1, or 'any'")
    return int(batch)


def network_of(
    program: Program,
    which: Weights,
    result: str | None = None,
    values: Mapping[str, Any] | None = None,
    origin: str = "",
    batch: int | str | None = None,
    *,
    runs: bool = True,
) -> Evaluation:
    """The network of ``program`` up to ``result`` with these weights, made of the state ``values`` from ``origin``, for
    ``batch`` samples (or ``"any"``); each as it is where nothing is given. ``runs``: MindSpore is to run it. It is a
    network without adapters where these are merged."""
    if which != "trained":
        given = {name: v.initial for name, v in program.state.items()} if values is None else values
        values = values_of(program, which, given)
    network = evaluation(program, result)
    if batch is not None:
        network = network.resized(_samples(batch), runs=runs)
    if which == "merged":
        network = without_adapters(network)
    return network if values is None else network.with_values(values, origin)
