"""A forward graph as a Python module and the file of its weights."""

from __future__ import annotations

from pathlib import Path

from ...ir.core.errors import OptionError
from ...ir.files.atomic import replacing_directory
from ...ir.formats.python.decompile import Decompiled


def write_python(written: Decompiled, output: str) -> None:
    """Writes ``network.py`` and ``network.safetensors`` into a folder, which is whole or not there.

    A folder that stands there is replaced if it holds nothing else; OptionError otherwise.
    """
    path = Path(output)
    own = {"network.py", "network.safetensors", "__pycache__"}
    if path.exists() and not (path.is_dir() and {p.name for p in path.iterdir()} <= own):
        raise OptionError(f"{output}: something else stands there; give -o another folder")
    with replacing_directory(path) as folder:
        written.write(folder)
