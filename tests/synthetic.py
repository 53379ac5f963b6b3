"""Training graphs of any size, marked as `mindspore.export` marks them, built through the project's own IR.

What an exported training cell has, these have: scopes, `unique_id` and `forward_unique_id` marks, one Load a weight, a
chain of in-place ApplyMomentum updates on tokens, one wide tuple of all Loads in front of it, a loss. Weights are tiny:
what is measured is the graph.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from types import MappingProxyType

from boost_compile.ir.core.attributes import MonadValue, scalar_tensor
from boost_compile.ir.core.data import BytesData, Data, ZeroData
from boost_compile.ir.core.graph import Graph, Node, State, Value
from boost_compile.ir.core.program import Entry, Program, Schedule
from boost_compile.ir.core.types import TensorType, tensor
from boost_compile.ir.formats.mindir.writer import write_mindir

MARKS = MappingProxyType({"checkpoint": True})
NODES_A_LAYER = 15.5
"""How many nodes :func:`layers` makes of one layer, duplicates and dead nodes included."""
NETWORK = "Default/network-WithLossCell/_backbone-Network"


class _Builder:
    """A graph under construction: makes marked nodes and remembers what was loaded and what is to be updated."""

    def __init__(self, data: bytes = b"") -> None:
        self.graph = Graph("step")
        self.state: dict[str, Data] = {}
        self.data = data
        """What weights and slots start from, as far as it reaches; zeros if empty."""
        self.loads: list[Value] = []
        self.types: dict[str, TensorType] = {}
        self.gradients: list[tuple[str, Value]] = []
        self.token = self.graph.constant(MonadValue("umonad"), "u")
        self.no, self.yes = self.graph.constant(False), self.graph.constant(True)
        self._serial = 0

    def node(self, op: str, operands: list[Value], type_: TensorType | None, scope: str) -> Node:
        self._serial += 1
        node = self.graph.create(op, operands, type_, scope=f"{scope}/{op}-op0", name=f"CNode_{self._serial}")
        node.marks = MARKS
        return node

    def forward(self, op: str, operands: list[Value], type_: TensorType | None, scope: str) -> Node:
        node = self.node(op, operands, type_, f"{NETWORK}/{scope}")
        node.primal = {"unique_id": str(100_000 + self._serial)}
        return node

    def backward(self, of: Node, op: str, operands: list[Value], type_: TensorType | None, scope: str) -> Node:
        node = self.node(op, operands, type_, f"Gradients/{NETWORK}/{scope}")
        unique = of.primal["unique_id"]
        node.primal = {"forward_node_name": f"{of.op.name}_{unique}", "forward_unique_id": unique}
        return node

    def declare(self, name: str, type_: TensorType, data: bytes = b"") -> State:
        self.state[name] = BytesData(data[: type_.nbytes]) if data else ZeroData(type_.nbytes)
        return self.graph.state(name, type_)

    def load(self, name: str, type_: TensorType, scope: str) -> Node:
        """A weight, as forward reads it."""
        node = self.forward("Load", [self.declare(name, type_, self.data), self.token], type_, scope)
        self.loads.append(node)
        self.types[name] = type_
        return node

    def update_all(self) -> Node:
        """The optimizer: one ApplyMomentum a gradient, each ordered after the one before. Returns the last token."""
        scope = "Default/optimizer-Momentum"
        rate = self.declare("learning_rate", tensor("float32"), b"\x0a\xd7\x23\x3c")
        momentum = self.declare("momentum", tensor("float32"), b"\x66\x66\x66\x3f")
        loads = self.node("MakeTuple", self.loads, None, "Default")
        token = self.node("UpdateState", [self.token, loads], None, "Default")
        for name, gradient in self.gradients:
            weight, type_ = self.graph.states[name], self.types[name]
            slot = self.declare(f"moments.{name}", type_, self.data)
            operands = [weight, slot, rate, gradient, momentum, token]
            update = self.node("ApplyMomentum", operands, TensorType(type_.dtype, type_.shape, name), scope)
            token = self.node("UpdateState", [token, update], None, scope)
        return token

    def program(self, loss: Value, name: str) -> Program:
        self.graph.result = self.node("Depend", [loss, self.update_all()], None, "Default")
        self.graph.outputs = ("loss",)
        program = Program({"step": self.graph}, {}, Schedule((Entry("step"),)), name=name)
        for state in self.graph.states.values():
            assert isinstance(state.type, TensorType)
            program.add_state(state.name, state.type, "unknown", self.state[state.name])
        return program


def layers(nodes: int, width: int = 8, data: bytes = b"") -> Program:
    """About ``nodes`` nodes: a residual network of Dense layers of ``width``, several nodes deep each. Every fourth
    layer repeats a backward node (what CSE finds) and holds a node that nothing uses (what DCE finds). ``data``: what
    weights and slots start from, zeros if empty."""
    b = _Builder(data)
    hidden, vector = tensor("float32", width, width), tensor("float32", width)
    x: Value = b.graph.add_input("x", hidden)
    label = b.graph.add_input("label", hidden)
    axis = b.graph.constant(0)
    made: list[tuple[Value, Node, Node, Node, Node]] = []
    for i in range(max(1, round(nodes / NODES_A_LAYER))):
        scope = f"layer{i}-Dense"
        weight = b.load(f"layer{i}.weight", hidden, scope)
        product = b.forward("MatMul", [x, weight, b.no, b.yes], hidden, scope)
        bias = b.load(f"layer{i}.bias", vector, scope)
        biased = b.forward("BiasAdd", [product, bias, axis], hidden, scope)
        relu = b.forward("ReLU", [biased], hidden, scope)
        made.append((x, weight, product, biased, relu))
        x = b.forward("Add", [x, relu], hidden, scope)
        if i % 4 == 0:
            b.forward("Sigmoid", [relu], hidden, scope)
    error = b.forward("Sub", [x, label], hidden, "loss")
    square = b.forward("Square", [error], hidden, "loss")
    loss = b.forward("ReduceMean", [square, b.graph.constant(()), b.no], tensor("float32"), "loss")
    scale = b.graph.constant(scalar_tensor("float32", 2 / 64))
    dx = b.backward(square, "Mul", [error, scale], hidden, "loss")
    for i in reversed(range(len(made))):
        before, weight, product, biased, relu = made[i]
        scope = f"layer{i}-Dense"
        d_relu = b.backward(relu, "ReluGrad", [dx, relu], hidden, scope)
        again = b.backward(relu, "ReluGrad", [dx, relu], hidden, scope) if i % 4 == 0 else d_relu
        d_bias = b.backward(biased, "BiasAddGrad", [again, axis], vector, scope)
        d_weight = b.backward(product, "MatMul", [d_relu, before, b.yes, b.no], hidden, scope)
        d_before = b.backward(product, "MatMul", [d_relu, weight, b.no, b.no], hidden, scope)
        dx = b.backward(product, "Add", [dx, d_before], hidden, scope)
        b.gradients += [(f"layer{i}.weight", d_weight), (f"layer{i}.bias", d_bias)]
    return b.program(loss, f"layers_{nodes}")


def wide(operands: int) -> Program:
    """One weight used ``operands`` times, as in an unrolled recurrent network: its gradient is the AddN of a tuple of
    that many operands, its Load has that many users, the graph three times as many nodes."""
    b = _Builder()
    vector = tensor("float32", 8)
    x: Value = b.graph.add_input("x", vector)
    weight = b.load("cell.weight", vector, "cell-Cell")
    steps: list[tuple[Value, Node]] = []
    for _ in range(operands):
        step = b.forward("Mul", [x, weight], vector, "cell-Cell")
        steps.append((x, step))
        x = step
    loss = b.forward("ReduceMean", [x, b.graph.constant(()), b.no], tensor("float32"), "loss")
    dx: Value = b.backward(loss, "OnesLike", [x], vector, "loss")
    parts: list[Value] = []
    for before, step in reversed(steps):
        parts.append(b.backward(step, "Mul", [dx, before], vector, "cell-Cell"))
        dx = b.backward(step, "Mul", [dx, weight], vector, "cell-Cell")
    total = b.backward(loss, "MakeTuple", parts, None, "cell-Cell")
    b.gradients.append(("cell.weight", b.backward(loss, "AddN", [total], vector, "cell-Cell")))
    return b.program(loss, f"wide_{operands}")


def clipped(weights: int) -> Program:
    """``weights`` weights whose gradients are all scaled by their common norm before the update: a tuple with one
    operand a gradient on the update side, and a factor with as many users; seven nodes a weight."""
    b = _Builder()
    vector = tensor("float32", 4)
    x: Value = b.graph.add_input("x", vector)
    products: list[Node] = []
    for i in range(weights):
        weight = b.load(f"w{i}", vector, f"w{i}-Scale")
        products.append(b.forward("Mul", [x, weight], vector, f"w{i}-Scale"))
    joined = b.forward("MakeTuple", [*products], None, "loss")
    total = b.forward("AddN", [joined], vector, "loss")
    loss = b.forward("ReduceMean", [total, b.graph.constant(()), b.no], tensor("float32"), "loss")
    seed = b.backward(loss, "OnesLike", [total], vector, "loss")
    gradients = [b.backward(p, "Mul", [seed, p], vector, f"w{i}-Scale") for i, p in enumerate(products)]
    norms: list[Value] = [b.node("L2Loss", [g], None, "Default/optimizer-Momentum") for g in gradients]
    norm = b.node("AddN", [b.node("MakeTuple", norms, None, "Default")], None, "Default/optimizer-Momentum")
    factor = b.node("Rsqrt", [norm], None, "Default/optimizer-Momentum")
    for i, g in enumerate(gradients):
        b.gradients.append((f"w{i}", b.node("Mul", [g, factor], None, "Default/optimizer-Momentum")))
    return b.program(loss, f"clipped_{weights}")


SHAPES: dict[str, Callable[[int], Program]] = {"layers": layers, "wide": wide, "clipped": clipped}


def write(program: Program, path: str | os.PathLike[str]) -> int:
    """Writes a program's only graph as MindIR; returns its number of nodes."""
    (graph,) = program.graphs.values()
    write_mindir(Path(path), graph, program.state, program.metadata)
    return len(graph)
