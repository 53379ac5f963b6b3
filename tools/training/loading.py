"""The state that a training starts from: ``--load``, ``--partial``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from ...ir.errors import RuntimeFailure
from ...ir.wording import counted
from .. import cli

if TYPE_CHECKING:
    from ...runtime.session import Session


def load(session: Session, path: str, partial: bool) -> None:
    """Loads a state file; with ``partial`` what file and program both have, by name and shape. What that leaves out is
    said on stderr by the first rank."""
    if not partial:
        session.load_state(path)
        return
    from ...runtime.checkpoint import read_state

    given, own = read_state(path), session.state()
    fitting = {name: value for name, value in given.items() if name in own and own[name].shape == value.shape}
    if not fitting:
        raise RuntimeFailure(
            f"{path} holds nothing of the program: none of its {len(given)} names, such as '{next(iter(given), '')}', "
            f"is a state of the program by name and shape, such as '{next(iter(own), '')}'"
        )
    session.load_state(fitting, strict=False)
    if session.ranks.rank == 0:
        for line in _left_out(path, given, own, fitting):
            click.echo(cli.safe(line), err=True)


def _left_out(path: str, given: dict[str, Any], own: dict[str, Any], fitting: dict[str, Any]) -> list[str]:
    lines = [f"Note: {path}: {len(fitting)} of the program's {counted(len(own), 'state')} were loaded."]
    shapes = [f"{n} {list(given[n].shape)}, not {list(own[n].shape)}" for n in given if n in own and n not in fitting]
    for what, names in (
        ("kept their values", [n for n in own if n not in given]),
        ("kept their values, of another shape in the file", shapes),
        ("of the file are no states of the program", [n for n in given if n not in own]),
    ):
        if names:
            lines.append(f"  {len(names)} {what}: {', '.join(cli.folded(names, listing='boost-inspect'))}")
    return lines
