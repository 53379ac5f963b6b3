"""The parts of the commands: options as fields of a job, help in groups with examples, words for a shell."""

from __future__ import annotations

import os
import sys
from dataclasses import field, fields
from typing import TYPE_CHECKING, Any

import click

from .help_texts import AUTHORS, EXAMPLES, GROUPS

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

ALL = "*"
OTHERS = "Other options"


def option(text: str, *flags: str, **settings: Any) -> Any:
    """A field of a command's job that is an option; ``text`` says what it is for, ``settings`` are click's. It has the
    field's name unless a long flag is given. The field's type says whether it is a flag, a number, or may be given
    several times; a default that is no switch is shown."""
    default = settings.get("default")
    shown = default is not None and default is not True and default != ""
    settings = {"help": text, "show_default": shown, **settings}
    return field(metadata={"parameter": click.Option, "flags": flags, "settings": settings})


def place(text: str, *flags: str, metavar: str = "FILE") -> Any:
    """The same for an option that names a file or folder."""
    return option(text, *flags, metavar=metavar, type=Place())


def argument(*, required: bool = True) -> Any:
    """A field of a command's job that is an argument, and names a file or folder."""
    settings = {"required": required, "type": Place()}
    return field(metadata={"parameter": click.Argument, "flags": (), "settings": settings})


_BY_TYPE: dict[str, dict[str, Any]] = {
    "bool": {"is_flag": True}, "int": {"type": int}, "float": {"type": float}, "tuple[str, ...]": {"multiple": True}
}  # fmt: skip


def parameters_of(job: type) -> list[click.Parameter]:
    """The parameters that the fields of a job (a dataclass) declare."""
    found: list[click.Parameter] = []
    for each in fields(job):
        if not each.metadata:
            continue
        flags, settings = each.metadata["flags"], each.metadata["settings"]
        if each.metadata["parameter"] is click.Option:
            settings = {**_BY_TYPE.get(str(each.type).removesuffix(" | None"), {}), **settings}
            if not any(flag.startswith("--") for flag in flags):
                flags = (*flags, f"--{each.name.replace('_', '-')}")
        found.append(each.metadata["parameter"]([*flags, each.name], **settings))
    return found


class Command(click.Command):
    """A command whose help is as wide as the terminal, its options in groups (tools/help_texts.py), examples below."""

    def __init__(self, name: str | None, **kwargs: Any):
        # click cuts lines at 80 columns unless it is told otherwise.
        super().__init__(
            name, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 1000}, **kwargs
        )

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        self._write_groups(ctx, formatter, authors=False)

    def help_for_authors(self) -> str:
        """The groups of options that serve who writes passes."""
        with click.Context(self, info_name=self.name, **self.context_settings) as ctx:
            formatter = ctx.make_formatter()
            self._write_groups(ctx, formatter, authors=True)
        return formatter.getvalue().strip("\n")

    def _write_groups(self, ctx: click.Context, formatter: click.HelpFormatter, *, authors: bool) -> None:
        for_authors = AUTHORS.get(self.name or "", ())
        groups = GROUPS.get(self.name or "", {})
        title_of = {option: title for title, options in groups.items() for option in options.split()}
        rows: dict[str, list[tuple[str, str]]] = {title: [] for title in (*groups, OTHERS)}
        for parameter in self.get_params(ctx):
            row = parameter.get_help_record(ctx)
            if row is not None and isinstance(parameter, click.Option):
                title = next((title_of[name] for name in parameter.opts if name in title_of), OTHERS)
                rows[title].append(row)
        for title, listed in rows.items():
            if listed and (title in for_authors) == authors:
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
