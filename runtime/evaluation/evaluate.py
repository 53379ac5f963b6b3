"""How well a session's network does on data it is not trained on, by MindSpore's metrics."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from ...ir.core.errors import PassError, RuntimeFailure, nearest
from ...ir.core.graph import Graph, tensor_type
from ...ir.core.program import Program
from ...ir.core.types import TensorType
from ...ir.rewrite.evaluation import Evaluation, evaluation, loss_node
from ...ir.rewrite.evaluation.outputs import results_of
from ..data.data_check import Column, check_columns
from ..data.sources import NamedArrays, column_of, columns_by_input, micro_batch_size, named_arrays
from ..state.finite_state import FiniteState
from .fitting import flattened, misfit
from .metrics import BY_CLASS, BY_NUMBER, LOSS, METRICS

_SAMPLES = 64
"""Samples that are run at once where the graph takes any number."""


class Predicting(Protocol):
    """The part of a session that evaluation needs."""

    program: Program
    finite_state: FiniteState

    def run_network(self, inputs: Sequence[Any], result: str | None = None) -> tuple[Any, ...]: ...


@dataclass(frozen=True, slots=True)
class Judged:
    """The data of an evaluation: ``columns`` by name of input, and which of them is the label (None: none)."""

    columns: dict[str, Column]
    label: str | None

    @property
    def samples(self) -> int:
        return len(next(iter(self.columns.values())).array)


def judged(program: Program, found: Evaluation, data: NamedArrays, label: str | None = None) -> Judged:
    """``data`` as the inputs of the program's network, and its label: the input that the loss takes and the network
    does not, the last one where that does not say. RuntimeFailure where arrays do not fit."""
    graph = _fed_graph(program)
    inputs = [value.name for value in graph.inputs]
    extra = [name for name in data.arrays if name not in inputs]
    if found.is_whole and len(data.arrays) == len(inputs) + 1 and (label is None or label in data.arrays):
        # The network alone: the label is the array that it does not take.
        chosen = label or (extra[0] if len(extra) == 1 else list(data.arrays)[-1])
        own = {name: array for name, array in data.arrays.items() if name != chosen}
        columns = columns_by_input(graph, NamedArrays(own, data.where))
        check_columns(graph, columns)
        by_name = dict(zip(inputs, columns, strict=True))
        by_name[chosen] = column_of(data.arrays[chosen], f"{data.where}: array '{chosen}'")
    else:
        columns = columns_by_input(graph, data)
        check_columns(graph, columns)
        by_name = dict(zip(inputs, columns, strict=True))
        chosen = label or _label_of(graph, found) or ""
    if label is not None and label not in by_name:
        raise RuntimeFailure(f"no input is called '{label}'{nearest(label, list(by_name))}")
    lengths = {len(column.array) for column in by_name.values()}
    if len(lengths) > 1:
        raise RuntimeFailure(f"{data.where}: its arrays differ in their number of samples")
    if lengths == {0}:
        raise RuntimeFailure(f"{data.where} holds no samples")
    return Judged(by_name, chosen if chosen in by_name else None)


def _fed_graph(program: Program) -> Graph:
    return next(program.graphs[e.graph] for e in program.schedule.cycle if program.graphs[e.graph].inputs)


def _label_of(graph: Graph, found: Evaluation) -> str | None:
    if found.is_whole or found.label is not None:
        return found.label
    left = [value for value in graph.inputs if value.name in found.left_out]
    whole = [v for v in left if isinstance(v.type, TensorType) and not v.type.dtype.is_float]
    return (whole or left or graph.inputs)[-1].name


def evaluate(
    session: Predicting,
    data: Any,
    metrics: str | Iterable[str] = (),
    *,
    batch_size: int | None = None,
    label: str | None = None,
) -> dict[str, float]:
    """Measures the network on all samples of ``data`` (as for ``fit``), with the session's present weights. Returns the
    value of each metric by name.

    ``metrics`` are names from :data:`.metrics.METRICS`, or one; without any it is the loss. BatchNorm uses its
    statistics, dropout does nothing, and no state changes. ``label`` names the input that predictions are compared
    with; by default it is the one that only the loss takes. RuntimeFailure for data or metrics that do not fit.
    """
    wanted = _metrics_by_name(metrics)
    found = network_of(session.program)
    given = data if isinstance(data, Judged) else judged(session.program, found, named_arrays(data), label)
    check_metrics(session.program, found, given, wanted)
    session.finite_state.warn_of_nan()
    size = micro_batch_size(_fed_graph(session.program)) or batch_size or _SAMPLES
    judges = {name: _Loss(session) if name == LOSS else _Metric(session, found, name, given) for name in wanted}
    for first in range(0, given.samples, size):
        rows = {name: column.array[first : first + size] for name, column in given.columns.items()}
        for judge in judges.values():
            judge.update(rows)
    return {name: judge.value() for name, judge in judges.items()}


def _metrics_by_name(metrics: Any) -> list[str]:
    """Each of ``metrics`` once; the loss where none is given. RuntimeFailure for what is no name of a metric."""
    named = [metrics] if isinstance(metrics, str) or not isinstance(metrics, Iterable) else list(metrics)
    for name in named:
        if not isinstance(name, str):
            raise RuntimeFailure(
                f"metrics are given by name, such as 'accuracy', and not as this {type(name).__name__}.",
                python="Metrics of your own run in mindspore.train.Model(session.network(), loss, metrics=…).eval(…).",
            )
        if name not in METRICS:
            raise RuntimeFailure(f"no metric '{name}'{nearest(name, list(METRICS))}")
    return list(dict.fromkeys(named)) or [LOSS]


class _Loss:
    """The mean of the training's own loss, each micro-batch by its samples."""

    def __init__(self, session: Predicting):
        self._session, self._node = session, loss_node(session.program)
        self._inputs = evaluation(session.program, self._node).inputs
        self._sum, self._samples = 0.0, 0

    def update(self, rows: dict[str, Any]) -> None:
        (value,) = self._session.run_network([rows[name] for name in self._inputs], self._node)
        samples = len(next(iter(rows.values())))
        self._sum += float(np.mean(value)) * samples
        self._samples += samples

    def value(self) -> float:
        return self._sum / self._samples


