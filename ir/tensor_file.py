"""Tensors in a ``.safetensors`` file."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any


def write_tensors(path: Path, arrays: Mapping[str, Any], notes: Mapping[str, str] | None = None) -> None:
    """Writes numpy arrays by name, and ``notes`` beside them, durably, with the permissions of any new file."""
    from safetensors.numpy import save_file

    path.touch()
    mode = path.stat().st_mode
    save_file(dict(arrays), path, metadata=dict(notes) if notes else None)
    path.chmod(mode)  # safetensors lets nobody else read its files
    with open(path, "rb+") as file:
        os.fsync(file.fileno())
