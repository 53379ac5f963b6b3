"""A forward graph as a Python module and the file of its weights."""

from __future__ import annotations

from pathlib import Path

from ...ir.core.errors import OptionError
from ...ir.core.program import Program
from ...ir.files.atomic import replacing_directory


def write_python_of(program: Program, output: str) -> None:
    """Writes ``network.py`` and ``network.safetensors`` into a folder, which is whole or not there.

    A folder that stands there is replaced if it holds nothing else; OptionError otherwise.
    """
    from ...ir.formats.python.decompile import decompile

    path = Path(output)
    if path.exists() and not (
        path.is_dir() and {p.name for p in path.iterdir()} <= {"network.py", "network.safetensors", "__pycache__"}
    ):
        raise OptionError(f"{output}: something else stands there; give -o another folder")
    written = decompile(program)
    with replacing_directory(path) as folder:
        written.write(folder)


def source_of(program: Program) -> str:
    """The module alone."""
    from ...ir.formats.python.decompile import decompile

    return decompile(program).source
