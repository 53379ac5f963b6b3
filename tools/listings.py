"""Names for the command line: passes, losses and optimizers, each with its options."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Mapping
from typing import Any

import click

from . import cli


def list_passes(as_json: bool) -> None:
    """``boost-compile --list-passes``."""
    from ..passes.framework.options import REQUIRED, declared_options
    from ..passes.framework.registry import REGISTRY, load_all

    load_all()
    if as_json:
        document = {
            name: {
                "summary": cls.summary(),
                "preserves": cls.preserves,
                "stage": cls.at_stage,
                "options": {
                    o.name: {
                        "type": o.type_name,
                        "default": None if o.default is REQUIRED else o.default,
                        "required": o.default is REQUIRED,
                        "choices": o.choices,
                        "help": o.help,
                    }
                    for o in declared_options(cls).values()
                },
            }
            for name, cls in sorted(REGISTRY.items())
        }
        return cli.print_json(document)
    for name, cls in sorted(REGISTRY.items()):
        _say(f"{name}: {cls.summary()}" + ("" if cls.preserves else " (changes training)"))
        for o in declared_options(cls).values():
            _say(f"  {o.describe()}")
    return None


def list_losses(as_json: bool) -> None:
    """``boost-compile --list-losses``: asks MindSpore for the options."""
    from ..runtime.differentiation.catalogue import LOSSES

    listed = {
        name: {
            "class": f"mindspore.nn.{kind.name}",
            "labels": kind.labels,
            "options": {**_options(kind.name, skip=0), **dict(kind.defaults)},
        }
        for name, kind in sorted(LOSSES.items())
    }
    _print(listed, as_json, "softmax-cross-entropy{sparse=false}")


def list_optimizers(as_json: bool) -> None:
    """``boost-compile --list-optimizers``: asks MindSpore for the options."""
    from ..runtime.differentiation.catalogue import OPTIMIZERS

    listed = {
        name: {"class": f"mindspore.nn.{cls}", "options": _options(cls, skip=1)}
        for name, cls in sorted(OPTIMIZERS.items())
    }
    _print(listed, as_json, "momentum{learning_rate=0.01,momentum=0.9}; lr is short for learning_rate")


def _options(name: str, skip: int) -> dict[str, Any]:
    """Option -> default of a class of ``mindspore.nn``; ``skip`` arguments are given by us."""
    from mindspore import nn

    from ..runtime.differentiation.catalogue import parameters_of

    found = list(parameters_of(getattr(nn, name)).values())[1 + skip :]
    taken = [p for p in found if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)]
    return {p.name: "required" if p.default is inspect.Parameter.empty else p.default for p in taken}


def _print(listed: Mapping[str, Mapping[str, Any]], as_json: bool, example: str) -> None:
    if as_json:
        return cli.print_json(listed)
    for name, entry in listed.items():
        labels = f"; labels: {entry['labels']}" if "labels" in entry else ""
        _say(f"{name}: {entry['class']}{labels}")
        options = ", ".join(f"{k}={_shown(v)}" for k, v in entry["options"].items())
        if options:
            _say(f"  {options}")
    _say(f"Written as {example}")
    return None


def _say(line: str) -> None:
    """A line, whose continuations hang on a terminal."""
    click.echo(cli.hanging(line, cli.terminal_width()) if sys.stdout.isatty() else line)


def _shown(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) or value is None else str(value)
