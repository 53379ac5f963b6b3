"""The basis of dim-reduce: principal components of checkpoints, matrices from files, and what bad ones are."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from boost_compile.ir.core.errors import Error
from boost_compile.ir.files.checkpoint_file import open_checkpoint
from boost_compile.passes.dim_reduce import basis as module
from boost_compile.passes.dim_reduce.basis import read_basis
from safetensors.numpy import save_file

SHAPES = {"a": (3, 4), "b": (5,), "c": ()}
SIZE = 18


def checkpoints(folder: Path, count: int, directions: int = 99) -> np.ndarray:
    """Writes states that differ in so many directions; returns them as rows."""
    rng = np.random.default_rng(0)
    turns = rng.standard_normal((count, min(count, directions)))
    rows = (10 + turns @ rng.standard_normal((turns.shape[1], SIZE))).astype(np.float32)
    for k, row in enumerate(rows):
        a, b, c = row[:12].reshape(3, 4), row[12:17], row[17:].reshape(())
        state = {"moments.a": np.ones((3, 4), np.float32), "a": a, "b": b, "c": c}
        save_file(state, folder / f"{k}.safetensors")
    (folder / "notes.txt").write_text("no checkpoint")
    return rows


def joined(basis: dict[str, np.ndarray]) -> np.ndarray:
    return np.concatenate([basis[name] for name in SHAPES], axis=1)


@pytest.mark.parametrize("chunk", [5, 1 << 16])
def test_components_are_those_of_the_singular_value_decomposition(
    chunk: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "CHUNK", chunk)
    rows = checkpoints(tmp_path, 7).astype(np.float64)
    found = joined(read_basis(str(tmp_path), SHAPES, 4))
    expected = np.linalg.svd(rows - rows.mean(axis=0))[2][:4]
    signs = np.sign((found * expected).sum(axis=1, keepdims=True))
    np.testing.assert_allclose(found * signs, expected, atol=1e-6)


def test_the_order_of_a_folder_does_not_matter(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file system lists files as it likes: the bits are the same."""
    checkpoints(tmp_path, 7)
    listed = [tmp_path / f"{k}.safetensors" for k in (3, 0, 6, 2, 5, 1, 4)]
    found = []
    for files in (listed, listed[::-1]):
        monkeypatch.setattr(Path, "iterdir", lambda _, files=files: iter(files))
        found.append(joined(read_basis(str(tmp_path), SHAPES, 4)).tobytes())
    assert found[0] == found[1]


def test_components_are_orthonormal_where_some_hardly_count(tmp_path: Path) -> None:
    """Spreads from 1 to 1e-5: squared, they would leave no digits."""
    rng = np.random.default_rng(1)
    turns = np.linalg.qr(rng.standard_normal((9, 9)))[0]
    rows = (turns * 10.0 ** -np.linspace(0, 5, 9)) @ np.linalg.qr(rng.standard_normal((SIZE, 9)))[0].T
    for k, row in enumerate(rows):
        np_state = {"a": row[:12].reshape(3, 4), "b": row[12:17], "c": row[17:].reshape(())}
        save_file(np_state, tmp_path / f"{k}.safetensors")
    basis = joined(read_basis(str(tmp_path), SHAPES, 8)).astype(np.float64)
    np.testing.assert_allclose(basis @ basis.T, np.eye(8), atol=1e-6)


def test_both_kinds_of_file_hold_the_same(tmp_path: Path) -> None:
    matrix = np.linalg.qr(np.random.default_rng(2).standard_normal((SIZE, 3)))[0].T.astype(np.float32)
    np.save(tmp_path / "basis.npy", matrix)
    parts = {"a": matrix[:, :12].reshape(3, 3, 4), "b": matrix[:, 12:17], "c": matrix[:, 17:]}
    save_file({n: np.ascontiguousarray(v) for n, v in parts.items()}, tmp_path / "basis.safetensors")
    for rows in (2, 3):
        for name in ("basis.npy", "basis.safetensors"):
            assert np.array_equal(joined(read_basis(str(tmp_path / name), SHAPES, rows)), matrix[:rows])


@pytest.mark.mindspore
def test_a_checkpoint_is_read_as_mindspore_reads_it(tmp_path: Path) -> None:
    import mindspore as ms

    rng = np.random.default_rng(3)
    kinds = [np.float16, np.float32, np.float64, np.int32, np.uint8, np.bool_]
    values = {f"{k.__name__}": ms.Tensor((10 * rng.standard_normal((2, 3))).astype(k)) for k in kinds}
    values["scalar"] = ms.Tensor(2.5, ms.float32)
    values["brain"] = ms.Tensor(rng.standard_normal(4).astype(np.float32), ms.bfloat16)
    path = tmp_path / "state.ckpt"
    ms.save_checkpoint([{"name": n, "data": v} for n, v in values.items()], str(path), append_dict={"epoch": 3})
    found = open_checkpoint(path)
    for name, value in values.items():
        expected = (value.astype(ms.float32) if name == "brain" else value).asnumpy()
        assert np.array_equal(found[name], expected)
        assert (found[name].dtype, found[name].shape) == (expected.dtype, expected.shape)


