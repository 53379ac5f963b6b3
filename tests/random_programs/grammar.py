"""Random networks, by shape: vectors (F), images (C, H, W) and sequences (T, F), and the ways between them.

The strategies are hypothesis's, which shrink what they draw: fewer layers, fewer inputs, the first of each list. What
is drawn has valid shapes by construction, so no drawing is thrown away.
"""

from __future__ import annotations

from typing import Any, cast

from hypothesis import strategies as st

from .layers import ACTIVATIONS
from .plan import Call, Input, Layer, Network, Options, Shape

VOCABULARY = 12
MOST_BLOCKS = 4
HALF = ("dense", "conv", "embedding", "attention")
"""Layers that may compute in float16; a cast to it stands in front of each and the next layer goes on in it."""


class Drawn:
    """A network as it grows. A value is its number; `shapes` are theirs."""

    def __init__(self, draw: st.DrawFn, half: bool) -> None:
        self.draw, self.half = draw, half
        self.inputs: list[Input] = []
        self.layers: list[Layer] = []
        self.calls: list[Call] = []
        self.shapes: list[Shape] = []

    def one_of(self, *values: Any) -> Any:
        return self.draw(st.sampled_from(values))

    def whole(self, least: int, most: int) -> int:
        return self.draw(st.integers(least, most))

    def maybe(self) -> bool:
        return self.draw(st.booleans())

    def input(self, kind: str, shape: Shape, bound: int = 0) -> int:
        self.inputs.append(Input(kind, shape, bound))
        self.shapes.append(shape)
        return len(self.shapes) - 1

    def call(self, layer: int, sources: tuple[int, ...], shape: Shape, how: str = "call") -> int:
        self.calls.append(Call(layer, sources, how))
        self.shapes.append(shape)
        return len(self.shapes) - 1

    def add(self, op: str, options: Options, sources: tuple[int, ...], shape: Shape) -> int:
        half = self.half and op in HALF and self.maybe()
        self.layers.append(Layer(op, options, half))
        return self.call(len(self.layers) - 1, sources, shape)

    # -- layers of any shape -----------------------------------------------------------------------------------

    def same(self, op: str, options: Options, x: int) -> int:
        return self.add(op, options, (x,), self.shapes[x])

    def activation(self, x: int) -> int:
        return self.same("activation", {"name": self.one_of(*ACTIVATIONS)}, x)

    def dropout(self, x: int) -> int:
        return self.same("dropout", {"p": self.one_of(0.5, 0.2)}, x)

    def sum(self, a: int, b: int) -> int:
        return self.add(self.one_of("add", "subtract", "multiply"), {}, (a, b), self.shapes[a])

    def dense(self, x: int, width: int | None = None) -> int:
        """Over the last axis."""
        *rows, old = self.shapes[x]
        new = self.whole(2, 8) if width is None else width
        options: Options = {"in_channels": old, "out_channels": new, "has_bias": self.maybe()}
        if self.maybe():
            options["activation"] = self.one_of("relu", "tanh", "sigmoid")
        return self.add("dense", options, (x,), (*rows, new))

    def layer_norm(self, x: int) -> int:
        # A norm over two numbers has only signs as its result, and a gradient that is nothing but rounding.
        if self.shapes[x][-1] < 3:
            x = self.dense(x, 4)
        return self.same("layer_norm", {"width": self.shapes[x][-1]}, x)

    def residual(self, x: int) -> int:
        y = self.activation(self.dense(x, self.whole(2, 8)))
        return self.sum(x, self.dense(y, self.shapes[x][-1]))

    def shared(self, x: int) -> int:
        """One layer twice, or its weight once more, transposed."""
        width = self.shapes[x][-1]
        y = self.dense(x, width)
        layer = len(self.layers) - 1
        y = self.activation(y)
        if self.maybe():
            return self.call(layer, (y,), self.shapes[x], "tied" if not self.layers[layer].half else "call")
        return self.call(layer, (y,), self.shapes[x])

    def halves(self, x: int) -> int:
        *rows, width = self.shapes[x]
        if width % 2:
            return self.same("swapped", {}, x)
        return self.add("halves", {}, (x,), (*rows, width // 2))

    def centred(self, x: int) -> int:
        return self.same("centred", {}, x)

    def affine(self, x: int) -> int:
        return self.same("affine", {"width": self.shapes[x][-1]}, x)

    # -- vectors -----------------------------------------------------------------------------------------------

    def batch_norm1d(self, x: int) -> int:
        return self.same("batch_norm1d", {"num_features": self.shapes[x][0]}, x)

    def branch(self, x: int) -> int:
        return self.same("branch", {"width": self.shapes[x][0]}, x)

    def loop(self, x: int) -> int:
        return self.same("loop", {"width": self.shapes[x][0], "times": self.whole(1, 3)}, x)

    def mean(self, x: int) -> int:
        return self.same("mean", {"width": self.shapes[x][0]}, x)

    def to_image(self, x: int) -> int:
        shape = (self.whole(1, 3), 4, 4)
        x = self.dense(x, shape[0] * 16)
        return self.add("to_shape", {"shape": list(shape)}, (x,), shape)

    def as_sequence(self, x: int) -> int:
        shape = (self.whole(2, 4), 4)
        x = self.dense(x, shape[0] * shape[1])
        return self.add("to_shape", {"shape": list(shape)}, (x,), shape)

    # -- images ------------------------------------------------------------------------------------------------

    def conv(self, x: int, channels: int | None = None, plain: bool = False) -> int:
        c, h, w = self.shapes[x]
        group = 1 if plain else self.one_of(*(g for g in (1, 2, 3, 4) if c % g == 0))
        new = channels or group * self.whole(1, max(1, 4 // group))
        kernel = self.one_of(3, 1, 2)
        stride = 1 if plain else self.one_of(1, 2)
        dilation = 1 if plain or stride > 1 else self.one_of(1, 2)
        reach = dilation * (kernel - 1) + 1
        mode = "same" if plain or reach > min(h, w) else self.one_of("same", "valid", "pad")
        options: Options = {"in_channels": c, "out_channels": new, "kernel_size": kernel, "stride": stride}
        options.update(dilation=dilation, group=group, pad_mode=mode, has_bias=self.maybe())
        if mode == "pad":
            options["padding"] = 1
            h, w = ((d + 2 - reach) // stride + 1 for d in (h, w))
        elif mode == "valid":
            h, w = ((d - reach) // stride + 1 for d in (h, w))
        else:
            h, w = (-(-d // stride) for d in (h, w))
        return self.add("conv", options, (x,), (new, h, w))

    def conv_transpose(self, x: int) -> int:
        c, h, w = self.shapes[x]
        if h > 4:
            return self.conv(x)
        new, stride = self.whole(1, 3), self.one_of(1, 2)
        options = {"in_channels": c, "out_channels": new, "kernel_size": 3, "stride": stride, "pad_mode": "same"}
        return self.add("conv_transpose", {**options, "has_bias": self.maybe()}, (x,), (new, h * stride, w * stride))

    def pool(self, x: int) -> int:
        c, h, w = self.shapes[x]
        kernel, stride = self.one_of(2, 1, 3), self.one_of(1, 2)
        mode = self.one_of("same", "valid") if kernel <= min(h, w) else "same"
        h, w = ((-(-d // stride)) if mode == "same" else (d - kernel) // stride + 1 for d in (h, w))
        options = {"kernel_size": kernel, "stride": stride, "pad_mode": mode}
        return self.add(self.one_of("max_pool", "avg_pool"), options, (x,), (c, h, w))

    def batch_norm2d(self, x: int) -> int:
        return self.same("batch_norm2d", {"num_features": self.shapes[x][0]}, x)

    def group_norm(self, x: int) -> int:
        c, h, w = self.shapes[x]
        if h * w < 4:
            return self.activation(x)
        groups = self.one_of(*(g for g in (1, 2, 3, 4) if c % g == 0))
        return self.same("group_norm", {"num_groups": groups, "num_channels": c}, x)

    def prelu(self, x: int) -> int:
        return self.same("prelu", {"channel": self.shapes[x][0]}, x)

    def shuffle(self, x: int) -> int:
        c = self.shapes[x][0]
        return self.same("shuffle", {"groups": self.one_of(*(g for g in (2, 3, 4, 1) if c % g == 0))}, x)

    def residual_block(self, x: int) -> int:
        """As in ResNets, with BatchNorms or without, and the projection where channels change."""
        c = self.shapes[x][0]
        norm = self.one_of(self.batch_norm2d, lambda y: y, self.group_norm)
        y = self.same("activation", {"name": "relu"}, norm(self.conv(x, self.whole(1, 4), plain=True)))
        new = c if self.maybe() else self.whole(1, 4)
        y = norm(self.conv(y, new, plain=True))
        x = x if new == c else norm(self.conv(x, new, plain=True))
        return self.same("activation", {"name": "relu"}, self.add("add", {}, (x, y), self.shapes[y]))

    def grown(self, x: int) -> int:
        """As in DenseNets: what is new stands beside what was there."""
        c, h, w = self.shapes[x]
        y = self.conv(x, self.whole(1, 2), plain=True)
        return self.add("join", {}, (x, y), (c + self.shapes[y][0], h, w))

    def padded(self, x: int) -> int:
        c, h, w = self.shapes[x]
        return self.add("padded", {}, (x,), (c, h + 1, w + 1)) if h < 6 else x

    def places_as_sequence(self, x: int) -> int:
        c, h, w = self.shapes[x]
        return self.add("to_sequence", {}, (x,), (h * w, c)) if h * w <= 9 else self.pool(x)

    def image_to_vector(self, x: int) -> int:
        c, h, w = self.shapes[x]
        if self.maybe() and c > 1:
            return self.add("pooled", {}, (x,), (c,))
        return self.add("flatten", {}, (x,), (c * h * w,))

    # -- sequences ---------------------------------------------------------------------------------------------

    def places(self, x: int) -> int:
        length, width = self.shapes[x]
        return self.same("places", {"length": length, "width": width}, x)

    def attention(self, x: int) -> int:
        length, width = self.shapes[x]
        if length < 2:
            return self.dense(x)
        heads = self.one_of(*(n for n in (1, 2, 4) if width % n == 0))
        options = {"length": length, "width": width, "heads": heads, "causal": self.maybe()}
        return self.same("attention", options, x)

    def block(self, x: int) -> int:
        """As in transformers, the norm before or behind."""
        before = self.maybe()
        y = self.attention(self.layer_norm(x) if before else x)
        if self.shapes[y] != self.shapes[x]:
            y = self.dense(y, self.shapes[x][-1])
        x = self.add("add", {}, (x, y), self.shapes[x])
        return self.residual(x if before else self.layer_norm(x))

    def recurrent(self, x: int) -> int:
        length, width = self.shapes[x]
        hidden = self.whole(2, 5)
        options = {"kind": self.one_of("lstm", "gru", "rnn"), "width": width, "hidden": hidden}
        return self.add("recurrent", options, (x,), (length, hidden))

    def conv1d(self, x: int) -> int:
        length, width = self.shapes[x]
        new, kernel = self.whole(1, 4), self.one_of(1, 2, 3)
        x = self.add("transposed", {}, (x,), (width, length))
        options = {"in_channels": width, "out_channels": new, "kernel_size": kernel, "has_bias": self.maybe()}
        x = self.add("conv1d", options, (x,), (new, length))
        return self.add("transposed", {}, (x,), (length, new))

    def mixed(self, x: int) -> int:
        """A layer over time."""
        length, width = self.shapes[x]
        x = self.add("transposed", {}, (x,), (width, length))
        x = self.dense(x, self.whole(2, 4))
        return self.add("transposed", {}, (x,), (self.shapes[x][-1], width))

    def sequence_to_vector(self, x: int) -> int:
        length, width = self.shapes[x]
        how = self.one_of("last", "over_time", "flatten", "largest", "unrolled")
        if how == "flatten":
            return self.add("flatten", {}, (x,), (length * width,))
        if how == "unrolled" and length <= 4:
            hidden = self.whole(2, 5)
            kind = self.one_of("rnn", "gru", "lstm")
            options = {"kind": kind, "length": length, "width": width, "hidden": hidden}
            return self.add("unrolled", options, (x,), (hidden,))
        return self.add("last" if how == "unrolled" else how, {}, (x,), (width,))

    # -- networks ----------------------------------------------------------------------------------------------

    def step(self, x: int) -> int:
        """One block, by the shape of what it takes."""
        anything = (self.activation, self.dense, self.residual, self.layer_norm, self.shared, self.dropout)
        anything = (*anything, self.halves, self.centred, self.affine)
        if len(self.shapes[x]) == 1:
            own = (self.batch_norm1d, self.to_image, self.as_sequence, self.branch, self.mean, self.loop)
            return cast(int, self.one_of(*anything, *own)(x))
        if len(self.shapes[x]) == 2:
            own = (self.places, self.attention, self.block, self.recurrent, self.conv1d, self.mixed)
            return cast(int, self.one_of(*own, *anything, self.sequence_to_vector)(x))
        convolutional = (self.conv, self.residual_block, self.pool, self.batch_norm2d, self.group_norm, self.prelu)
        others = (self.conv_transpose, self.shuffle, self.grown, self.padded, self.activation, self.dropout)
        ends = (self.places_as_sequence, self.image_to_vector)
        return cast(int, self.one_of(*convolutional, *others, *ends)(x))

    def vector(self, x: int) -> int:
        while len(self.shapes[x]) > 1:
            x = self.image_to_vector(x) if len(self.shapes[x]) == 3 else self.sequence_to_vector(x)
        return x

    def source(self) -> int:
        """An input of some kind; tokens come with their embedding."""
        kind = self.one_of("vector", "image", "sequence", "tokens")
        if kind == "vector":
            return self.input("float", (self.whole(2, 8),))
        if kind == "image":
            side = self.whole(4, 6)
            return self.input("float", (self.whole(1, 3), side, side))
        if kind == "sequence":
            return self.input("float", (self.whole(2, 4), self.whole(2, 6)))
        return self.input("tokens", (self.whole(2, 4),), VOCABULARY)

    def embedded(self, x: int) -> int:
        width = self.one_of(4, 6)
        options = {"vocab_size": VOCABULARY, "embedding_size": width}
        return self.add("embedding", options, (x,), (*self.shapes[x], width))

    def merged(self, a: int, b: int) -> int:
        if self.maybe():
            return self.add("join", {}, (a, b), (self.shapes[a][0] + self.shapes[b][0],))
        width = self.whole(2, 8)
        return self.sum(self.dense(a, width), self.dense(b, width))


@st.composite
def networks(draw: st.DrawFn, half: bool = False) -> Network:
    """One to three inputs, each through blocks of its own, then blocks of the whole, then a head."""
    net = Drawn(draw, half)
    sources = [net.source() for _ in range(net.one_of(1, 1, 2, 3))]
    tokens = [x for x in sources if net.inputs[x].kind == "tokens"]
    ends, tables = [], []
    for x in sources:
        y = x
        if x in tokens:
            y = net.embedded(x)
            tables.append((len(net.layers) - 1, net.shapes[y][-1]))
        for _ in range(net.whole(0, MOST_BLOCKS if len(sources) == 1 else 1)):
            y = net.step(y)
        ends.append(y if len(sources) == 1 else net.vector(y))
    x = ends[0]
    for other in ends[1:]:
        x = net.merged(x, other)
    for _ in range(net.whole(0, 2)):
        x = net.step(x)
    x = net.vector(x)
    layer, width = tables[0] if tables else (0, 0)
    if tables and not net.layers[layer].half and net.maybe():
        x = net.call(layer, (net.dense(x, width),), (VOCABULARY,), "decode")
    else:
        classes = net.whole(2, 5)
        options = {"in_channels": net.shapes[x][0], "out_channels": classes, "has_bias": net.maybe()}
        x = net.add("dense", options, (x,), (classes,))
    return Network(tuple(net.inputs), tuple(net.layers), tuple(net.calls), net.shapes[x][0])
