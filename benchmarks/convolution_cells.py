"""Convolutions and their gradients as products, as Cells. MindSpore parses their source, so they stand in a file."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import mindspore as ms
from mindspore import nn, ops
from mindspore.ops.operations._grad_ops import Conv2DBackpropFilter
from mindspore.ops.operations.array_ops import Col2Im, Im2Col
from mindspore.ops.operations.nn_ops import Conv2DBackpropInput

if TYPE_CHECKING:
    from benchmarks.convolutions import Convolution


def primitives(channels: int, kernel: int, stride: int = 1, pad: int = 0) -> tuple[Any, Any, Any]:
    """A convolution and its gradients by input and weights."""
    how = {"pad_mode": "pad", "pad": pad, "stride": stride}
    sizes = {"pad_mode": "pad", "pad": pad, "stride": (stride, stride), "pad_list": (pad, pad, pad, pad)}
    return (
        ops.Conv2D(channels, (kernel, kernel), **how),
        Conv2DBackpropInput(channels, (kernel, kernel), **{**how, "pad_list": (pad, pad, pad, pad)}),
        Conv2DBackpropFilter(channels, (kernel, kernel), **sizes),
    )


class Copies(nn.Cell):
    """``cell`` so many times; the operands of the copies differ, or MindSpore would merge them."""

    def __init__(self, cell: nn.Cell, count: int) -> None:
        super().__init__()
        self.cell, self.count = cell, count

    def construct(self, a, b):
        others = (ops.neg(a), ops.abs(a), ops.square(a))
        results = ()
        for i in range(3):
            results += (self.cell(others[i], b) if i < self.count else others[i],)
        return results


class Kernel(nn.Cell):
    def __init__(self, primitive: Any, *sizes: tuple[int, ...]) -> None:
        super().__init__()
        self.primitive, self.sizes = primitive, sizes

    def construct(self, a, b):
        return self.primitive(a, b, *self.sizes)


class _ByColumns(nn.Cell):
    def __init__(self, c: Convolution) -> None:
        super().__init__()
        (n, i, height, width), (o, _, k, _), (_, _, h, w) = c.image, c.filters, c.result
        self.forward, self.back, self.to_filters = primitives(o, 1)
        self.columns_of = Im2Col([k, k], c.stride, 1, c.pad)
        self.image_of = Col2Im([k, k], [1, 1], [c.pad, c.pad], [c.stride, c.stride])
        self.columns = (n, i * k * k, h, w)
        self.windows = (n, i, k * k, h * w)
        self.point = (o, i * k * k, 1, 1)
        self.filters = c.filters
        self.area = ms.Tensor([height, width], ms.int32)


class Columns(_ByColumns):
    def construct(self, x, w):
        return self.forward(self.columns_of(x).reshape(self.columns), w.reshape(self.point))


class ColumnsBack(_ByColumns):
    def construct(self, dy, w):
        columns = self.back(dy, w.reshape(self.point), self.columns)
        return self.image_of(columns.reshape(self.windows), self.area)


class ColumnsFilters(_ByColumns):
    def construct(self, dy, x):
        return self.to_filters(dy, self.columns_of(x).reshape(self.columns), self.point).reshape(self.filters)


class Shifted(nn.Cell):
    """Stride 1. ``back``: of the gradient of the result, by the filters turned round."""

    def __init__(self, channels: int, kernel: int, pad: int, back: bool) -> None:
        super().__init__()
        self.k, self.back = kernel, back
        edge = kernel - 1 - pad if back else pad
        self.pad = ops.Pad(((0, 0), (0, 0), (edge, edge), (edge, edge)))
        self.point = ops.Conv2D(channels, 1)

    def construct(self, x, w):
        if self.back:
            w = w.transpose(1, 0, 2, 3)
        padded = self.pad(x)
        n, c, height, width = padded.shape
        result = 0
        for i in range(self.k):
            for j in range(self.k):
                row, column = (self.k - 1 - i, self.k - 1 - j) if self.back else (i, j)
                shifted = ops.slice(padded, (0, 0, i, j), (n, c, height - self.k + 1, width - self.k + 1))
                result = result + self.point(shifted, w[:, :, row : row + 1, column : column + 1])
        return result


class Point(nn.Cell):
    """A convolution of one point, or one of its gradients, as a product of matrices."""

    def __init__(self, part: str, c: Convolution) -> None:
        super().__init__()
        self.part = part
        (n, i, h, w), (o, _, _, _) = c.image, c.filters
        self.filters, self.matrix = c.filters, (o, i)
        self.shape = (o if part == "forward" else i, n, h, w)
        self.product = ops.MatMul(transpose_a=part == "input")
        self.outer = ops.MatMul(transpose_b=True)

    def rows(self, x):
        return x.transpose(1, 0, 2, 3).reshape(x.shape[1], -1)

    def construct(self, a, b):
        if self.part == "weights":
            return self.outer(self.rows(a), self.rows(b)).reshape(self.filters)
        return self.product(b.reshape(self.matrix), self.rows(a)).reshape(self.shape).transpose(1, 0, 2, 3)
