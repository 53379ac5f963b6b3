"""Reading a program to the end, whatever holds it: graphs, state and its roles, names of the results."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from ...core.errors import FormatError, OptionError
from ...core.program import Program
from ...files.atomic import unfinished
from ...rewrite.roles import assign_roles
from .compiled import recognise
from .suffixes import form_of


def load(path: str | os.PathLike[str], dimensions: Mapping[str, int] | None = None) -> Program:
    """Reads a program directory, a ``.mindir`` file, an ``.onnx`` model or the text form (``.ir``, ``.txt``); state
    stays mapped from the file. A training graph's state has its roles, and its results their names. ``dimensions``:
    sizes of what an ONNX model leaves open.

    Raises FormatError, naming path and place, for anything that is missing, damaged or of another kind.
    """
    if not isinstance(path, (str, os.PathLike)):
        raise OptionError(f"a program is read from a path, not from a {type(path).__name__}")
    path = Path(path)
    if path.is_dir():
        from .directory import read_directory

        _refuse_dimensions(dimensions, f"{path} is a program, whose sizes are set")
        return assign_roles(read_directory(path))
    left = unfinished(path)
    if left is not None:
        raise FormatError(
            f"{path}: a process was stopped while it replaced this; what stood here is whole, as '{left}'. "
            f"Rename it to '{path.name}', or write {path.name} again."
        )
    form = form_of(path)
    if form == "onnx":
        from ..onnx.reader import read_onnx

        return assign_roles(read_onnx(path, dimensions))
    _refuse_dimensions(dimensions, f"{path} is no ONNX model")
    if form == "text" and path.is_file():
        try:
            return load_text(path.read_bytes(), str(path))
        except OSError as error:
            raise FormatError(f"{path}: cannot be read: {error.strerror}") from None
    from ..mindir.reader import read_mindir

    program = read_mindir(path)
    try:
        return assign_roles(recognise(program))
    except FormatError as error:
        raise FormatError(f"{path}: {error}") from None


def load_text(raw: bytes, name: str, dimensions: Mapping[str, int] | None = None) -> Program:
    """The program whose text form (UTF-8) is given; ``name``: where it was read, for errors."""
    from ...text import parse_program

    try:
        text = raw.decode("utf-8")
    except UnicodeDecodeError:
        raise FormatError(f"{name}: not the text form of a program: it is not UTF-8") from None
    _refuse_dimensions(dimensions, f"{name} is a program as text")
    return assign_roles(parse_program(text, name))


def _refuse_dimensions(dimensions: Mapping[str, int] | None, why: str) -> None:
    """OptionError where sizes are given for what leaves none open."""
    if dimensions:
        raise OptionError(
            f"{why}: sizes can be given for what an ONNX model leaves open.",
            python="Leave dimensions out; pass batch-size changes the batch of a training graph",
            command="boost-compile --dim is for those alone; pass batch-size changes the batch of a training graph",
        )


def check_state(program: Program) -> None:
    """Reads all state, and raises FormatError, naming the tensor, where a file no longer holds what was written."""
    for name, variable in program.state.items():
        variable.data.check(name)
