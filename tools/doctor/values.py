"""State that is not finite, and what is computed in float64."""

from __future__ import annotations

from collections.abc import Iterator

from ...ir.core.data import ZeroData, numbers
from ...ir.core.program import Program
from ...ir.core.types import DType, TensorType
from ...ir.core.wording import agreed, counted
from .finding import Finding, named

TRAINED = ("weight", "slot", "statistic")
"""The roles that must be finite; other state may hold infinities on purpose (a mask)."""


def non_finite_state(program: Program) -> Iterator[Finding]:
    """Reads all trained state."""
    import numpy as np

    found = []
    for name, variable in program.state.items():
        if variable.role not in TRAINED or not variable.dtype.is_float or isinstance(variable.data, ZeroData):
            continue
        if not np.isfinite(numbers(variable.type, variable.data)).all():
            found.append(name)
    if found:
        yield Finding(
            "state",
            f"{counted(len(found), 'state')} {agreed(len(found), 'holds', 'hold')} infinities or NaN: {named(found)}",
            "Every loss will be NaN: export from weights that are finite, or begin with others: boost-run --load FILE",
        )


def double_precision(program: Program) -> Iterator[Finding]:
    """Inputs, state and nodes of float64, which nobody asks for in a network, but numpy gives by default."""
    inputs = {v.name for g in program.graphs.values() for v in g.inputs if _is_double(v.type)}
    state = [n for n, v in program.state.items() if v.dtype is DType.FLOAT64]
    nodes = [n for g in program.graphs.values() for f in g.all_graphs() for n in f if _is_double(n.type)]
    parts = []
    if inputs:
        parts.append(f"{counted(len(inputs), 'input')} ({named(sorted(inputs))})")
    if state:
        parts.append(f"{counted(len(state), 'state')} ({named(state)})")
    if nodes:
        parts.append(f"{counted(len(nodes), 'node')} (first %{nodes[0].name}, {nodes[0].op.name})")
    if parts:
        yield Finding(
            "float64",
            f"{', '.join(parts)} of float64: twice the memory and time of float32, and some kernels lack it",
            "Export with float32 inputs and weights: Tensor(array.astype(numpy.float32))",
        )


def _is_double(type_: object) -> bool:
    return isinstance(type_, TensorType) and type_.dtype is DType.FLOAT64
