"""The types and constants of a graph for another batch size."""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import replace

from ...analysis.batch.constants import integer, integers, values
from ...analysis.batch.scalars import Scalars
from ...analysis.batch.shapes import SHAPE_OPERAND
from ...analysis.batch.spans import Axes, Stuck
from ...analysis.batch.sweep import Batch, Label, Site, element, holds, shape_of
from ...core.attributes import Attribute, Number, TensorValue
from ...core.data import BytesData, from_numpy, to_numpy
from ...core.graph import Constant, Graph, Node
from ...core.primitives import Family, named
from ...core.types import TensorType, TupleType, Type

OPEN = -1
_TRANSPOSED = named(Family.TRANSPOSED_CONVOLUTION)


class Rewrite:
    """The changes for a batch of ``size`` (None: any). Nothing changes before :meth:`apply`; ``stuck`` holds the nodes
    that cannot, with the reason. ``runs``: MindSpore is to run the graph, so a transposed convolution must be told the
    whole shape of its result; what writes it in another form needs the type alone."""

    def __init__(self, graph: Graph, batch: Batch, scalars: Scalars, size: int | None, runs: bool = True):
        self.graph = graph
        self.batch = batch
        self.size = size
        self.runs = runs
        self.stuck: dict[Node, str] = {}
        self._operands: list[tuple[Site, Attribute]] = []
        for part in graph.all_graphs():
            for node in part:
                try:
                    self._plan(node)
                except Stuck as reason:
                    self.stuck[node] = str(reason)
        for (node, i), axes in batch.constants.items():
            step = batch.steps.get((node, i), 0)
            self._note(node, i, lambda v, axes=axes, step=step: self._grown(v, axes, step))  # type: ignore[misc]
        for (node, i), count in scalars.counts.items():
            self._note(node, i, lambda v, count=count: self._counted(v, count))  # type: ignore[misc]

    def apply(self) -> int:
        """Changes the graph; returns how many values are others now."""
        for value, label in self.batch.labels.items():
            if holds(label):
                value.type = self._type(value.type, label)
        for (node, i), value in self._operands:
            node.set_operand(i, node.home.constant(value))
        return len(self.batch.labels) + len(self._operands)

    def _note(self, node: Node, i: int, change: Callable[[Attribute], Attribute]) -> None:
        operand = node.operand(i)
        assert isinstance(operand, Constant)
        if self.size is None:
            self.stuck[node] = (
                f"its constant operand {i} ({operand.type}) depends on the batch size, so that must be known"
            )
        else:
            self._operands.append(((node, i), change(operand.value)))

    def _plan(self, node: Node) -> None:
        """Operands that say the shape of what holds the batch."""
        label = self.batch.labels.get(node)
        name = node.op.name
        if self.batch.ends.get(node):
            self._slice_end(node)
        if not label or not isinstance(node.type, TensorType):
            return
        if name == "Tile":
            self._tile(node, label)
        elif name in SHAPE_OPERAND:
            i = SHAPE_OPERAND[name]
            if not isinstance(node.operand(i), Constant):
                raise Stuck(f"its operand {i}, the shape of its result, is computed")
            self._shape(node, i, values(node, i), label)

    def _shape(self, node: Node, i: int, shape: tuple[int, ...], axes: Axes) -> None:
        new = list(shape)
        fixed = [k for k in axes if new[k] != OPEN]
        for k in fixed:
            new[k] = self._extent(axes, k)
        if self.size is None and fixed:
            own = node.op.name == "BroadcastTo" and set(axes) <= self._carried(node)
            written = not self.runs and node.op.name in _TRANSPOSED
            if node.op.name not in ("Reshape", "Slice") and not own and not written:
                raise Stuck(f"its operand {i} is the shape of its result, so the batch size must be known")
            if node.op.name == "Reshape":
                for k, d in enumerate(new):
                    if d == OPEN and k not in axes:
                        new[k] = shape_of(node.type)[k]
                if new.count(OPEN) > 1:
                    raise Stuck("it reshapes to more than one open axis")
        if tuple(new) != shape:
            old = node.operand(i)
            assert isinstance(old, Constant)
            self._operands.append(((node, i), _like(old.value, new)))

    def _carried(self, node: Node) -> set[int]:
        """Axes of the result of a BroadcastTo that its operand has."""
        shift = len(shape_of(node.type)) - len(shape_of(node.operand(0).type))
        return {k + shift for k in self.batch.labels.get(node.operand(0)) or ()}

    def _tile(self, node: Node, axes: Axes) -> None:
        times = list(integers(node, 1))
        rank, own = len(shape_of(node.type)), shape_of(node.operand(0).type)
        carried = self.batch.labels.get(node.operand(0)) or {}
        for k, span in axes.items():
            at = k - rank + len(own)
            if at >= 0 and at in carried:
                continue  # the operand grows, not how often it is repeated
            if self.size is None:
                raise Stuck("it repeats a value for each sample, so the batch size must be known")
            times[k - rank] = span.extent(self.size) // (own[at] if at >= 0 else 1)
        self._operands.append(((node, 1), tuple(times)))

    def _slice_end(self, node: Node) -> None:
        i = 3 if node.op.name == "StridedSliceGrad" else 2
        if self.size is None:
            self._open_end(node, i)
            return
        end = list(integers(node, i))
        big = node if node.op.name == "StridedSliceGrad" else node.operand(0)
        axes = self.batch.labels.get(big) or self.batch.constants.get((node, 0), {})
        for k in self.batch.ends[node]:
            end[k] = self._extent(axes, k)
        self._operands.append(((node, i), tuple(end)))

    def _open_end(self, node: Node, i: int) -> None:
        """Where the mask of ends is an operand, it can say that the slice takes all that there is."""
        at = i + 3
        if node.op.name != "StridedSlice" or node.num_operands <= at:
            raise Stuck(f"its operand {i} is the end of the batch, so its size must be known")
        self._operands.append(((node, at), integer(node, at) | sum(1 << k for k in self.batch.ends[node])))

    def _extent(self, axes: Axes, axis: int) -> int:
        return OPEN if self.size is None else axes[axis].extent(self.size)

    def _type(self, type_: Type, label: Label) -> Type:
        if isinstance(type_, TupleType):
            return replace(
                type_, elements=tuple(self._type(t, element(label, k)) for k, t in enumerate(type_.elements))
            )
        if isinstance(type_, TensorType) and label:
            shape = tuple(self._extent(label, k) if k in label else d for k, d in enumerate(type_.shape))
            return replace(type_, shape=shape)
        return type_

    def _grown(self, value: TensorValue, axes: Axes, step: int) -> TensorValue:
        import numpy as np

        array = to_numpy(value.type, value.data)
        for k in axes:
            extent = self._extent(axes, k)
            array = np.repeat(array.take([0], axis=k), extent, axis=k)
            if step:
                along = [extent if j == k else 1 for j in range(array.ndim)]
                array = array + (np.arange(extent) * step).astype(array.dtype).reshape(along)
        _, data = from_numpy(array)
        return TensorValue(replace(value.type, shape=tuple(map(int, array.shape))), data)

    def _counted(self, value: Attribute, count: int) -> Attribute:
        """The number with the new batch size in place of the old one: exact where it is a count."""
        assert self.size is not None
        new = abs(count) // self.batch.size * self.size
        if isinstance(value, TensorValue):
            return replace(value, data=_everywhere(value, new if count > 0 else 1 / new))
        number = value.value if isinstance(value, Number) else value
        changed = new if count > 0 else 1 / new
        signed = type(number)(-changed if number < 0 else changed)
        if isinstance(value, Number):
            return replace(value, value=signed)
        return struct.unpack("<f", struct.pack("<f", signed))[0] if isinstance(signed, float) else signed


def _like(old: Attribute, shape: list[int]) -> Attribute:
    """A shape, written as the old one was."""
    import numpy as np

    if isinstance(old, TensorValue):
        return replace(old, data=BytesData(np.array(shape, old.type.dtype.value).tobytes()))
    return type(old)(shape) if isinstance(old, (tuple, list)) else shape[0]


def _everywhere(value: TensorValue, magnitude: float) -> BytesData:
    import numpy as np

    old = to_numpy(value.type, value.data)
    return BytesData(np.where(old < 0, -magnitude, magnitude).astype(old.dtype).tobytes())
