"""Faults of a program that are faults whatever is done with it; each takes a walk through graphs, or through state."""

from __future__ import annotations

from collections.abc import Iterator

from ...ir.analysis.effects.tokens import orders_only
from ...ir.analysis.training.trains import what_is_missing
from ...ir.core.data import ZeroData, numbers
from ...ir.core.predicates import rests
from ...ir.core.primitives import facts
from ...ir.core.program import Program
from ...ir.core.types import DType, TensorType
from ...ir.core.wording import agreed, counted
from .finding import Finding, named

TRAINED = ("weight", "slot", "statistic")
"""The roles that must be finite; other state may hold infinities on purpose (a mask)."""


def forgotten_training_mode(program: Program) -> Iterator[Finding]:
    """Of a program that trains, whose BatchNorms all rest: it was exported without ``.set_train()``. Where some do,
    their layers were frozen on purpose."""
    for name, graph in program.graphs.items():
        found = [n for n in graph.all_nodes() if facts(n.op).training is not None]
        if not found or not all(map(rests, found)) or what_is_missing(program) is not None:
            continue
        every = "its BatchNorm is" if len(found) == 1 else f"all its {counted(len(found), 'BatchNorm')} are"
        first = found[0].scope or found[0].name
        lost, remedy = _of_inference_mode(program)
        yield Finding(
            "training mode", f"graph '{name}' trains, but {every} in inference mode ({first}): {lost}", remedy
        )


def _of_inference_mode(program: Program) -> tuple[str, str]:
    """What is lost, and what to do: a program that was made from a forward graph has no training cell."""
    if any(report.name == "differentiate" for report in program.reports):
        return (
            "statistics are never learnt",
            "Fine-tuning may want that; else make it again with boost-compile --training-mode (in Python: "
            "bc.differentiate with training_mode)",
        )
    return (
        "statistics are never learnt, and a dropout is left out",
        "Export the training cell after .set_train(), as in nn.TrainOneStepCell(network, optimizer).set_train()",
    )


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


def unused_inputs(program: Program) -> Iterator[Finding]:
    """Of all graphs that take a micro-batch: a split step needs the labels in the graph that accumulates alone."""
    taking = [g for g in program.graphs.values() if g.inputs]
    used = {v.name for g in taking for v in g.inputs if any(not orders_only(user, i) for user, i in v.use_sites())}
    unused = list(dict.fromkeys(v.name for g in taking for v in g.inputs if v.name not in used))
    if unused:
        yield Finding(
            "inputs",
            f"{counted(len(unused), 'input')} {agreed(len(unused), 'has', 'have')} no effect: {named(unused)}",
            "Give it all the same, it must be there; or leave it out of construct and export again",
        )


def double_precision(program: Program) -> Iterator[Finding]:
    """Inputs, state and nodes of float64, which nobody asks for in a network, but numpy gives by default."""
    inputs = {v.name for g in program.graphs.values() for v in g.inputs if _is_double(v.type)}
    state = [n for n, v in program.state.items() if v.dtype is DType.FLOAT64]
    nodes = [n for n in program.all_nodes() if _is_double(n.type)]
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
