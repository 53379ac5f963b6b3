"""The arrays that a program is to be trained on, held against what it takes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from ...ir.core.errors import RuntimeFailure
from ...ir.core.graph import Graph, Input
from ...ir.core.program import Program
from ...ir.core.types import DType, TensorType
from ...ir.core.wording import counted
from ...runtime.data.data_check import Column
from ...runtime.data.inputs import cast
from ...runtime.data.sources import NamedArrays, columns_by_input, micro_batch_size, open_source
from ..verification.ranges import upper_bound
from .finding import Finding

IGNORED = -100
"""The label that losses of MindSpore leave out by default."""


def data_findings(program: Program, data: NamedArrays) -> Iterator[Finding]:
    """Among them is whatever boost-run refuses. RuntimeFailure where there are more or fewer arrays than inputs."""
    graph = next(g for g in program.graphs.values() if g.inputs)
    columns = columns_by_input(graph, data)
    found = [
        *(finding for value, column in zip(graph.inputs, columns, strict=True)
          for finding in _of_input(graph, value, column.array)),
        *_of_lengths(graph, columns),
    ]  # fmt: skip
    yield from found or _refused(graph, data)


def _of_lengths(graph: Graph, columns: Sequence[Column]) -> Iterator[Finding]:
    """Micro-batches take as many rows of each array."""
    rows = {v.name: len(c.array) for v, c in zip(graph.inputs, columns, strict=True) if c.array.ndim}
    if len(set(rows.values())) > 1:
        counts = ", ".join(f"'{name}' {n:,}" for name, n in rows.items())
        yield Finding("data", f"the arrays differ in their number of samples: {counts}", "Give as many rows of each")


def _refused(graph: Graph, data: NamedArrays) -> Iterator[Finding]:
    """What a training says of the data, where nothing else was found."""
    try:
        open_source(data, graph, micro_batch_size(graph) or 1, shuffle=False, seed=0)
    except RuntimeFailure as error:
        yield Finding("data", error.message, error.command or "boost-run refuses it")


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
    yield from _of_type(name, type_.dtype, array)
    if array.dtype.kind in "iu" and not type_.dtype.is_float and array.size:
        yield from _range(graph, value, array)


def _of_type(name: str, dtype: DType, array: np.ndarray) -> Iterator[Finding]:
    """The types that a training takes are its own matter."""
    wanted = np.dtype("float32" if dtype is DType.BFLOAT16 else dtype.value)
    try:
        # Integers are looked at by their values.
        cast(name, array if array.dtype.kind in "iu" else array[:0], wanted, given_dtype=True)
    except RuntimeFailure:
        yield Finding("data", f"{name}: {array.dtype}, the graph takes {wanted}", _remedy(array.dtype, wanted))


def _remedy(given: np.dtype, wanted: np.dtype) -> str:
    if given.kind not in "biufc":
        return "Save numbers"
    if given.kind in "iu" and wanted.kind in "iu":
        return "Some of its values do not fit in that: export the network for larger ones, or correct them"
    if given.kind in "fc" and wanted.kind in "iu":
        return "Save whole numbers as integers"
    space = ", in half the space" if given == np.float64 and wanted == np.float32 else ""
    return f"Save it as such{space}: array.astype(numpy.{wanted})"


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
