"""The state that a training starts from: ``--load``, ``--partial``, ``--set``."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import click

from ...ir.core.errors import OptionError, RuntimeFailure, nearest
from ...ir.core.wording import counted
from ...passes.step.names import TABLE
from .. import cli

if TYPE_CHECKING:
    from ...ir.core.program import Program
    from ...runtime.training.session import Session

SETTABLE = ("hyperparameter", "loss-scale")
"""The roles of state that --set may set."""


def load(session: Session, path: str, partial: bool) -> None:
    """Loads a state file; with ``partial`` what file and program both have, by name and shape. What that leaves out is
    said on stderr by the first rank."""
    if not partial:
        session.load_state(path)
        return
    from ...runtime.state.checkpoint import read_state

    given, own = read_state(path), session.state()
    fitting = {name: value for name, value in given.items() if name in own and own[name].shape == value.shape}
    if not fitting:
        raise RuntimeFailure(
            f"{path} holds nothing of the program: none of its {len(given)} names, such as '{next(iter(given), '')}', "
            f"is a state of the program by name and shape, such as '{next(iter(own), '')}'"
        )
    session.load_state(fitting, strict=False)
    session.finite_state.came_from(path, fitting)
    if session.ranks.rank == 0:
        weights = [n for n, v in session.program.state.items() if v.role == "weight"]
        for line in _left_out(path, given, own, fitting, weights):
            click.echo(cli.safe(line), err=True)


def _left_out(
    path: str, given: dict[str, Any], own: dict[str, Any], fitting: dict[str, Any], weights: Sequence[str]
) -> list[str]:
    # A forward graph does not say what its weights are.
    none = ", and no weight is among them" if weights and not any(name in fitting for name in weights) else ""
    lines = [f"Note: {path}: {len(fitting)} of the program's {counted(len(own), 'state')} were loaded{none}."]
    shapes = [f"{n} {list(given[n].shape)}, not {list(own[n].shape)}" for n in given if n in own and n not in fitting]
    for what, names in (
        ("kept their values", [n for n in own if n not in given]),
        ("kept their values, of another shape in the file", shapes),
        ("of the file are no states of the program", [n for n in given if n not in own]),
    ):
        if names:
            lines.append(f"  {len(names)} {what}: {', '.join(cli.folded(names, listing=''))}")
    return lines


def settings_of(texts: Sequence[str], program: Program) -> dict[str, float]:
    """Hyperparameters by name, as ``--set NAME=VALUE`` gives them. Error for what is none, or no number."""
    settable = [n for n, v in program.state.items() if v.role in SETTABLE and v.dtype.value != "bool"]
    settings = {}
    for text in texts:
        name, equals, number = text.partition("=")
        try:
            value = float(number)
        except ValueError:
            value = math.nan
        if not equals or not math.isfinite(value):
            raise OptionError(f"--set {text}: write NAME=VALUE, such as learning_rate=0.001")
        if name not in settable:
            role = program.state[name].role if name in program.state else None
            what = f"is a {role}" if role not in (None, "unknown") else "is no hyperparameter that the program keeps"
            hint = nearest(name, settable) if settable else " (it keeps none: they are constants of the graph)"
            raise OptionError(f"--set {text}: '{name}' {what}{hint}")
        if TABLE in program.state and name.rpartition(".")[2].startswith("learning_rate"):
            raise OptionError(
                f"--set {text}: the schedule of the program sets '{name}' in each update: compile another"
            )
        if not program.state[name].dtype.is_float and value != int(value):
            raise OptionError(f"--set {text}: '{name}' takes whole numbers ({program.state[name].type})")
        settings[name] = value
    return settings


def set_hyperparameters(session: Session, settings: Mapping[str, float]) -> None:
    """Sets each to one value; a rate that is a list, one for each step, becomes that value in all of them."""
    if not settings:
        return
    import numpy as np

    now = session.state(settings)
    session.load_state({name: np.full_like(now[name], value) for name, value in settings.items()}, strict=False)
