"""LSTM, GRU and simple recurrent cells, unrolled: one set of primitives a time step."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from ....core.errors import FormatError
from ....core.graph import Value
from ..vocabulary import Unsupported, dtype_of, shape_of
from .call import Call, Rule
from .emitter import Emitter

Step = Callable[["_Direction", Value, list[Value]], list[Value]]
_GATES = {"LSTM": 4, "GRU": 3, "RNN": 1}
_DEFAULTS = {"LSTM": ["Sigmoid", "Tanh", "Tanh"], "GRU": ["Sigmoid", "Tanh"], "RNN": ["Tanh"]}


@dataclass
class _Direction:
    """One direction of a cell: ``weight`` and ``recurrent`` are [gates * hidden, …], biases have one axis."""

    e: Emitter
    hidden: int
    weight: Value
    recurrent: Value
    input_bias: Value | None
    hidden_bias: Value | None
    peepholes: list[Value]
    activations: list[Callable[[Value], Value]]
    clip: float | None
    linear_before_reset: bool

    def activate(self, i: int, x: Value) -> Value:
        if self.clip is not None:
            e = self.e
            x = e.binary("Minimum", e.binary("Maximum", x, e.scalar(x, -self.clip)), e.scalar(x, self.clip))
        return self.activations[i](x)

    def gates(self, x: Value, weight: Value, bias: Value | None) -> Value:
        product = self.e.matmul(x, weight, transpose_b=True)
        return product if bias is None else self.e.emit("BiasAdd", [product, bias, 0], shape_of(product))

    def chunk(self, x: Value, i: int) -> Value:
        return self.e.part(x, 1, i * self.hidden, (i + 1) * self.hidden)


def _lstm_step(d: _Direction, x: Value, state: list[Value]) -> list[Value]:
    """Gates in the order input, output, forget, cell."""
    e, (h, c) = d.e, state
    gates = e.add(x, d.gates(h, d.recurrent, d.hidden_bias))
    i, o, f, g = (d.chunk(gates, k) for k in range(4))
    if d.peepholes:
        i, f = e.add(i, e.mul(d.peepholes[0], c)), e.add(f, e.mul(d.peepholes[2], c))
    kept, written = e.mul(d.activate(0, f), c), e.mul(d.activate(0, i), d.activate(1, g))
    c = e.add(kept, written)
    if d.peepholes:
        o = e.add(o, e.mul(d.peepholes[1], c))
    return [e.mul(d.activate(0, o), d.activations[2](c)), c]


def _gru_step(d: _Direction, x: Value, state: list[Value]) -> list[Value]:
    """Gates in the order update, reset, hidden."""
    e, h = d.e, state[0]
    size = d.hidden
    if d.linear_before_reset:
        r = d.gates(h, d.recurrent, d.hidden_bias)
        own = d.chunk(r, 2)
    else:
        both = e.part(d.recurrent, 0, 0, 2 * size)
        bias = None if d.hidden_bias is None else e.part(d.hidden_bias, 0, 0, 2 * size)
        r = d.gates(h, both, bias)
    update = d.activate(0, e.add(d.chunk(x, 0), d.chunk(r, 0)))
    reset = d.activate(0, e.add(d.chunk(x, 1), d.chunk(r, 1)))
    if d.linear_before_reset:
        inner = e.mul(reset, own)
    else:
        bias = None if d.hidden_bias is None else e.part(d.hidden_bias, 0, 2 * size, 3 * size)
        inner = d.gates(e.mul(reset, h), e.part(d.recurrent, 0, 2 * size, 3 * size), bias)
    candidate = d.activate(1, e.add(d.chunk(x, 2), inner))
    return [e.add(e.mul(e.sub(e.scalar(update, 1.0), update), candidate), e.mul(update, h))]


_STEPS: dict[str, Step] = {
    "LSTM": _lstm_step,
    "GRU": _gru_step,
    "RNN": lambda d, x, state: [d.activate(0, d.e.add(x, d.gates(state[0], d.recurrent, d.hidden_bias)))],
}


def _recurrent(c: Call) -> list[Value]:
    e, kind = c.emitter, c.op_type
    x = c.value(0)
    if c.attribute("layout", 0):
        x = e.transpose(x, (1, 0, 2))
    steps, batch, _ = shape_of(x)
    direction = c.attribute("direction", "forward")
    directions = 2 if direction == "bidirectional" else 1
    hidden = c.attribute("hidden_size") or c.shape(2)[-1]
    if c.shape(1)[:2] != (directions, _GATES[kind] * hidden):
        raise FormatError(f"{kind}: weights of shape {list(c.shape(1))} for {directions} x {_GATES[kind]} x {hidden}")
    if c.attribute("input_forget", 0):
        raise Unsupported("input_forget")
    if c.has(4) and any(n != steps for n in c.ints(4)):
        raise Unsupported("sequences of different lengths")
    lasts: list[list[Value]] = []
    outputs: list[list[Value]] = []
    for k in range(directions):
        d = _direction(c, k, hidden, directions)
        state = [_initial(c, 5, k, batch, hidden, x)]
        if kind == "LSTM":
            state.append(_initial(c, 6, k, batch, hidden, x))
        is_reverse = direction == "reverse" or k == 1
        whole = d.gates(e.reshape(x, (steps * batch, shape_of(x)[2])), d.weight, d.input_bias)
        whole = e.reshape(whole, (steps, batch, shape_of(whole)[1]))
        seen: list[Value] = []
        for t in range(steps)[:: -1 if is_reverse else 1]:
            now = e.reshape(e.part(whole, 0, t, t + 1), (batch, shape_of(whole)[2]))
            state = _STEPS[kind](d, now, state)
            seen.append(state[0])
        outputs.append(seen[::-1] if is_reverse else seen)
        lasts.append(state)
    return _results(c, outputs, lasts, (steps, directions, batch, hidden))


def _direction(c: Call, k: int, hidden: int, directions: int) -> _Direction:
    e, kind = c.emitter, c.op_type
    gates = _GATES[kind] * hidden

    def own(i: int) -> Value:
        x = c.parameter(i)
        return e.reshape(e.part(x, 0, k, k + 1), shape_of(x)[1:])

    first = second = None
    if c.has(3):
        biases = own(3)
        first, second = e.part(biases, 0, 0, gates), e.part(biases, 0, gates, 2 * gates)
    peepholes = []
    if c.has(7):
        all_ = own(7)
        peepholes = [e.part(all_, 0, i * hidden, (i + 1) * hidden) for i in range(3)]
    names = list(c.attribute("activations") or _DEFAULTS[kind] * directions)
    each = len(_DEFAULTS[kind])
    mine = names[k * each : (k + 1) * each]
    alphas, betas = c.attribute("activation_alpha"), c.attribute("activation_beta")
    if alphas or betas:
        raise Unsupported("activations with parameters")
    return _Direction(
        e, hidden, own(1), own(2), first, second, peepholes, [_activation(e, n) for n in mine],
        c.attribute("clip"), bool(c.attribute("linear_before_reset", 0)),
    )  # fmt: skip


def _activation(e: Emitter, name: str) -> Callable[[Value], Value]:
    if name not in ("Sigmoid", "Tanh", "Relu"):
        raise Unsupported(f"the activation '{name}'")
    primitive = "ReLU" if name == "Relu" else name
    return lambda x: e.unary(primitive, x)


def _initial(c: Call, i: int, k: int, batch: int, hidden: int, like: Value) -> Value:
    e = c.emitter
    if not c.has(i):
        return e.constant(np.zeros((batch, hidden), dtype_of(like).value))
    by_batch = bool(c.attribute("layout", 0))
    if c.is_constant(i):  # an exporter writes the zeros that a cell starts from as an initializer: that is no weight
        array = c.array(i)
        return e.constant(np.ascontiguousarray(array[:, k] if by_batch else array[k]))
    x = e.transpose(c.value(i), (1, 0, 2)) if by_batch else c.value(i)
    return e.reshape(e.part(x, 0, k, k + 1), (batch, hidden))


def _results(
    c: Call, outputs: list[list[Value]], lasts: list[list[Value]], shape: tuple[int, int, int, int]
) -> list[Value]:
    e = c.emitter
    steps, directions, batch, hidden = shape
    by_batch = bool(c.attribute("layout", 0))
    results: list[Value] = []
    rows = [e.concat([d[t] for d in outputs], 1) for t in range(steps)] if c.wants(0) else []
    if rows:
        joined = e.concat([e.reshape(row, (1, batch, directions * hidden)) for row in rows], 0)
        y = e.reshape(joined, (steps, batch, directions, hidden))
        results.append(e.transpose(y, (1, 0, 2, 3) if by_batch else (0, 2, 1, 3)))
    else:
        results.append(outputs[0][0])
    for i in range(len(lasts[0])):
        last = e.concat([e.reshape(state[i], (1, batch, hidden)) for state in lasts], 0)
        results.append(e.transpose(last, (1, 0, 2)) if by_batch else last)
    return results


RULES: dict[str, Rule] = {"LSTM": _recurrent, "GRU": _recurrent, "RNN": _recurrent}
