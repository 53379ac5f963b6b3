"""The types and constants of a graph for another batch size."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from ...analysis.batch.axes import BatchAxes
from ...analysis.batch.rules import integer, integers, shape_of, sliced
from ...analysis.batch.spans import Axes, Stuck
from ...core.attributes import Attribute, Number, TensorValue
from ...core.data import from_numpy, to_numpy
from ...core.graph import Constant, Graph, Node, Use, Value
from ...core.primitives import Family, named
from ...core.types import TensorType, TupleType, Type

OPEN = -1
_TRANSPOSED = named(Family.TRANSPOSED_CONVOLUTION)
_SHAPES: Mapping[str, int] = {
    "Reshape": 1, "BroadcastTo": 1, "Conv2DBackpropInput": 2, "Conv2DTranspose": 2, "StridedSliceGrad": 1, "Zeros": 0,
    "Ones": 0, "FillV2": 0, "FillScalar": 0, "UniformReal": 0, "StandardNormal": 0, "AvgPool3DGrad": 0,
    "AdaptiveAvgPool2DGrad": 1, "Slice": 2, "SliceGrad": 3, "ScatterNd": 2,
    "UpsampleBilinear2DGrad": 1, "Conv3DBackpropInput": 2,
}  # fmt: skip
"""Which operand is the shape of the result, or at least has its extent on axes that hold the batch."""


class Rewrite:
    """The changes for a batch of ``size`` (None: any). Nothing changes before :meth:`apply`; ``stuck`` holds the nodes
    that cannot, with the reason. ``counts``: the constant operands that are a multiple of the batch size or one over
    it. ``runs``: MindSpore is to run the graph, so a transposed convolution must be told the whole shape of its result;
    what writes it in another form needs the type alone."""

    def __init__(self, graph: Graph, axes: BatchAxes, counts: Mapping[Use, int], size: int | None, runs: bool = True):
        self.axes, self.size, self.runs = axes, size, runs
        self.stuck: dict[Node, str] = {}
        self._operands: dict[Use, Attribute] = {}
        for node in graph.all_nodes():
            try:
                self._plan(node, axes.held.get((node, ()), {}))
            except Stuck as reason:
                self.stuck[node] = str(reason)
        for use in (*axes.constants, *counts):
            node, i = use
            operand = node.operand(i)
            assert isinstance(operand, Constant)
            if size is None:
                why = f"its constant operand {i} ({operand.type}) depends on the batch size, so that must be known"
                self.stuck[node] = why
            elif use in counts:
                self._operands[use] = self._counted(operand.value, counts[use])
            elif axes.constants[use]:
                self._operands[use] = self._grown(operand.value, axes.constants[use])

    def apply(self) -> int:
        """Changes the graph; returns how many values are others now."""
        for value, path in list(self.axes.held):
            value.type = self._type(value.type, path, self.axes.held[value, path])
        for (node, i), value in self._operands.items():
            node.set_operand(i, node.home.constant(value))
        return len(self.axes.holding) + len(self._operands)

    def per_sample(self, value: Value) -> bool:
        """Whether the first axis of a value is the batch, and no other one."""
        return self.axes.held.get((value, ())) == {0: (1, 1)}

    def _plan(self, node: Node, axes: Axes) -> None:
        """Operands that say the shape of what holds the batch."""
        name = node.op.name
        if name.startswith("StridedSlice"):
            self._slice_end(node, axes)
        if not axes:
            return
        if name == "Tile":
            self._tile(node, axes)
        elif name in _SHAPES:
            self._shape(node, _SHAPES[name], axes)

    def _shape(self, node: Node, i: int, axes: Axes) -> None:
        shape, name = integers(node, i), node.op.name
        new = [self._extent(axes, k) if k in axes and d != OPEN else d for k, d in enumerate(shape)]
        if self.size is None and tuple(new) != shape:
            carried = self.axes.of(node, 0)
            shift = len(shape_of(node.type)) - len(shape_of(node.operand(0).type))
            own = name == "BroadcastTo" and all(k - shift in carried for k in axes)
            if name not in ("Reshape", "Slice") and not own and (self.runs or name not in _TRANSPOSED):
                raise Stuck(f"its operand {i} is the shape of its result, so the batch size must be known")
            if name == "Reshape":
                new = [shape_of(node.type)[k] if d == OPEN and k not in axes else d for k, d in enumerate(new)]
                if new.count(OPEN) > 1:
                    raise Stuck("it reshapes to more than one open axis")
        self._replace(node, i, new)

    def _tile(self, node: Node, axes: Axes) -> None:
        times, carried = list(integers(node, 1)), self.axes.of(node, 0)
        own, rank = shape_of(node.operand(0).type), len(shape_of(node.type))
        for k in axes:
            at = k - rank + len(own)
            if at in carried:
                continue  # the operand grows, not how often it is repeated
            if self.size is None:
                raise Stuck("it repeats a value for each sample, so the batch size must be known")
            times[k - rank] = self._extent(axes, k) // (own[at] if at >= 0 else 1)
        self._replace(node, 1, times)

    def _slice_end(self, node: Node, axes: Axes) -> None:
        """Where the mask of ends is an operand, it can say that the slice takes all that there is."""
        grad = node.op.name == "StridedSliceGrad"
        axes, i = (axes, 3) if grad else (self.axes.of(node, 0), 2)
        ends = sliced(node)[1] & set(axes) if axes else set()
        if not ends:
            return
        if self.size is None and (grad or node.num_operands <= i + 3):
            raise Stuck(f"its operand {i} is the end of the batch, so its size must be known")
        if self.size is None:
            self._operands[node, i + 3] = integer(node, i + 3) | sum(1 << k for k in ends)
        else:
            end = [self._extent(axes, k) if k in ends else d for k, d in enumerate(integers(node, i))]
            self._replace(node, i, end)

    def _replace(self, node: Node, i: int, new: list[int]) -> None:
        """Integers, written as the old ones were."""
        old = node.operand(i)
        if not isinstance(old, Constant) or tuple(new) == integers(node, i):
            return
        value = old.value
        if isinstance(value, TensorValue):
            self._operands[node, i] = _tensor(value, new)
        else:
            self._operands[node, i] = type(value)(new) if isinstance(value, (tuple, list)) else new[0]

    def _extent(self, axes: Axes, axis: int) -> int:
        return OPEN if self.size is None else axes[axis].extent(self.size)

    def _type(self, type_: Type, path: tuple[int, ...], axes: Axes) -> Type:
        if path and isinstance(type_, TupleType):
            made = (self._type(t, path[1:], axes) if k == path[0] else t for k, t in enumerate(type_.elements))
            return replace(type_, elements=tuple(made))
        if not isinstance(type_, TensorType):
            return type_
        shape = (self._extent(axes, k) if k in axes and d >= 0 else d for k, d in enumerate(type_.shape))
        return replace(type_, shape=tuple(shape))

    def _grown(self, value: Attribute, axes: Axes) -> TensorValue:
        import numpy as np

        assert isinstance(value, TensorValue)
        array = to_numpy(value.type, value.data)
        for k in axes:
            array = np.repeat(array.take([0], axis=k), self._extent(axes, k), axis=k)
        return _tensor(value, array)

    def _counted(self, value: Attribute, count: int) -> Attribute:
        """The number with the new batch size in place of the old one: exact where it is a count."""
        import numpy as np

        assert self.size is not None
        new = abs(count) // self.axes.size * self.size
        magnitude = new if count > 0 else 1 / new
        if isinstance(value, TensorValue):
            return _tensor(value, np.copysign(magnitude, to_numpy(value.type, value.data)))
        number: Any = value.value if isinstance(value, Number) else value
        signed = type(number)(np.float32(magnitude) if isinstance(number, float) else magnitude) * (
            -1 if number < 0 else 1
        )
        return replace(value, value=signed) if isinstance(value, Number) else signed


def _tensor(old: TensorValue, new: Any) -> TensorValue:
    import numpy as np

    array = np.asarray(new).astype(to_numpy(old.type, old.data).dtype)
    return TensorValue(replace(old.type, shape=tuple(map(int, array.shape))), from_numpy(array)[1])
