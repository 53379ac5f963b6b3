"""AdaSum written out for each rank of a job, run in lockstep by a few lines of numpy, against the formula."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from typing import Any

import numpy as np
import pytest
from boost_compile.ir.core.attributes import TensorValue
from boost_compile.ir.core.data import to_numpy
from boost_compile.ir.core.errors import RuntimeFailure
from boost_compile.ir.core.graph import Constant, Graph, Node, Value
from boost_compile.ir.core.types import DType, TensorType
from boost_compile.ir.rewrite.ranks.adasum import Job, adasum, expand_adasum, neighbours
from boost_compile.ir.rewrite.ranks.collectives import WORLD, all_reduce, group_of, is_collective, traffic

from tests.adasum_reference import combine

SHAPES = ((), (3,), (2, 5), (4, 1, 7), (1,))


def step_graph(shapes: Sequence[tuple[int, ...]], devices: int, dtype: DType = DType.FLOAT32) -> Graph:
    graph = Graph("step")
    olds = [graph.add_input(f"old{i}", TensorType(dtype, s)) for i, s in enumerate(shapes)]
    news = [graph.add_input(f"new{i}", TensorType(dtype, s)) for i, s in enumerate(shapes)]
    nodes = [adasum(graph, old, new, devices) for old, new in zip(olds, news, strict=True)]
    graph.result = graph.create("MakeTuple", nodes)
    return graph


COMPUTE: dict[str, Any] = {
    "Add": np.add,
    "Sub": np.subtract,
    "Mul": np.multiply,
    "RealDiv": np.divide,
    "Maximum": np.maximum,
    "ZerosLike": np.zeros_like,
    "MakeTuple": lambda *xs: xs,
    "Concat": lambda xs, axis: np.concatenate(xs, axis),
    "Slice": lambda x, start, size: x[start[0] : start[0] + size[0]],
    "Reshape": np.reshape,
    "BroadcastTo": np.broadcast_to,
    "ReduceSum": lambda x, axes, keep, skip: np.asarray(x.sum(keepdims=keep)),
}


def run(graph: Graph, inputs: Sequence[np.ndarray]) -> Generator[tuple[Node, Any], Any, Any]:
    """The result of a graph; at each collective it hands out what the rank gives and takes what it gets."""
    values: dict[Value, Any] = dict(zip(graph.inputs, inputs, strict=True))

    def of(value: Value) -> Any:
        if not isinstance(value, Constant):
            return values[value]
        constant = value.value
        return to_numpy(constant.type, constant.data) if isinstance(constant, TensorValue) else constant

    for node in graph:
        operands = [of(v) for v in node.operands]
        if is_collective(node):
            values[node] = yield node, operands[0]
        elif node.op.name == "Cast":
            values[node] = operands[0].astype(node.type.dtype.value)
        else:
            values[node] = COMPUTE[node.op.name](*operands)
    return values[graph.result]


def run_job(ranks: int, devices: int, olds: list[np.ndarray], news: list[list[np.ndarray]]) -> list[list[np.ndarray]]:
    """The new weights on each rank."""
    dtype = DType(str(olds[0].dtype))
    jobs = [Job(rank, ranks, "cpu") for rank in range(ranks)]
    running = []
    for job in jobs:
        graph = step_graph([o.shape for o in olds], devices, dtype)
        expand_adasum(graph, job)
        running.append(run(graph, [*olds, *news[job.rank]]))
    results: list[Any] = [None] * ranks
    given = [next(r) for r in running]
    while True:
        got = [_communicate(rank, given, jobs) for rank in range(ranks)]
        for rank, (running_rank, value) in enumerate(zip(running, got, strict=True)):
            try:
                given[rank] = running_rank.send(value)
            except StopIteration as end:
                results[rank] = end.value
        if any(r is not None for r in results):
            assert all(r is not None for r in results), "a rank waits for others that have ended"
            return results


def _communicate(rank: int, given: Sequence[tuple[Node, Any]], jobs: Sequence[Job]) -> Any:
    node, _ = given[rank]
    group = group_of(node)
    members = range(len(jobs)) if group == WORLD["cpu"] else jobs[rank].groups[group]
    assert rank in members
    for other in members:
        assert group_of(given[other][0]) == group, "two ranks of a group run different collectives"
        assert given[other][0].op.name == node.op.name
    parts = [given[other][1] for other in members]
    if node.op.name == "AllGather":
        assert group == WORLD["cpu"], "CPU gathers over all ranks only"
        return np.concatenate(parts)
    return np.sum(parts, axis=0, dtype=parts[0].dtype)


def steps_of(groups: int, seed: int = 0) -> tuple[list[np.ndarray], list[list[np.ndarray]]]:
    rng = np.random.default_rng(seed)
    olds = [rng.standard_normal(s).astype(np.float32) for s in SHAPES]
    shared = [rng.standard_normal(s) for s in SHAPES]  # steps are alike in part, as they are in training
    news = [
        [
            (o - 0.1 * (s + 0.7 * rng.standard_normal(o.shape))).astype(np.float32)
            for o, s in zip(olds, shared, strict=True)
        ]
        for _ in range(groups)
    ]
    return olds, news


@pytest.mark.parametrize(
    ("groups", "devices"), [(2, 1), (4, 1), (8, 1), (16, 1), (2, 2), (2, 4), (4, 2), (4, 4), (2, 3), (4, 3), (1, 2)]
)
def test_every_rank_gets_the_combination(groups: int, devices: int) -> None:
    olds, of_group = steps_of(groups)
    results = run_job_or_alone(groups, devices, olds, of_group)
    for i, old in enumerate(olds):
        expected = old - combine([old.astype(np.float64) - of_group[g][i] for g in range(groups)])
        for result in results:
            assert np.abs(result[i] - expected).max() < 1e-6
            assert result[i].tobytes() == results[0][i].tobytes()


def run_job_or_alone(
    groups: int, devices: int, olds: list[np.ndarray], of_group: list[list[np.ndarray]]
) -> list[list[np.ndarray]]:
    if groups > 1:
        return run_job(groups * devices, devices, olds, [of_group[r // devices] for r in range(groups * devices)])
    graph = step_graph([o.shape for o in olds], devices)
    expand_adasum(graph, Job(0, devices, "cpu"))
    with pytest.raises(StopIteration) as end:
        next(run(graph, [*olds, *of_group[0]]))
    return [end.value.value]


def one_step(steps: list[np.ndarray]) -> list[np.ndarray]:
    """What all ranks make of these steps of one weight, from zero."""
    old = np.zeros_like(steps[0])
    return [-r[0] for r in run_job(len(steps), 1, [old], [[-s] for s in steps])]


def test_the_same_step_everywhere_is_one_step() -> None:
    step = np.arange(1, 8, dtype=np.float32)
    for result in one_step([step] * 4):
        assert np.abs(result - step).max() < 1e-6


def test_orthogonal_steps_are_added() -> None:
    for result in one_step([np.eye(4, dtype=np.float32)[k] * (k + 1) for k in range(4)]):
        assert result.tolist() == [1, 2, 3, 4]


@pytest.mark.parametrize("tiny", [0.0, 1e-30, 1e-22])
def test_a_step_of_nothing_leaves_the_others(tiny: float) -> None:
    """Also one whose square is nothing in float32."""
    step = np.array([1, -2, 3], np.float32)
    nothing = np.full(3, tiny, np.float32)
    for steps in ([nothing, step], [step, nothing], [nothing, nothing, step, nothing]):
        for result in one_step(steps):
            assert np.abs(result - step).max() < 1e-5
    assert all(not result.any() for result in one_step([nothing * 0, nothing * 0]))


def test_opposite_steps_cancel() -> None:
    step = np.array([1, -2, 3], np.float32)
    assert all(not result.any() for result in one_step([step, -step]))


def test_half_precision_is_combined_in_float32() -> None:
    old = np.zeros(6, np.float16)
    steps = [np.array([300, 1, 2, 3, 4, 5], np.float16), np.array([-299, 2, 1, 5, 4, 3], np.float16)]
    for result in run_job(2, 1, [old], [[-s] for s in steps]):
        assert result[0].dtype == np.float16
        expected = -combine(steps)  # whose dot products float16 does not hold
        assert np.abs(result[0] - expected).max() <= 0.0005 * np.abs(expected).max() + 1e-3


@pytest.mark.parametrize(("ranks", "devices"), [(3, 1), (6, 1), (6, 2), (5, 2), (2, 4), (12, 4)])
def test_no_power_of_two(ranks: int, devices: int) -> None:
    with pytest.raises(RuntimeFailure, match=rf"groups of {devices} ranks?\b.*power of two"):
        expand_adasum(step_graph(SHAPES, devices), Job(0, ranks, "cpu"))


def test_bytes() -> None:
    """What a rank gives: at each level as much as it still has (half of it, and zeros), then its part."""
    n = 1024 * 64
    for ranks, devices, numbers in (
        (2, 1, n // 2 + 3 + n // 2),
        (4, 1, n + 3 + n // 2 + 3 + n // 4),
        (4, 2, n // 2 + 3 + n // 4),
        (16, 4, n // 4 + 3 + n // 8 + 3 + n // 16),
    ):
        graph = step_graph([(n,)], devices)
        expand_adasum(graph, Job(ranks - 1, ranks, "cpu"))
        assert traffic(graph).nbytes == 4 * numbers


def test_neighbours_become_a_group() -> None:
    def group(rank: int, ranks: int, devices: int) -> Any:
        graph = Graph("step")
        x = graph.add_input("x", TensorType(DType.FLOAT32, (2,)))
        graph.result = all_reduce(graph, x, neighbours(devices))
        job = Job(rank, ranks, "cpu")
        assert expand_adasum(graph, job)
        if graph.result is x:
            return "alone"
        assert isinstance(graph.result, Node)
        name = group_of(graph.result)
        return "world" if name == WORLD["cpu"] else job.groups[name]

    assert group(5, 8, 4) == (4, 5, 6, 7)
    assert group(3, 4, 4) == "world"
    assert group(3, 4, 1) == "alone"
    assert group(0, 1, 8) == "alone"  # a process by itself


def test_a_process_by_itself_keeps_its_weights() -> None:
    graph = step_graph(SHAPES, devices=8)
    assert expand_adasum(graph, Job(0, 1, "cpu"))
    assert len(graph) == 1
    assert isinstance(graph.result, Node)
    assert list(graph.result.operands) == graph.inputs[len(SHAPES) :]
