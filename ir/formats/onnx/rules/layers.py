"""Normalizations, and recurrent cells, unrolled: one set of primitives a time step."""

from __future__ import annotations

import math
from functools import partial
from itertools import accumulate

import numpy as np

from ....core.errors import FormatError
from ....core.graph import Node, Value
from ....core.types import TensorType
from ..call import Call, Weight
from ..emitter import plain_type
from ..operators import Entry, Unsupported, dtype_of, shape_of
from ..writing import Names, Writing, plain

# -- normalizations ----------------------------------------------------------------------------------------------------


def _read_batch_norm(c: Call) -> Value:
    e, x, shape = c.e, c.value(0), c.shape()
    if c.attribute("training_mode"):
        raise Unsupported("training_mode: export the network for inference")
    for i in (3, 4):
        item = c.item(i)
        if isinstance(item, Weight):
            item.is_statistic = True
    if len(shape) < 2:
        raise FormatError(f"BatchNormalization of {list(shape)}")
    # MindSpore's kernel takes matrices and pictures.
    x = x if len(shape) in (2, 4) else e.reshape(x, (*shape[:2], 1, math.prod(shape[2:])))
    channels = TensorType(c.type(1).dtype, (shape[1],))
    operands = [x, *(c.value(i, True) for i in range(1, 5)), False, c.attribute("epsilon"),
                1 - c.attribute("momentum"), 0]  # fmt: skip
    return e.reshape(e.several("BatchNorm", operands, [plain_type(x), *[channels] * 4], take=1)[0], shape)


def _write_batch_norm(w: Writing, node: Node) -> Names:
    """By the statistics, in training too: what an inference computes."""
    if plain(node, 8, 0) != 0:
        raise Unsupported("another layout than channels first")
    y = w.add("BatchNormalization", w.inputs(node, 5), epsilon=float(plain(node, 6, 1e-5)))
    return (y, None, None, None, None)


def _read_layer_norm(c: Call) -> list[Value]:
    e, x, shape, axis, epsilon = c.e, c.value(0), c.shape(), c.axis(), c.attribute("epsilon")
    inner = shape[axis:]
    gamma = e.expand(c.value(1, True), inner)
    beta = e.expand(c.value(2, True), inner) if c.has(2) else e.constant(np.zeros(inner, dtype_of(x).value))
    small = TensorType(dtype_of(x), (*shape[:axis], *(1 for _ in inner)))
    begin = axis - len(shape) if axis == len(shape) - 1 else axis
    operands, more = [x, gamma, beta, begin, begin, epsilon], c.wants(1) or c.wants(2)
    y, *rest = e.several("LayerNorm", operands, [plain_type(x), small, small], take=None if more else 1)
    return [y, rest[0], e.apply("Rsqrt", e.add(rest[1], epsilon))] if more else [y]


def _write_layer_norm(w: Writing, node: Node) -> Names:
    begin, parameters, epsilon = (plain(node, i) for i in (3, 4, 5))
    if begin % len(shape_of(node.operand(0))) != parameters % len(shape_of(node.operand(0))):
        raise Unsupported("a weight over other axes than those of the mean")
    y = w.add("LayerNormalization", w.inputs(node, 3), axis=int(begin), epsilon=float(epsilon))
    return (y, None, None)


def _read_instance_norm(c: Call) -> Value:
    x, channels = c.value(0), c.shape()[1]
    small = TensorType(dtype_of(x), (c.shape()[0], channels))
    operands = [x, channels, c.value(1, True), c.value(2, True), c.attribute("epsilon")]
    return c.e.several("GroupNorm", operands, [plain_type(x), small, small], take=1)[0]


def _write_group_norm(w: Writing, node: Node) -> Names:
    """Each group as an instance, then weight and bias for each channel."""
    x, groups, shape = node.operand(0), plain(node, 1), shape_of(node.operand(0))
    ones, zeros = (w.constant(np.full(groups, value, dtype_of(x).value)) for value in (1, 0))
    flat = w.add("Reshape", [w.name(x), w.ints([0, groups, -1])])
    normal = w.add("InstanceNormalization", [flat, ones, zeros], epsilon=float(plain(node, 4)))
    y = w.add("Reshape", [normal, w.ints([-1, *shape[1:]])])
    own = w.ints([shape[1], *[1] * (len(shape) - 2)])
    for i, op in ((2, "Mul"), (3, "Add")):
        y = w.add(op, [y, w.add("Reshape", [w.name(node.operand(i)), own])])
    return (y, None, None)


