"""State files: .safetensors, MindSpore's .ckpt, and numpy's .npz (read only).

Files written here note a CRC-32 of each tensor and of everything else; whoever reads them compares all of it. An
.npz has checksums of its own.
"""

from __future__ import annotations

import json
import os
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ...ir.core.data import from_numpy
from ...ir.core.errors import FormatError, RuntimeFailure
from ...ir.files.atomic import scratch_directory, sync_directory
from ...ir.files.tensor_file import write_data

READABLE = (".safetensors", ".ckpt", ".npz")
WRITABLE = (".safetensors", ".ckpt")
RESERVED = "boost_compile."
"""How the names of tensors and notes begin that are no state of the program."""
CHECKSUMS = RESERVED + "checksums"


class DamagedState(RuntimeFailure):
    """A state file that is not what was written."""


def read_state(path: str | os.PathLike[str]) -> dict[str, Any]:
    """Name -> numpy array of every state in the file; bfloat16 (.ckpt only) as float32."""
    return {name: array for name, array in read_state_and_notes(path)[0].items() if not name.startswith(RESERVED)}


def read_state_and_notes(path: str | os.PathLike[str]) -> tuple[dict[str, Any], dict[str, str]]:
    """All tensors of the file, and the texts that stand beside them, by name. Raises DamagedState where the file is
    not what was written."""
    path = Path(path)
    if path.suffix not in READABLE:
        raise RuntimeFailure(f"{path}: no state file by its name; load one of {', '.join(READABLE)}.")
    if not path.is_file():
        raise RuntimeFailure(f"{path}: no such file.")
    if path.suffix == ".npz":
        return read_npz(path), {}
    tensors, notes = _read_safetensors(path) if path.suffix == ".safetensors" else _read_ckpt(path)
    _check(path, tensors, notes)
    return tensors, notes


def place_of_state(path: str | os.PathLike[str]) -> Path:
    """Where a state is written; RuntimeFailure for what is no path, or is named like no checkpoint."""
    if not isinstance(path, (str, os.PathLike)):
        raise RuntimeFailure(f"a state is written to a path, and not to a {type(path).__name__}.")
    if Path(path).suffix not in WRITABLE:
        raise RuntimeFailure(f"{path}: checkpoints are .safetensors or .ckpt files; end the name with one of them.")
    return Path(path)


def write_state(
    path: str | os.PathLike[str],
    parameters: Mapping[str, Any],
    values: Mapping[str, Any],
    notes: Mapping[str, str] | None = None,
) -> None:
    """Writes ``values`` (arrays) as .safetensors, or as .ckpt, where ``parameters`` (Tensors) stand for those of their
    names, with ``notes`` beside them.

    The whole file appears, or none.
    """
    path = place_of_state(path)
    noted = dict(notes or {})
    noted[CHECKSUMS] = _checksums(values, noted)
    try:
        # In the target's folder, so that the rename stays inside one file system.
        with scratch_directory(path) as folder:
            temporary = folder / f"state{path.suffix}"
            if path.suffix == ".ckpt":
                import mindspore

                listed = [{"name": n, "data": parameters.get(n, mindspore.Tensor(v))} for n, v in values.items()]
                mindspore.save_checkpoint(listed, str(temporary), append_dict=noted)
                with open(temporary, "rb") as file:
                    os.fsync(file.fileno())
            else:
                write_data(temporary, {name: from_numpy(array) for name, array in values.items()}, noted)
            os.replace(temporary, path)
        sync_directory(path.parent)
    except OSError as e:
        raise RuntimeFailure(
            f"{path}: cannot be written: {e.strerror or e}. Choose a folder that exists and is writable."
        ) from e


def _checksums(tensors: Mapping[str, Any], notes: Mapping[str, str]) -> str:
    sums = {name: f"{_crc(array):08x}" for name, array in tensors.items()}
    types = {name: [str(array.dtype), *array.shape] for name, array in tensors.items()}
    rest = {name: text for name, text in notes.items() if name != CHECKSUMS}
    whole = zlib.crc32(json.dumps([sums, types, rest], sort_keys=True).encode())
    return json.dumps({"tensors": sums, "all": f"{whole:08x}"}, sort_keys=True)


def _crc(array: Any) -> int:
    import numpy as np

    return zlib.crc32(np.ascontiguousarray(array).reshape(-1).view(np.uint8).data)


def _check(path: Path, tensors: Mapping[str, Any], notes: Mapping[str, str]) -> None:
    if CHECKSUMS not in notes:
        if any(name.startswith(RESERVED) for name in (*notes, *tensors)):
            raise DamagedState(f"{path}: is damaged: its checksums are not there.")
        return  # written by others
    written, found = notes[CHECKSUMS], _checksums(tensors, notes)
    if written == found:
        return
    try:
        sums = dict(json.loads(written)["tensors"])
    except (ValueError, TypeError, KeyError, RecursionError):
        sums = {}
    now = json.loads(found)["tensors"]
    differing = [name for name in sums if name in now and sums[name] != now[name]]
    what = f"the bytes of '{differing[0]}'" if len(differing) == 1 else "its contents"
    raise DamagedState(f"{path}: is damaged: {what} are not those that were written.")


def _read_safetensors(path: Path) -> tuple[dict[str, Any], dict[str, str]]:
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(path, framework="numpy") as file:
            return {name: file.get_tensor(name) for name in file.keys()}, dict(file.metadata() or {})  # noqa: SIM118
    except (SafetensorError, OSError, ValueError, TypeError, KeyError, AttributeError) as e:
        raise DamagedState(f"{path}: cannot be read as .safetensors: {e}.") from e


def _read_ckpt(path: Path) -> tuple[dict[str, Any], dict[str, str]]:
    from ...ir.files.checkpoint_file import read_ckpt

    try:
        return read_ckpt(path)
    except FormatError as error:
        raise DamagedState(str(error)) from None


def read_npz(path: Path) -> dict[str, Any]:
    """Name -> array, in the order of the file; pickled objects are refused."""
    from ...ir.files import npz_file

    try:
        return npz_file.read_npz(path)
    except FormatError as error:
        raise DamagedState(str(error)) from None


def tensor_to_numpy(value: Any) -> Any:
    """A Tensor's value; bfloat16 as float32."""
    import mindspore

    return (value.astype(mindspore.float32) if value.dtype == mindspore.bfloat16 else value).asnumpy()
