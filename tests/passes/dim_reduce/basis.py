"""Bases for the weights of a program."""

from __future__ import annotations

import numpy as np

import boost_compile as bc

K = 12


def trained(program: bc.Program) -> dict[str, tuple[int, ...]]:
    return {n: v.shape for n, v in program.state.items() if v.role == "weight" and v.trainable}


def orthonormal(shapes: dict[str, tuple[int, ...]], rows: int = K, seed: int = 0) -> np.ndarray:
    columns = sum(int(np.prod(shape)) for shape in shapes.values())
    return np.linalg.qr(np.random.default_rng(seed).standard_normal((columns, rows)))[0].T.astype(np.float32)
