"""Exported training graphs as text, for tests that do without MindSpore; make.py wrote them."""

from __future__ import annotations

import zlib
from functools import cache
from pathlib import Path

import numpy as np
from boost_compile.ir.core.program import Program
from boost_compile.ir.formats.storage.load import load
from boost_compile.ir.rewrite.roles import assign_roles

from tests.execution import Arrays, initial

HERE = Path(__file__).parent
SIZES = {"float32": np.float32, "float16": np.float16, "int32": np.int32}


def material(name: str) -> Program:
    """The program, with its roles; a copy of its own."""
    return _read(name).copy()


@cache
def _read(name: str) -> Program:
    return assign_roles(load(str(HERE / f"{name}.ir")))


def values(program: Program) -> Arrays:
    """Values of its state that the same name always gets: small weights; slots, statistics and numbers as exported, or
    small and positive where the export's are left out."""
    found = {}
    for name, variable in program.state.items():
        rng = np.random.default_rng(zlib.crc32(name.encode()))
        drawn = rng.standard_normal(variable.shape) * 0.3
        if variable.role == "weight":
            found[name] = drawn.astype(variable.type.dtype)
        elif variable.role == "slot":
            found[name] = np.abs(drawn * 0.1).astype(variable.type.dtype)
        else:
            found[name] = initial(program, name, {})
    return found


def batches(program: Program, count: int, seed: int = 1) -> list[list[np.ndarray]]:
    """Inputs of `count` micro-batches: data, and class numbers below four."""
    rng = np.random.default_rng(seed)
    inputs = next(graph.inputs for graph in program.graphs.values() if graph.inputs)
    return [
        [
            rng.integers(0, 4, i.type.shape).astype(np.int32)
            if i.type.dtype == "int32"
            else rng.standard_normal(i.type.shape).astype(i.type.dtype)
            for i in inputs
        ]
        for _ in range(count)
    ]
