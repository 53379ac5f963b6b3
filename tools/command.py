"""The parts of the commands: help in groups with examples, options that may stand alone, words for a shell."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Any

import click

from .help_texts import EXAMPLES, GROUPS

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

ALL = "*"
OTHERS = "Other options"


class Command(click.Command):
    """A command whose help is as wide as the terminal, its options in groups (tools/help_texts.py), examples below."""

    def __init__(self, name: str | None, **kwargs: Any):
        # click cuts lines at 80 columns unless it is told otherwise.
        super().__init__(
            name, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 1000}, **kwargs
        )

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        groups = GROUPS.get(self.name or "", {})
        title_of = {option: title for title, options in groups.items() for option in options.split()}
        rows: dict[str, list[tuple[str, str]]] = {title: [] for title in (*groups, OTHERS)}
        for parameter in self.get_params(ctx):
            row = parameter.get_help_record(ctx)
            if row is not None and isinstance(parameter, click.Option):
                title = next((title_of[name] for name in parameter.opts if name in title_of), OTHERS)
                rows[title].append(row)
        for title, listed in rows.items():
            if listed:
                with formatter.section(title):
                    formatter.write_dl(listed)

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Examples"):
            for line in EXAMPLES.get(self.name or "", ()):
                formatter.write(f"{'':{formatter.current_indent}}{line}\n")


class OptionalValueCommand(Command):
    """A command some of whose options may stand alone or take a value after ``=`` (and only there, so that a file name
    that follows is not taken for the value). Standing alone means :data:`ALL`."""

    optional_values: tuple[str, ...] = ()

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        end = args.index("--") if "--" in args else len(args)
        args = [f"{a}={ALL}" if i < end and a in self.optional_values else a for i, a in enumerate(args)]
        return super().parse_args(ctx, args)


class Place(click.ParamType):
    """A file or directory, which shells complete; what it must be is said where it is opened."""

    name = "text"

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        from click.shell_completion import CompletionItem

        return [CompletionItem(incomplete, type="file")]


class Pipeline(click.ParamType):
    """The text of a pipeline, whose last pass shells complete."""

    name = "text"

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        from click.shell_completion import CompletionItem

        from ..passes.framework.registry import REGISTRY, load_all

        load_all()
        before, comma, begun = incomplete.rpartition(",")
        return [CompletionItem(before + comma + name) for name in sorted(REGISTRY) if name.startswith(begun)]


def complete_in_a_shell(command: click.Command, name: str) -> None:
    """Answers and exits where a shell asks for completions, by click's protocol."""
    variable = f"_{name.replace('-', '_').upper()}_COMPLETE"
    instruction = os.environ.get(variable)
    if instruction:
        from click.shell_completion import shell_complete

        sys.exit(shell_complete(command, {}, name, variable, instruction))
