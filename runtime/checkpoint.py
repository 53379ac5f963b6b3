"""State files: .safetensors, MindSpore's .ckpt, and numpy's .npz (read only)."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ..ir.errors import FormatError, RuntimeFailure
from ..ir.tensor_file import write_tensors

READABLE = (".safetensors", ".ckpt", ".npz")


def read_state(path: str | os.PathLike[str]) -> dict[str, Any]:
    """Name -> numpy array of every tensor in the file; bfloat16 (.ckpt only) as float32."""
    return read_state_and_notes(path)[0]


def read_state_and_notes(path: str | os.PathLike[str]) -> tuple[dict[str, Any], dict[str, str]]:
    """The tensors of the file as :func:`read_state` gives them, and the texts that stand beside them, by name."""
    path = Path(path)
    if path.suffix not in READABLE:
        raise RuntimeFailure(f"{path}: no state file by its name; load one of {', '.join(READABLE)}.")
    if not path.is_file():
        raise RuntimeFailure(f"{path}: no such file.")
    if path.suffix == ".npz":
        return read_npz(path), {}
    return _read_safetensors(path) if path.suffix == ".safetensors" else _read_ckpt(path)


def write_state(
    path: str | os.PathLike[str],
    parameters: Mapping[str, Any],
    values: Mapping[str, Any],
    notes: Mapping[str, str] | None = None,
) -> None:
    """Writes ``values`` (arrays) as .safetensors, or ``parameters`` as .ckpt, with ``notes`` beside them.

    The whole file appears, or none.
    """
    path = Path(path)
    if path.suffix not in (".safetensors", ".ckpt"):
        raise RuntimeFailure(f"{path}: checkpoints are .safetensors or .ckpt files; end the name with one of them.")
    try:
        # In the target's folder, so that the rename stays inside one file system.
        with tempfile.TemporaryDirectory(prefix=scratch_prefix(os.getpid()), dir=path.parent) as folder:
            temporary = Path(folder) / f"state{path.suffix}"
            if path.suffix == ".ckpt":
                import mindspore

                listed = [{"name": n, "data": p} for n, p in parameters.items()]
                mindspore.save_checkpoint(listed, str(temporary), append_dict=dict(notes) if notes else None)
            else:
                write_tensors(temporary, values, notes)
            os.replace(temporary, path)
    except OSError as e:
        raise RuntimeFailure(
            f"{path}: cannot be written: {e.strerror or e}. Choose a folder that exists and is writable."
        ) from e


def scratch_prefix(pid: int) -> str:
    """How the names of the folders begin in which process ``pid`` writes a state, beside the file that it replaces."""
    return f".boost-compile-{pid}-"


def _read_safetensors(path: Path) -> tuple[dict[str, Any], dict[str, str]]:
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(path, framework="numpy") as file:
            return {name: file.get_tensor(name) for name in file.keys()}, dict(file.metadata() or {})  # noqa: SIM118
    except (SafetensorError, OSError, ValueError, TypeError, KeyError, AttributeError) as e:
        raise RuntimeFailure(f"{path}: cannot be read as .safetensors: {e}.") from e


def _read_ckpt(path: Path) -> tuple[dict[str, Any], dict[str, str]]:
    from ..ir.checkpoint_file import read_ckpt

    try:
        return read_ckpt(path)
    except FormatError as error:
        raise RuntimeFailure(str(error)) from None


def read_npz(path: Path) -> dict[str, Any]:
    """Name -> array, in the order of the file; pickled objects are refused."""
    from ..ir import npz_file

    try:
        return npz_file.read_npz(path)
    except FormatError as error:
        raise RuntimeFailure(str(error)) from None


def tensor_to_numpy(value: Any) -> Any:
    """A Tensor's value; bfloat16 as float32."""
    import mindspore

    return (value.astype(mindspore.float32) if value.dtype == mindspore.bfloat16 else value).asnumpy()
