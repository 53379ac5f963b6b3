"""State files: .safetensors, MindSpore's .ckpt, and numpy's .npz (read only)."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ..ir.errors import RuntimeFailure

READABLE = (".safetensors", ".ckpt", ".npz")


def read_state(path: str | os.PathLike[str]) -> dict[str, Any]:
    """Name -> numpy array of every tensor in the file; bfloat16 (.ckpt only) as float32."""
    path = Path(path)
    if path.suffix not in READABLE:
        raise RuntimeFailure(f"{path}: no state file by its name; load one of {', '.join(READABLE)}.")
    if not path.is_file():
        raise RuntimeFailure(f"{path}: no such file.")
    reader = {".safetensors": _read_safetensors, ".ckpt": _read_ckpt, ".npz": read_npz}[path.suffix]
    return reader(path)


def write_state(path: str | os.PathLike[str], parameters: Mapping[str, Any], values: Mapping[str, Any]) -> None:
    """Writes ``values`` (arrays) as .safetensors, or ``parameters`` as .ckpt. The whole file appears, or none."""
    path = Path(path)
    if path.suffix not in (".safetensors", ".ckpt"):
        raise RuntimeFailure(f"{path}: checkpoints are .safetensors or .ckpt files; end the name with one of them.")
    try:
        # In the target's folder, so that the rename stays inside one file system.
        with tempfile.TemporaryDirectory(prefix=".boost-compile-", dir=path.parent) as folder:
            temporary = Path(folder) / f"state{path.suffix}"
            if path.suffix == ".ckpt":
                import mindspore

                mindspore.save_checkpoint([{"name": n, "data": p} for n, p in parameters.items()], str(temporary))
            else:
                from safetensors.numpy import save_file

                save_file(dict(values), temporary)
            os.replace(temporary, path)
    except OSError as e:
        raise RuntimeFailure(
            f"{path}: cannot be written: {e.strerror or e}. Choose a folder that exists and is writable."
        ) from e


def _read_safetensors(path: Path) -> dict[str, Any]:
    from safetensors import SafetensorError
    from safetensors.numpy import load_file

    try:
        return dict(load_file(path))
    except (SafetensorError, OSError, ValueError, TypeError, KeyError, AttributeError) as e:
        raise RuntimeFailure(f"{path}: cannot be read as .safetensors: {e}.") from e


def _read_ckpt(path: Path) -> dict[str, Any]:
    import mindspore

    try:
        loaded = mindspore.load_checkpoint(str(path))
    except Exception as e:
        raise RuntimeFailure(f"{path}: MindSpore cannot read it as a checkpoint: {e}") from e
    # A ModelCheckpoint may also record plain numbers and strings about the training.
    return {name: tensor_to_numpy(value) for name, value in loaded.items() if isinstance(value, mindspore.Tensor)}


def read_npz(path: Path) -> dict[str, Any]:
    """Name -> array, in the order of the file; pickled objects are refused."""
    from zipfile import BadZipFile

    import numpy as np

    try:
        with np.load(path, allow_pickle=False) as file:
            return {name: file[name] for name in file.files}
    except (OSError, ValueError, BadZipFile, AttributeError) as e:
        raise RuntimeFailure(f"{path}: cannot be read as an .npz of arrays: {e}") from e


def tensor_to_numpy(value: Any) -> Any:
    """A Tensor's value; bfloat16 as float32."""
    import mindspore

    return (value.astype(mindspore.float32) if value.dtype == mindspore.bfloat16 else value).asnumpy()
