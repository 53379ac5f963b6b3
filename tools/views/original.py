"""The original of a program in its report: the file that it was compiled from, and no other."""

from __future__ import annotations

from collections.abc import Mapping

from ...ir.core.errors import OptionError
from ...ir.core.program import Program
from .. import cli


def read_original(path: str, program: Program, file: str, sizes: Mapping[str, int]) -> Program:
    """The original at ``path``. OptionError where the program (from ``file``) notes the sha256 of another.
    ``sizes``: of what an ONNX model leaves open."""
    original = cli.read_program(path, sizes if path.endswith(".onnx") else None)
    noted, given = program.source.get("sha256"), original.source.get("sha256")
    if noted and given and noted != given:
        name = program.source.get("file", "another file")
        raise OptionError(
            f"--original {path}: {file} was not compiled from this file, but from '{name}' of sha256 {noted[:12]}…, "
            f"and this one's is {given[:12]}…. Give that file, or compare any two programs with --diff"
        )
    return original
