"""Programs made by hand, small enough to compute with numpy: what the schedule does shows in the state."""

from __future__ import annotations

import numpy as np
from boost_compile.ir.core.attributes import TensorValue
from boost_compile.ir.core.data import from_numpy
from boost_compile.ir.core.graph import Constant, Graph, Value
from boost_compile.ir.core.program import Entry, Program, Schedule
from boost_compile.ir.core.types import tensor
from boost_compile.ir.rewrite.effects.editing import Effects

ROWS = 2


def constant(graph: Graph, array: np.ndarray) -> Constant:
    return graph.constant(TensorValue(*from_numpy(array)))


def _begin(name: str) -> tuple[Graph, Effects]:
    graph = Graph(name)
    graph.result = graph.constant(None)
    return graph, Effects(graph)


def _difference(graph: Graph, fx: Effects) -> Value:
    """x - mean, the "gradient" of half the squared distance."""
    x = graph.add_input("x", tensor("float32", ROWS))
    return graph.create("Sub", [x, fx.load(graph.state("mean", tensor("float32", ROWS)))])


def accumulate() -> Graph:
    """sum += x - mean; count += 1. Loss: half the squared distance of x from the mean."""
    graph, fx = _begin("accumulate")
    difference = _difference(graph, fx)
    fx.append("AssignAdd", [graph.state("sum", tensor("float32", ROWS)), difference])
    fx.append("AssignAdd", [graph.state("count", tensor("float32")), constant(graph, np.float32(1))])
    graph.outputs = ("loss",)
    fx.commit(graph.create("L2Loss", [difference], tensor("float32")))
    return graph


def _update(graph: Graph, fx: Effects, total: Value, count: Value) -> None:
    mean = graph.state("mean", tensor("float32", ROWS))
    fx.append("AssignAdd", [mean, graph.create("RealDiv", [total, count])])
    fx.append("AssignAdd", [graph.state("updates", tensor("int32")), constant(graph, np.int32(1))])
    fx.append("Assign", [graph.state("sum", tensor("float32", ROWS)), constant(graph, np.zeros(ROWS, np.float32))])
    fx.append("Assign", [graph.state("count", tensor("float32")), constant(graph, np.float32(0))])


def apply() -> Graph:
    """mean += sum / count, so that the mean is that of the cycle; clears sum and count, counts updates."""
    graph, fx = _begin("apply")
    total = fx.load(graph.state("sum", tensor("float32", ROWS)))
    count = fx.load(graph.state("count", tensor("float32")))
    _update(graph, fx, total, count)
    fx.commit(constant(graph, np.array(True)))
    return graph


def apply_with_scale() -> Graph:
    """As `apply`, and doubles ``scale``; returns whether the old scale passed 4 as the overflow, and the new scale."""
    graph, fx = _begin("apply")
    total = fx.load(graph.state("sum", tensor("float32", ROWS)))
    count = fx.load(graph.state("count", tensor("float32")))
    scale = graph.state("scale", tensor("float32"))
    old = fx.load(scale)
    overflow = graph.create("Greater", [old, constant(graph, np.float32(4))], tensor("bool"))
    _update(graph, fx, total, count)
    fx.append("AssignAdd", [scale, old])
    graph.outputs = ("overflow", "loss_scale")
    fx.commit(graph.create("MakeTuple", [overflow, fx.load(scale, initial=False)]))
    return graph


def step() -> Graph:
    """Takes the last micro-batch and updates: mean += (sum + x - mean) / (count + 1)."""
    graph, fx = _begin("step")
    difference = _difference(graph, fx)
    total = graph.create("Add", [fx.load(graph.state("sum", tensor("float32", ROWS))), difference])
    count = graph.create("Add", [fx.load(graph.state("count", tensor("float32"))), constant(graph, np.float32(1))])
    _update(graph, fx, total, count)
    graph.outputs = ("loss",)
    fx.commit(graph.create("L2Loss", [difference], tensor("float32")))
    return graph


def running_mean(steps: int, split: str = "apply", scale: bool = False) -> Program:
    """Follows the data by cycles of ``steps`` micro-batches: after each, ``mean`` is the mean of its micro-batches."""
    update = apply_with_scale() if scale else apply()
    graphs = [accumulate(), update] + ([step()] if split == "fused" else [])
    last = Entry("step") if split == "fused" else Entry("apply")
    first = Entry("accumulate", steps - 1 if split == "fused" else steps)
    program = Program(
        graphs={g.name: g for g in graphs},
        state={},
        schedule=Schedule((first, last), flush="apply", count="count"),
        name="running_mean",
    )
    program.add_state("mean", tensor("float32", ROWS), "weight")
    program.add_state("sum", tensor("float32", ROWS), "accumulator")
    program.add_state("count", tensor("float32"), "counter")
    program.add_state("updates", tensor("int32"), "counter")
    if scale:
        program.add_state("scale", tensor("float32"), "hyperparameter", from_numpy(np.array(1, np.float32))[1])
    return program


def samples(count: int, seed: int = 0) -> np.ndarray:
    """``count`` micro-batches."""
    return np.random.default_rng(seed).integers(-8, 8, (count, ROWS)).astype(np.float32)
