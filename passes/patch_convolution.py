"""Patch convolutions as matrix products."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

from ..ir.builders.nodes import Nodes
from ..ir.core.graph import Graph, Node, Value, tensor_type
from ..ir.core.program import Program
from ..ir.core.report import PassResult
from ..ir.core.types import TensorType
from ..ir.core.wording import agreed, counted
from .framework.base import Pass
from .framework.pattern import Match, Rewrite, any_value, op

SCOPE = "patch-convolution"


class PatchConvolution(Pass):
    """Computes convolutions whose windows do not overlap (the patch embedding of vision transformers) as products.

    The image is cut into its patches, and this matrix is multiplied with the filters. The pass rewrites a convolution
    of NCHW if its strides are its kernel's size, the image is a multiple of that, and there is no padding, dilation or
    group. It pays on CPUs with AVX-512 in MindSpore 2.9 and 2.10 (docs/compatibility.md).

    Preserves training up to rounding.

    Source: Dosovitskiy et al., An Image is Worth 16x16 Words, 2021, where the patch embedding is a product.
    """

    name = "patch-convolution"
    late = True  # other passes tell a convolution's weight by the convolution

    def run(self, program: Program) -> PassResult:
        result = self.result()
        for rewrite in REWRITES:
            rewrite.run(program, result)
        result.matched = result.changed  # other convolutions are no sites of this pass, but it says why they stay
        what = counted(result.changed, "convolution or gradient of one", "convolutions and gradients of such")
        result.summary = f"{what} {agreed(result.changed, 'is a product', 'are products')}"
        return result


def _forward(graph: Graph, m: Match) -> Value:
    x, w = m["x"], m["w"]
    out = _shape(m.root)
    rows = _Build(graph, SCOPE)
    product = rows.matmul(rows.patches(x, w), rows.filters(w), transpose_b=True)
    return rows.images(product, out)


def _to_filter(graph: Graph, m: Match) -> Value:
    """``dy`` and ``x`` give the filters' gradient."""
    rows = _Build(graph, SCOPE)
    product = rows.matmul(rows.pixels(m["dy"]), rows.patches(m["x"], m.root), transpose_a=True)
    return rows.reshape(product, *_shape(m.root))


def _to_input(graph: Graph, m: Match) -> Value:
    """``dy`` and the filters give the image's gradient."""
    rows = _Build(graph, SCOPE)
    product = rows.matmul(rows.pixels(m["dy"]), rows.filters(m["w"]))
    n, c, height, width = _shape(m.root)
    _, _, kh, kw = _shape(m["w"])
    patches = rows.reshape(product, n, height // kh, width // kw, c, kh, kw)
    return rows.reshape(rows.transpose(patches, 0, 3, 1, 4, 2, 5), n, c, height, width)


class _Build(Nodes):
    """Makes the nodes. Matrices are two-dimensional: a row a patch (its position in the image, row by row)."""

    def patches(self, x: Value, w: Value) -> Value:
        """[N, C, H, W], cut as filters of w's shape want it -> [N h w, C kh kw]."""
        n, c, height, width = _shape(x)
        _, _, kh, kw = _shape(w)
        cut = self.reshape(x, n, c, height // kh, kh, width // kw, kw)
        return self.matrix(self.transpose(cut, 0, 2, 4, 1, 3, 5), c * kh * kw)

    def filters(self, w: Value) -> Value:
        """[O, C, kh, kw] -> [O, C kh kw]."""
        o, c, kh, kw = _shape(w)
        return self.reshape(w, o, c * kh * kw)

    def pixels(self, y: Value) -> Value:
        """[N, O, h, w] -> [N h w, O]."""
        return self.matrix(self.transpose(y, 0, 2, 3, 1), _shape(y)[1])

    def images(self, product: Value, shape: Sequence[int]) -> Value:
        """[N h w, O] -> ``shape``, which is [N, O, h, w]."""
        n, o, h, w = shape
        return self.transpose(self.reshape(product, n, h, w, o), 0, 3, 1, 2)

    def matrix(self, value: Value, columns: int) -> Value:
        shape = _shape(value)
        rows = -1 if shape[0] == -1 else prod(shape) // columns
        return self.reshape(value, rows, columns)


def _shape(value: Value) -> tuple[int, ...]:
    return tensor_type(value).shape


def _against(image: int | None, filters: int | None) -> Any:
    """The objection to a node whose image and filters are operands of these positions (None: its result)."""

    def condition(node: Node) -> str | None:
        x, w = (node if i is None else node.operand(i) for i in (image, filters))
        return _overlap(node) or _unknown(x, w) or _cut(_shape(x), _shape(w))

    return condition


def _overlap(node: Node) -> str | None:
    a = node.attributes
    if a.get("format", a.get("data_format", "NCHW")) != "NCHW":
        return "it is not of NCHW"
    if a.get("group", 1) != 1:
        return f"it has {counted(a['group'], 'group')}"
    kernel = _pair(a.get("kernel_size"))
    if kernel is None or _pair(a.get("stride")) != kernel:
        return "its windows overlap, or leave pixels out: the stride is not the size of the kernel"
    if _pair(a.get("dilation", 1)) != (1, 1):
        return "its kernel is dilated"
    if str(a.get("pad_mode")).lower() not in ("same", "valid") and any(_flat(a.get("pad_list", a.get("pad", 0)))):
        return "it has padding"
    if kernel == (1, 1):
        return "a kernel of one point is a product already"
    return None


def _unknown(x: Value, w: Value) -> str | None:
    for value in (x, w):
        if not isinstance(value.type, TensorType) or len(value.type.shape) != 4 or -1 in value.type.shape[1:]:
            return f"the shape of %{value.name} is not known"
    return None


def _cut(x: Sequence[int], w: Sequence[int]) -> str | None:
    if x[2] % w[2] or x[3] % w[3]:
        return f"an image of {x[2]} x {x[3]} is no multiple of the kernel of {w[2]} x {w[3]}"
    return None


def _flat(value: Any) -> tuple[Any, ...]:
    return value if isinstance(value, tuple) else (value,)


def _pair(value: Any) -> tuple[Any, Any] | None:
    """Of an attribute that is one number, a pair, or has those of batch and channel in front."""
    if isinstance(value, tuple):
        return (value[-2], value[-1]) if len(value) >= 2 else None
    return None if value is None else (value, value)


REWRITES = (
    Rewrite(op("Conv2D", any_value("x"), any_value("w"), ..., where=_against(0, 1)), _forward),
    Rewrite(op("Conv2DBackpropFilter", any_value("dy"), any_value("x"), ..., where=_against(1, None)), _to_filter),
    Rewrite(op("Conv2DBackpropInput", any_value("dy"), any_value("w"), ..., where=_against(None, 1)), _to_input),
)