def _read_lrn(c: Call) -> Value:
    """x / (bias + alpha / size · sum of squares of the neighbouring channels)^beta."""
    e, x, size, channels = c.e, c.value(0), c.attribute("size"), c.shape()[1]
    none, before = [0] * (c.rank() - 2), (size - 1) // 2
    square = e.pad(e.apply("Square", x), [0, before, *none], [0, size - 1 - before, *none])
    total = e.part(square, 1, 0, channels)
    for i in range(1, size):
        total = e.add(total, e.part(square, 1, i, i + channels))
    inner = e.add(e.mul(total, c.attribute("alpha") / size), c.attribute("bias"))
    return e.apply("Div", x, e.apply("Pow", inner, c.attribute("beta")))


# -- recurrent cells ---------------------------------------------------------------------------------------------------


class _Direction:
    """One direction of a cell: ``weight`` and ``recurrent`` are [gates * hidden, …], biases have one axis."""

    def __init__(self, c: Call, k: int, width: int, activations: list[str]):
        self.e, self.hidden = c.e, c.shape(2)[-1]

        def own(i: int, *cuts: int) -> list[Value]:
            """Input ``i`` for this direction, cut along its first axis into parts of these lengths."""
            x = c.e.reshape(c.e.part(c.value(i, True), 0, k, k + 1), c.shape(i)[1:])
            return [c.e.part(x, 0, end - cut, end) for end, cut in zip(accumulate(cuts), cuts, strict=True)]

        self.biases: list[Value] | list[None] = own(3, width, width) if c.has(3) else [None, None]
        self.peepholes = own(7, *[self.hidden] * 3) if c.has(7) else []
        (self.weight,), (self.recurrent,) = own(1, width), own(2, width)
        self.reset_after = bool(c.attribute("linear_before_reset"))
        unknown = [name for name in activations if name not in ("Sigmoid", "Tanh", "Relu")]
        if unknown:
            raise Unsupported(f"the activation '{unknown[0]}'")
        self.activations = [partial(c.e.apply, "ReLU" if name == "Relu" else name) for name in activations]

    def gates(self, x: Value, weight: Value, bias: Value | None) -> Value:
        return self.e.bias(self.e.matmul(x, weight, transpose_b=True), bias)

    def chunk(self, x: Value, i: int) -> Value:
        return self.e.part(x, 1, i * self.hidden, (i + 1) * self.hidden)

    def rnn(self, x: Value, state: list[Value]) -> list[Value]:
        return [self.activations[0](self.e.add(x, self.gates(state[0], self.recurrent, self.biases[1])))]

    def lstm(self, x: Value, state: list[Value]) -> list[Value]:
        """Gates in the order input, output, forget, cell."""
        e, (h, c), (gate, cell, out) = self.e, state, self.activations
        gates = e.add(x, self.gates(h, self.recurrent, self.biases[1]))
        i, o, f, g = (self.chunk(gates, k) for k in range(4))
        if self.peepholes:
            i, f = e.add(i, e.mul(self.peepholes[0], c)), e.add(f, e.mul(self.peepholes[2], c))
        c = e.add(e.mul(gate(f), c), e.mul(gate(i), cell(g)))
        o = e.add(o, e.mul(self.peepholes[1], c)) if self.peepholes else o
        return [e.mul(gate(o), out(c)), c]

    def gru(self, x: Value, state: list[Value]) -> list[Value]:
        """Gates in the order update, reset, hidden."""
        e, h, (gate, out), size = self.e, state[0], self.activations, 2 * self.hidden
        weights, bias, last = self.recurrent, self.biases[1], None
        if not self.reset_after:
            last = None if bias is None else e.part(bias, 0, size, size + self.hidden)
            weights, bias = e.part(weights, 0, 0, size), None if bias is None else e.part(bias, 0, 0, size)
        r = self.gates(h, weights, bias)
        update, reset = (gate(e.add(self.chunk(x, i), self.chunk(r, i))) for i in (0, 1))
        if self.reset_after:
            inner = e.mul(reset, self.chunk(r, 2))
        else:
            inner = self.gates(e.mul(reset, h), e.part(self.recurrent, 0, size, size + self.hidden), last)
        candidate = out(e.add(self.chunk(x, 2), inner))
        return [e.add(e.mul(e.apply("Sub", e.scalar(update, 1.0), update), candidate), e.mul(update, h))]


