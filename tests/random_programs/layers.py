"""The layers that random networks are made of: those of MindSpore, and a few that stand for what users write."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import mindspore as ms
import numpy as np
from mindspore import nn, ops


class Function(nn.Cell):
    """A function of its inputs, without weights."""

    def __init__(self, function: Callable[..., Any], *arguments: Any) -> None:
        super().__init__()
        self.function = function
        self.arguments = arguments

    def construct(self, *inputs):
        return self.function(*inputs, *self.arguments)


class Affine(nn.Cell):
    """A weight and a bias for each feature, as Parameters of the cell itself."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.factor = ms.Parameter(ms.Tensor(np.random.uniform(0.5, 1.5, width).astype(np.float32)), name="factor")
        self.offset = ms.Parameter(ms.Tensor(np.random.randn(width).astype(np.float32) * 0.1), name="offset")

    def construct(self, x):
        return x * self.factor + self.offset


class Places(nn.Cell):
    """A vector for each place of a sequence."""

    def __init__(self, length: int, width: int) -> None:
        super().__init__()
        self.places = ms.Parameter(ms.Tensor(np.random.randn(length, width).astype(np.float32) * 0.1), name="places")

    def construct(self, x):
        return x + self.places


class Attention(nn.Cell):
    def __init__(self, length: int, width: int, heads: int, causal: bool) -> None:
        super().__init__()
        self.query = nn.Dense(width, width)
        self.key = nn.Dense(width, width, has_bias=False)
        self.value = nn.Dense(width, width)
        self.output = nn.Dense(width, width)
        self.scale = (width // heads) ** -0.5
        self.shape = (-1, length, heads, width // heads)
        self.joined = (-1, length, width)
        mask = np.triu(np.full((length, length), -1e4 if causal else 0, np.float32), k=1)
        self.mask = ms.Tensor(mask)

    def split(self, x):
        return x.reshape(self.shape).transpose(0, 2, 1, 3)

    def construct(self, x):
        query, key, value = self.split(self.query(x)), self.split(self.key(x)), self.split(self.value(x))
        scores = ops.matmul(query, key.transpose(0, 1, 3, 2)) * self.scale
        scores = scores + self.mask.astype(scores.dtype)
        mixed = ops.matmul(ops.softmax(scores, -1), value)
        return self.output(mixed.transpose(0, 2, 1, 3).reshape(self.joined))


class Recurrent(nn.Cell):
    """nn.LSTM, nn.GRU or nn.RNN; the outputs of all steps."""

    def __init__(self, kind: str, width: int, hidden: int) -> None:
        super().__init__()
        self.cell = {"lstm": nn.LSTM, "gru": nn.GRU, "rnn": nn.RNN}[kind](width, hidden, batch_first=True)

    def construct(self, x):
        output, _ = self.cell(x)
        return output


class Unrolled(nn.Cell):
    """nn.GRUCell, nn.RNNCell or nn.LSTMCell, called once for each step: its weights have several uses."""

    def __init__(self, kind: str, length: int, width: int, hidden: int) -> None:
        super().__init__()
        self.cell = {"lstm": nn.LSTMCell, "gru": nn.GRUCell, "rnn": nn.RNNCell}[kind](width, hidden)
        self.pair = kind == "lstm"
        self.length = length
        self.hidden = hidden

    def construct(self, x):
        state = ops.zeros((x.shape[0], self.hidden), x.dtype)
        memory = ops.zeros((x.shape[0], self.hidden), x.dtype)
        for time in range(self.length):
            if self.pair:
                state, memory = self.cell(x[:, time], (state, memory))
            else:
                state = self.cell(x[:, time], state)
        return state


class Branch(nn.Cell):
    """One of two layers, by the sign of a sum: a Switch."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.left = nn.Dense(width, width)
        self.right = nn.Dense(width, width)

    def construct(self, x):
        if x.sum() > 0:
            x = ops.relu(self.left(x))
        else:
            x = ops.tanh(self.right(x))
        return x


class Loop(nn.Cell):
    """One layer again and again, counted by a tensor."""

    def __init__(self, width: int, times: int) -> None:
        super().__init__()
        self.again = nn.Dense(width, width)
        self.times = times
        self.one = ms.Tensor(1, ms.int32)

    def construct(self, x):
        count = ms.Tensor(0, ms.int32)
        while count < self.times:
            x = ops.tanh(self.again(x))
            count = count + self.one
        return x


class Mean(nn.Cell):
    """An average of what passed through, kept by the forward part."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.mean = ms.Parameter(ms.Tensor(np.zeros(width, np.float32)), name="mean", requires_grad=False)

    def construct(self, x):
        mean = ops.stop_gradient(x.mean(0).astype(ms.float32))
        return ops.depend(x, ops.assign(self.mean, 0.9 * self.mean + 0.1 * mean))


def shuffle(x: Any, groups: int) -> Any:
    """Channels of groups interleaved."""
    rows, channels, height, width = x.shape
    x = x.reshape(rows, groups, channels // groups, height, width)
    return x.transpose(0, 2, 1, 3, 4).reshape(rows, channels, height, width)


def halves(x: Any) -> Any:
    """One half of the features gates the other."""
    left, right = ops.split(x, x.shape[-1] // 2, axis=-1)
    return left * ops.sigmoid(right)


def swapped(x: Any) -> Any:
    return ops.concat((x[..., 1:], x[..., :1]), axis=-1)


def add(a: Any, b: Any) -> Any:
    return a + b


def multiply(a: Any, b: Any) -> Any:
    return a * ops.tanh(b)


def subtract(a: Any, b: Any) -> Any:
    return a - 0.5 * b


def join(a: Any, b: Any) -> Any:
    return ops.concat((a, b), axis=1)


def flatten(x: Any) -> Any:
    return x.reshape(x.shape[0], -1)


def to_shape(x: Any, shape: tuple[int, ...]) -> Any:
    return x.reshape((x.shape[0], *shape))


def to_sequence(x: Any) -> Any:
    """The places of an image as a sequence."""
    return x.reshape(x.shape[0], x.shape[1], -1).transpose(0, 2, 1)


def transposed(x: Any) -> Any:
    return x.transpose(0, 2, 1)


def pooled(x: Any) -> Any:
    return x.mean((2, 3))


def over_time(x: Any) -> Any:
    return x.mean(1)


def last(x: Any) -> Any:
    return x[:, -1]


def largest(x: Any) -> Any:
    return x.max(1)


def centred(x: Any) -> Any:
    return x - x.mean(-1, keep_dims=True)


ACTIVATIONS: dict[str, Callable[[], nn.Cell]] = {
    "relu": nn.ReLU,
    "tanh": nn.Tanh,
    "sigmoid": nn.Sigmoid,
    "gelu": nn.GELU,
    "leaky_relu": nn.LeakyReLU,
    "elu": nn.ELU,
    "relu6": nn.ReLU6,
    "silu": nn.SiLU,
    "hswish": nn.HSwish,
    "hsigmoid": nn.HSigmoid,
    "softsign": nn.Softsign,
    "log_sigmoid": nn.LogSigmoid,
    "softmax": nn.Softmax,
    "soft_shrink": nn.SoftShrink,
    "mish": nn.Mish,
    "celu": nn.CELU,
}

FUNCTIONS: dict[str, Callable[..., Any]] = {
    "shuffle": shuffle, "halves": halves, "swapped": swapped, "add": add, "multiply": multiply, "subtract": subtract,
    "join": join, "flatten": flatten, "to_shape": to_shape, "to_sequence": to_sequence, "transposed": transposed,
    "pooled": pooled, "over_time": over_time, "last": last, "largest": largest, "centred": centred,
}  # fmt: skip

LAYERS: dict[str, Callable[..., nn.Cell]] = {
    "activation": lambda name: ACTIVATIONS[name](),
    "dense": nn.Dense,
    "conv": nn.Conv2d,
    "conv1d": nn.Conv1d,
    "conv_transpose": nn.Conv2dTranspose,
    "max_pool": nn.MaxPool2d,
    "avg_pool": nn.AvgPool2d,
    "batch_norm1d": nn.BatchNorm1d,
    "batch_norm2d": nn.BatchNorm2d,
    "layer_norm": lambda width: nn.LayerNorm((width,)),
    "group_norm": nn.GroupNorm,
    "prelu": nn.PReLU,
    # Not ops.pad: with MindSpore 2.10 on CPU, training through it hangs in the fifth step.
    "padded": lambda: nn.Pad(((0, 0), (0, 0), (0, 1), (1, 0))),
    "dropout": lambda p: nn.Dropout(p=p),
    "embedding": nn.Embedding,
    "affine": Affine,
    "places": Places,
    "attention": Attention,
    "recurrent": Recurrent,
    "unrolled": Unrolled,
    "branch": Branch,
    "loop": Loop,
    "mean": Mean,
}


def make_layer(op: str, options: dict[str, Any]) -> nn.Cell:
    if op in FUNCTIONS:
        return Function(FUNCTIONS[op], *(tuple(v) if isinstance(v, list) else v for v in options.values()))
    return LAYERS[op](**options)
