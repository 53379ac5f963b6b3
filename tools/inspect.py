"""boost-inspect: what a training graph or a program holds."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import click

from . import cli

if TYPE_CHECKING:
    from ..ir.program import Program


@click.command("boost-inspect", context_settings={"help_option_names": ["-h", "--help"]})
@click.argument("file")
@click.option("--graph", "graph_name", metavar="NAME", help="This graph of the program only.")
@click.option("--anatomy", "show_anatomy", is_flag=True, help="Gradient, update and slots of every weight.")
@click.option("--text", "show_text", is_flag=True, help="The text form, big data left out.")
@click.option("--annotations/--no-annotations", default=False, help="With --text: scopes and origins too.")
@click.option("--json", "as_json", is_flag=True, help="Everything but the text form as one JSON document.")
@click.version_option(package_name="boost-compile")
def command(
    file: str, graph_name: str | None, show_anatomy: bool, show_text: bool, annotations: bool, as_json: bool
) -> None:
    """Shows what FILE holds: a MindIR file, a program directory (.boost), or text (.ir, .txt, - for stdin)."""
    if show_text and (as_json or show_anatomy):
        raise click.UsageError("--text prints the text form alone: leave out --json and --anatomy")
    cli.pause_collector()
    from ..ir.errors import OptionError, nearest

    program = cli.read_program(file)
    if graph_name is not None:
        if graph_name not in program.graphs:
            raise OptionError(f"{file} has no graph '{graph_name}'{nearest(graph_name, list(program.graphs))}")
        program = _only(program, graph_name)
    if show_text:
        from ..ir.text import print_program

        sys.stdout.write(print_program(program, annotations=annotations, resources=False))
        return
    from .inspect_report import describe, print_anatomy, print_summary

    document = describe(program, file)
    if as_json:
        cli.print_json(document)
    elif show_anatomy:
        print_anatomy(document)
    else:
        print_summary(document)


def _only(program: Program, name: str) -> Program:
    """The program cut down to one graph and the state that it uses (for looking at; it has no meaningful schedule)."""
    from ..ir.program import Entry, Schedule

    part: Any = program.copy()
    part.graphs = {name: part.graphs[name]}
    part.schedule = Schedule((Entry(name),))
    part.prune_state()
    return part  # type: ignore[no-any-return]


def main() -> None:
    cli.run(command)


if __name__ == "__main__":
    main()