def _directory(change: Callable[[Path], object]) -> Callable[[Path], Path]:
    def make(folder: Path) -> Path:
        checkpoints(folder, 5)
        change(folder)
        return folder

    return make


def _state(**values: np.ndarray) -> Callable[[Path], object]:
    own = {"a": np.ones((3, 4), np.float32), "b": np.ones(5, np.float32), "c": np.ones((), np.float32)}
    return _directory(lambda folder: save_file({**own, **values}, folder / "2.safetensors"))  # type: ignore[return-value]


def _file(tensors: dict[str, np.ndarray]) -> Callable[[Path], Path]:
    def make(folder: Path) -> Path:
        save_file(tensors, folder / "basis.safetensors")
        return folder / "basis.safetensors"

    return make


def _matrix(matrix: np.ndarray) -> Callable[[Path], Path]:
    def make(folder: Path) -> Path:
        np.save(folder / "basis.npy", matrix)
        return folder / "basis.npy"

    return make


def _bytes(name: str, data: bytes) -> Callable[[Path], Path]:
    def make(folder: Path) -> Path:
        (folder / name).write_bytes(data)
        return folder / name

    return make


_ROWS = np.eye(3, SIZE, dtype=np.float32)
_HOLE = np.where(np.arange(SIZE) == 13, np.nan, _ROWS)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda folder: folder / "none.npy", "no such file"),
        (lambda folder: folder, "holds 0 checkpoints"),
        (lambda folder: (checkpoints(folder, 3), folder)[1], r"at least 4 checkpoints .* holds 3.*n_components=2"),
        (lambda folder: (checkpoints(folder, 6, directions=2), folder)[1], "differ in 2 independent directions"),
        (_state(b=np.ones(6, np.float32)), r"weight 'b' is \[6\], the network's is \[5\]"),
        (_state(b=np.full(5, np.nan, np.float32)), r"2.safetensors: weight 'b' holds values that are not finite"),
        (lambda folder: (checkpoints(folder, 4, directions=0), folder)[1], "differ in 0 independent directions"),
        (_file({"a": np.eye(3, 12, dtype=np.float32)}), "it lacks weight 'b'; a basis has one tensor"),
        (_file({"a": np.ones((3, 12), np.int32)}), "'a' is int32.*rows of 12 floats"),
        (_file({"a": np.ones((3, 11), np.float32)}), "'a' is float32.*rows of 12 floats"),
        (_file({"a": np.ones(12, np.float32)}), "'a' is float32.*rows of 12 floats"),
        (_file({"a": np.ones((2, 3, 4), np.float32)}), "has 2 rows, too few for n_components=3"),
        (_directory(lambda f: save_file({"a": np.ones(1)}, f / "4.safetensors")), "weight 'a'|lacks weight 'b'"),
        (_directory(lambda f: (f / "9.ckpt").write_bytes(b"\xff" * 40)), "9.ckpt: no checkpoint that can be read"),
        (_matrix(_ROWS[:, :9]), "18 columns"),
        (_matrix(_ROWS.astype(np.int32)), "matrix of floats"),
        (_matrix(_ROWS[0]), "matrix of floats"),
        (_matrix(_ROWS[:2]), "has 2 rows, too few for n_components=3"),
        (_matrix(_HOLE), "weight 'b' hold values that are not finite"),
        (_matrix(_ROWS + 0.1), "not orthonormal"),
        (_matrix(np.array([{}], dtype=object)), "cannot be read as a .npy"),
        (_bytes("basis.npy", pickle.dumps([1.0])), "cannot be read as a .npy"),
        (_bytes("basis.npy", b"\x93NUMPY\x01\x00v\x00{'descr': '<f4'"), "cannot be read as a .npy"),
        (_bytes("basis.safetensors", b"\x08"), "no checkpoint that can be read"),
        (_bytes("basis.pkl", b""), "give a .npy or .safetensors file, or a directory"),
    ],
)
def test_a_bad_basis_is_one_clear_error(make: Callable[[Path], Path], message: str, tmp_path: Path) -> None:
    with pytest.raises(Error, match=message):
        read_basis(str(make(tmp_path)), SHAPES, 3)