class _Metric:
    """One of MindSpore's. Predictions that are a row a token are compared with labels that are one too."""

    def __init__(self, session: Predicting, found: Evaluation, name: str, given: Judged):
        from mindspore.train import get_metric_fn

        assert given.label is not None
        self._session, self._name, self._label = session, name, given.label
        self._inputs = found.inputs
        self._metric = get_metric_fn(name)

    def update(self, rows: dict[str, Any]) -> None:
        predicted = self._session.run_network([rows[name] for name in self._inputs])[0]
        label = rows[self._label]
        if flattened(predicted.shape, label.shape):
            label = label.reshape(-1)
        try:
            self._metric.update(predicted, label)
        except (ValueError, TypeError, RuntimeError, IndexError) as error:
            reason = str(error).strip().partition("\n")[0]
            raise _unfit(self._name, predicted.shape, self._label, label.shape, reason) from error

    def value(self) -> float:
        found = self._metric.eval(average=True) if self._name in BY_CLASS else self._metric.eval()
        return float(np.mean(found))


def check_metrics(program: Program, found: Evaluation, given: Judged, metrics: Sequence[str]) -> None:
    """Checks them before MindSpore starts."""
    if LOSS in metrics and loss_node(program) is None:
        raise RuntimeFailure("the program has no loss of its own, so give metrics other than 'loss'")
    for name in metrics:
        if name != LOSS and given.label is None:
            raise RuntimeFailure(f"metric '{name}' needs labels: the data holds none beside the network's inputs")
        if name != LOSS and given.label is not None:
            _check_shapes(name, found, given.label, given.columns[given.label])


def _check_shapes(metric: str, found: Evaluation, label: str, column: Column) -> None:
    predicted = tensor_type(next(iter(results_of(found.graph).values()))).shape
    samples = tensor_type(found.graph.inputs[0]).shape[:1] if found.graph.inputs else ()
    shape = (*samples, *column.array.shape[1:])
    reason = misfit(metric, predicted, shape)
    if not reason and metric not in BY_NUMBER and shape == predicted and not _one_hot(column.array[: shape[0]]):
        reason = "it compares classes, and these are other numbers than one 1 among zeros"
    if reason:
        raise _unfit(metric, predicted, label, shape, reason)


def _one_hot(rows: Any) -> bool:
    return bool(np.isin(rows, (0, 1)).all() and (rows.sum(axis=1) == 1).all())


def _unfit(metric: str, predicted: Sequence[int], label: str, shape: Sequence[int], reason: str) -> RuntimeFailure:
    return RuntimeFailure(
        f"metric '{metric}' cannot judge predictions of shape {_printed(predicted)} by the label '{label}' of shape "
        f"{_printed(shape)}: {reason}"
    )


def _printed(shape: Sequence[int]) -> str:
    return f"[{', '.join('?' if size == -1 else str(size) for size in shape)}]"


def network_of(program: Program) -> Evaluation:
    """The network of a program; RuntimeFailure where it has none that can be evaluated."""
    try:
        return evaluation(program)
    except PassError as error:
        raise error.behind("cannot evaluate: ", RuntimeFailure) from error
