"""The original of a program, for what runs a program beside it or proves one from it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..ir.analysis.training.trains import what_is_missing
from ..ir.core.errors import OptionError

if TYPE_CHECKING:
    from ..ir.core.program import Program


def read_original(path: str) -> Program:
    """The program at ``path``. OptionError for a model in ONNX whose sizes are open: it is a forward graph whatever
    they are."""
    from ..ir.formats.onnx.reader import OpenSizes
    from . import cli

    try:
        return cli.read_program(path)
    except OpenSizes:
        raise _forward(path, "is a forward graph (ONNX holds no other)") from None


def check_original(original: Program, program: Program) -> None:
    """OptionError where the program was made from a forward graph, which has nothing to compare its training with."""
    missing = what_is_missing(original)
    if missing is not None and what_is_missing(program) is None:
        raise _forward(original.source.get("file", original.name), missing)


def _forward(file: str, missing: str) -> OptionError:
    return OptionError(
        f"the original, {file}, {missing}. So it holds no updates to compare those of the program with.",
        python="Compile what bc.differentiate makes of it, and give that as the original.",
        command=f"boost-compile {file} --loss … --optimizer … --verify (or --prove) checks a program as it makes it.",
    )
