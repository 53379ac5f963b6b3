"""The basis of a subspace of all weights: read from a file, or the principal components of checkpoints."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from ...ir.core.errors import PassError
from ...ir.core.wording import counted

CHECKPOINTS = (".safetensors", ".ckpt")
CHUNK = 1 << 16
"""Columns that a principal component analysis looks at together, of all checkpoints."""
LEAST_SPREAD = 1e-6
"""A direction along which checkpoints differ less than this part of the most is rounding, not a direction."""


def read_basis(path: str, shapes: Mapping[str, tuple[int, ...]], components: int) -> dict[str, np.ndarray]:
    """The rows of the basis by weight: float32 [components, elements of the weight]. All rows together are orthonormal.

    ``path``: a ``.npy`` matrix whose columns are the elements of all weights in the order of ``shapes``; a
    ``.safetensors`` file with one tensor [rows, …] for each weight; or a directory of at least ``components`` + 1
    checkpoints, the principal components of which are taken. Never unpickles. PassError or FormatError, naming the file
    and what is wrong with it.
    """
    where = Path(path)
    sizes = {name: _size(shape) for name, shape in shapes.items()}
    if where.is_dir():
        return principal_components(where, shapes, components)
    if not where.is_file():
        raise PassError(f"basis={path}: no such file or directory")
    readers = {".npy": _read_matrix, ".safetensors": _read_tensors}
    if where.suffix not in readers:
        raise PassError(f"basis={path}: give a .npy or .safetensors file, or a directory of checkpoints")
    basis = readers[where.suffix](where, sizes, components)
    _check(where, basis)
    return basis


def principal_components(folder: Path, shapes: Mapping[str, tuple[int, ...]], components: int) -> dict[str, np.ndarray]:
    """The directions in which the checkpoints of a folder differ most: rows of V' in the singular value decomposition
    U S V' of their centered weights.

    Taken from the eigenvectors U of the checkpoints' inner products, which are summed up a chunk of columns at a time:
    memory grows with the number of checkpoints times a chunk, beside the result.
    """
    files = sorted(p for p in folder.iterdir() if p.suffix in CHECKPOINTS)
    if len(files) < components + 1:
        raise PassError(
            f"basis={folder}: {components} components need at least {components + 1} checkpoints "
            f"({' or '.join(CHECKPOINTS)}), and it holds {len(files)}: give more, or n_components={len(files) - 1}"
            if len(files) > 1
            else f"basis={folder}: it holds {len(files)} checkpoints ({' or '.join(CHECKPOINTS)})"
        )
    opened = [_open(file, shapes) for file in files]
    products = np.zeros((len(files), len(files)))
    for name in shapes:
        for rows in _centered(opened, files, name):
            products += rows @ rows.T
    spread, vectors = np.linalg.eigh(products)
    spread, vectors = spread[::-1], vectors[:, ::-1]
    found = int((spread > spread[0] * LEAST_SPREAD**2).sum()) if spread[0] > 0 else 0
    if found < components:
        raise PassError(
            f"basis={folder}: its {len(files)} checkpoints differ in {found} independent directions, too few for "
            f"n_components={components}: give more checkpoints, or fewer components"
        )
    turn = vectors[:, :components].T / np.sqrt(spread[:components])[:, None]
    turn *= np.where(turn[range(components), np.abs(turn).argmax(axis=1)] < 0, -1.0, 1.0)[:, None]
    basis = {name: np.empty((components, _size(shape)), np.float32) for name, shape in shapes.items()}
    for again in (False, True):
        # The second time takes away what rounding left of the rows' products with each other.
        overlap = np.zeros((components, components))
        for name in shapes:
            at = 0
            for rows in _centered(opened, files, name):
                part = turn @ rows
                overlap += part @ part.T
                if again:
                    basis[name][:, at : at + part.shape[1]] = part
                at += part.shape[1]
        turn = np.linalg.solve(np.linalg.cholesky(overlap), turn)
    return basis


def _centered(opened: list[dict[str, Any]], files: list[Path], name: str) -> Iterator[np.ndarray]:
    """The values of a weight in all checkpoints, without their mean, a chunk of columns at a time."""
    flat = [values[name].reshape(-1) for values in opened]
    for at in range(0, len(flat[0]), CHUNK):
        rows = np.stack([row[at : at + CHUNK].astype(np.float64) for row in flat])
        finite = np.isfinite(rows).all(axis=1)
        if not finite.all():
            raise PassError(f"{files[int(finite.argmin())]}: weight '{name}' holds values that are not finite")
        yield rows - rows.mean(axis=0)


def _open(file: Path, shapes: Mapping[str, tuple[int, ...]]) -> dict[str, Any]:
    from ...ir.files.checkpoint_file import open_checkpoint

    found = open_checkpoint(file)
    for name, shape in shapes.items():
        if name not in found:
            raise PassError(f"{file}: this checkpoint lacks weight '{name}'; all must come from this network")
        if found[name].shape != shape:
            raise PassError(f"{file}: weight '{name}' is {list(found[name].shape)}, the network's is {list(shape)}")
    return {name: found[name] for name in shapes}


def _read_matrix(file: Path, sizes: Mapping[str, int], components: int) -> dict[str, np.ndarray]:

    from ...ir.files.npz_file import check_npy

    check_npy(file)
    matrix = np.load(file, mmap_mode="r", allow_pickle=False)
    total = sum(sizes.values())
    if matrix.ndim != 2 or matrix.shape[1] != total or matrix.dtype.kind != "f":
        raise PassError(
            f"{file}: it holds {matrix.dtype}{list(matrix.shape)}, and a basis is a matrix of floats with "
            f"{counted(total, 'column')}, the elements of the "
            f"{counted(len(sizes), 'trained weight')} in the order of the program's state"
        )
    _check_rows(file, len(matrix), components)
    ends = np.cumsum(list(sizes.values()))
    return {
        name: np.ascontiguousarray(matrix[:components, end - sizes[name] : end], np.float32)
        for name, end in zip(sizes, ends, strict=True)
    }


def _read_tensors(file: Path, sizes: Mapping[str, int], components: int) -> dict[str, np.ndarray]:

    from ...ir.files.checkpoint_file import open_checkpoint

    found = open_checkpoint(file)
    basis: dict[str, np.ndarray] = {}
    for name, size in sizes.items():
        if name not in found:
            raise PassError(f"{file}: it lacks weight '{name}'; a basis has one tensor [rows, …] for each weight")
        tensor = found[name]
        if tensor.ndim < 2 or tensor.dtype.kind != "f" or tensor[0].size != size:
            raise PassError(
                f"{file}: '{name}' is {tensor.dtype}{list(tensor.shape)}, and a basis has rows of {size} floats for "
                "this weight"
            )
        _check_rows(file, len(tensor), components)
        basis[name] = np.ascontiguousarray(tensor[:components].reshape(components, size), np.float32)
    return basis


def _check_rows(file: Path, rows: int, components: int) -> None:
    if rows < components:
        raise PassError(
            f"{file}: it has {counted(rows, 'row')}, too few for n_components={components}: give n_components={rows}"
        )


def _check(file: Path, basis: Mapping[str, np.ndarray]) -> None:
    for name, rows in basis.items():
        if not np.isfinite(rows).all():
            raise PassError(f"{file}: the columns of weight '{name}' hold values that are not finite")
    products = sum(rows.astype(np.float64) @ rows.T for rows in basis.values())
    off = np.abs(products - np.eye(len(products)))
    i, j = np.unravel_index(int(off.argmax()), off.shape)
    if off[i, j] > 1e-3:
        raise PassError(
            f"{file}: its rows are not orthonormal (row {i} times row {j} is {products[i, j]:.3g}), as the components "
            "of a principal component analysis are"
        )


def _size(shape: tuple[int, ...]) -> int:
    size = 1
    for d in shape:
        size *= d
    return size
