"""The arrays that a program is to be trained on, held against what it takes."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from ...ir.core.graph import Graph, Input
from ...ir.core.program import Program
from ...ir.core.types import DType, TensorType
from ...ir.core.wording import counted
from ...runtime.data.sources import NamedArrays, columns_by_input
from ..verification.ranges import upper_bound
from .finding import Finding

IGNORED = -100
"""The label that losses of MindSpore leave out by default."""


def data_findings(program: Program, data: NamedArrays) -> Iterator[Finding]:
    """RuntimeFailure where there are more or fewer arrays than inputs."""
    graph = next(g for g in program.graphs.values() if g.inputs)
    for value, column in zip(graph.inputs, columns_by_input(graph, data), strict=True):
        yield from _of_input(graph, value, column.array)


def _of_input(graph: Graph, value: Input, array: np.ndarray) -> Iterator[Finding]:
    name = f"input '{value.name}'"
    type_ = value.type
    if not isinstance(type_, TensorType):
        return
    if array.ndim != len(type_.shape) or any(
        d >= 0 and d != have for d, have in zip(type_.shape[1:], array.shape[1:], strict=False)
    ):
        yield Finding(
            "data", f"{name} is {type_}, the array {list(array.shape)}", "Give one row a sample, of this shape"
        )
        return
    if type_.shape and type_.shape[0] > len(array):
        had, needed = counted(len(array), "sample"), type_.shape[0]
        yield Finding("data", f"{name}: {had} do not fill a micro-batch of {needed}", "Give more samples")
    if array.dtype.kind == "f" and not np.isfinite(array).all():
        rows = np.flatnonzero(~np.isfinite(array.reshape(len(array), -1)).all(axis=1))
        yield Finding(
            "data",
            f"{name}: {counted(len(rows), 'sample')} of {len(array)} with infinities or NaN, the first is number "
            f"{rows[0]} (from 0)",
            "Repair or drop them: one makes all weights NaN",
        )
    if array.dtype == np.float64 and type_.dtype is not DType.FLOAT64:
        yield Finding(
            "data",
            f"{name}: float64, the graph takes {type_.dtype.value}",
            f"Save it as such, in half the space: array.astype(numpy.{type_.dtype.value})",
        )
    if array.dtype.kind == "f" and not type_.dtype.is_float:
        yield Finding(
            "data", f"{name}: {array.dtype}, the graph takes {type_.dtype.value}", "Save whole numbers as integers"
        )
    if array.dtype.kind in "iu" and not type_.dtype.is_float and array.size:
        yield from _range(graph, value, array)


def _range(graph: Graph, value: Input, array: np.ndarray) -> Iterator[Finding]:
    bound = upper_bound(graph, value)
    if bound is None:
        return
    wrong = (array >= bound) | ((array < 0) & (array != IGNORED))
    if wrong.any():
        first = np.argwhere(wrong)[0]
        yield Finding(
            "labels",
            f"input '{value.name}': {counted(int(wrong.sum()), 'value')} outside of 0 to {bound - 1}, the first is "
            f"{array[tuple(first)]} in sample {first[0] if first.size else 0} (from 0)",
            "Count classes and rows from 0, or export the network with as many as there are: what lies outside is "
            "read from other memory, or gives NaN",
        )