_CELLS = {
    "LSTM": (_Direction.lstm, 4, ["Sigmoid", "Tanh", "Tanh"]),
    "GRU": (_Direction.gru, 3, ["Sigmoid", "Tanh"]),
    "RNN": (_Direction.rnn, 1, ["Tanh"]),
}
"""The step of a cell, how many gates it has, and its activations."""


def _read_recurrent(c: Call) -> list[Value | None]:
    e, kind, direction, by_batch = c.e, c.node.op_type, c.attribute("direction"), bool(c.attribute("layout"))
    step, gates, usual = _CELLS[kind]
    x = e.transpose(c.value(0), (1, 0, 2)) if by_batch else c.value(0)
    (steps, batch, width), hidden = shape_of(x), c.shape(2)[-1]
    directions = 2 if direction == "bidirectional" else 1
    if c.shape(1)[:2] != (directions, gates * hidden):
        raise FormatError(f"{kind}: weights of shape {list(c.shape(1))} for {directions} x {gates} x {hidden}")
    for name in ("input_forget", "activation_alpha", "activation_beta", "clip"):
        if c.attribute(name):
            raise Unsupported(name)
    if any(n != steps for n in c.ints(4)):
        raise Unsupported("sequences of different lengths")
    names = c.attribute("activations") or usual * directions
    rows: list[list[Value]] = [[] for _ in range(steps)]
    lasts: list[list[Value]] = []
    for k in range(directions):
        d = _Direction(c, k, gates * hidden, names[k * len(usual) : (k + 1) * len(usual)])
        state = [_initial(c, i, k, (batch, hidden), by_batch) for i in ((5, 6) if kind == "LSTM" else (5,))]
        whole = d.gates(e.reshape(x, (steps * batch, width)), d.weight, d.biases[0])
        whole = e.reshape(whole, (steps, batch, gates * hidden))
        for t in range(steps)[:: -1 if direction == "reverse" or k == 1 else 1]:
            state = step(d, e.reshape(e.part(whole, 0, t, t + 1), (batch, gates * hidden)), state)
            rows[t].append(state[0])
        lasts.append(state)
    results: list[Value | None] = [None]
    if c.wants(0):
        joined = [e.reshape(e.concat(row, 1), (1, batch, directions * hidden)) for row in rows]
        y = e.reshape(e.concat(joined, 0), (steps, batch, directions, hidden))
        results = [e.transpose(y, (1, 0, 2, 3) if by_batch else (0, 2, 1, 3))]
    for states in zip(*lasts, strict=True):
        last = e.concat([e.reshape(state, (1, batch, hidden)) for state in states], 0)
        results.append(e.transpose(last, (1, 0, 2)) if by_batch else last)
    return results


def _initial(c: Call, i: int, k: int, shape: tuple[int, int], by_batch: bool) -> Value:
    e = c.e
    if not c.has(i):
        return e.constant(np.zeros(shape, c.type(0).dtype.value))
    if c.is_constant(i):  # an exporter writes the zeros that a cell starts from as an initializer: that is not a weight
        return e.constant(np.ascontiguousarray(c.array(i)[:, k] if by_batch else c.array(i)[k]))
    x = e.transpose(c.value(i), (1, 0, 2)) if by_batch else c.value(i)
    return e.reshape(e.part(x, 0, k, k + 1), shape)


TABLE = (
    Entry("BatchNormalization", "BatchNorm", _read_batch_norm, _write_batch_norm),
    Entry("LayerNormalization", "LayerNorm", _read_layer_norm, _write_layer_norm),
    Entry("InstanceNormalization", "GroupNorm", _read_instance_norm, _write_group_norm),
    Entry("LRN", read=_read_lrn),
    *(Entry(kind, read=_read_recurrent) for kind in _CELLS),
)
