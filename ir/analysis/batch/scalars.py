"""Numbers in a graph that are the batch size, or one over it: divisors of means.

A reduction that is a mean divides by itself. Numbers stand elsewhere: in the derivative of a mean, and where the source
says ``loss.sum() / x.shape[0]``. The first kind is proven by the mark that links a node of the backward part with the
forward node that it is the derivative of. Of the second kind the file says no more than the number, so unless the
caller decides about them all, such nodes are stuck.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from math import prod

from ...core.attributes import Number, TensorValue
from ...core.data import to_numpy
from ...core.graph import Constant, Graph, Node, Value
from ...core.names import BACKWARD_ID, FORWARD_ID
from ...core.op import CALL
from ...core.primitives import Family, named
from ...core.types import DType, TensorType
from ..derivative.linear_operands import linear_in
from ..training.network import BACKWARD, FORWARD
from .products import reduced_axes
from .spans import NONE
from .sweep import Batch, Site, holds, shape_of, tensors

Step = Callable[[Node], list[Node]]
DIVIDES = named(Family.QUOTIENT) | {"DivNoNan"}
SCALES = DIVIDES | named(Family.PRODUCT)
MEANS = named(Family.MEAN)
_NO_SUM = (
    named(Family.MEAN, Family.EXTREME, Family.LOGICAL, Family.ORDER)
    | named(Family.BATCH_NORM, in_place=True)
    | {"SparseSoftmaxCrossEntropyWithLogits", "NLLLoss", "Print"}
)
"""Primitives that take the batch and give a number, but no sum that somebody divides by the batch size later."""
_MEAN_OF_KERNEL = 1
"""How kernels spell ``reduction="mean"`` as a constant operand."""


@dataclass(slots=True)
class Scalars:
    """``counts``: the number at (node, operand) is ±count or, where negative, ±1/|count|, and the count a multiple of
    the batch. ``stuck``: nodes whose number may be one, which nothing proves."""

    counts: dict[Site, int] = field(default_factory=dict)
    stuck: dict[Node, str] = field(default_factory=dict)


def batch_scalars(graph: Graph, batch: Batch, parts: Mapping[Node, str], doubtful: str) -> Scalars:
    """``doubtful``: whether numbers that nothing proves are the ``batch``'s, ``literal``, or an error (``refuse``)."""
    return _Search(graph, batch, parts, doubtful).run()


class _Search:
    def __init__(self, graph: Graph, batch: Batch, parts: Mapping[Node, str], doubtful: str):
        self.batch = batch
        self.doubtful = doubtful
        self.nodes = list(graph.all_nodes())
        trained = any(part == BACKWARD for part in parts.values())
        self.parts: Mapping[Node, str] = parts if trained else dict.fromkeys(self.nodes, FORWARD)
        self.found = Scalars()
        self.literal: set[float] = set()
        """Numbers of the forward part, and one over them, that are no batch size."""
        self.forward: dict[object, list[Node]] = {}

    def run(self) -> Scalars:
        sums = {n: count for n in self.nodes if self.parts.get(n) == FORWARD and (count := self._summed(n))}
        near = self._neighbours(sums, (_takers, _givers))
        after_means = self._neighbours({n: 1 for n in self.nodes if self._is_mean(n)}, (_takers,))
        for node in self.nodes:
            if self.parts.get(node) != FORWARD:
                continue
            if (number := node.primal.get(FORWARD_ID)) is not None:
                self.forward.setdefault(number, []).append(node)
            for i, value in numbers(node):
                count = self._count(value)
                if not count or node.op.name not in SCALES:
                    pass
                elif self._divides(node, i, count) and near.get(node, 1) % abs(count) == 0:
                    self._doubt(node, i, count, "divides a sum over the batch, or what goes into one")
                elif node in after_means and not self._divides(node, i, count):
                    self._doubt(node, i, count, "multiplies a mean over the batch")
                if (node, i) not in self.found.counts:
                    self.literal.update((abs(value), _reciprocal(abs(value))))
        for node in self.nodes:
            if self.parts.get(node) == BACKWARD:
                self._backward(node)
        if self.doubtful != "batch":
            for (node, i), step in self.batch.steps.items():
                self.found.stuck[node] = (
                    f"its constant operand {i} is 0, {step}, {2 * step}, … along the batch: that may number the "
                    "samples or not. constants=batch goes on with all such numbers"
                )
        return self.found

    def _count(self, value: float) -> int:
        """The multiple of the batch that a number is (negative: that it is one over); 0 if it is none."""
        size, magnitude = self.batch.size, abs(value)
        if magnitude == 0 or magnitude != magnitude or magnitude == float("inf"):
            return 0
        if magnitude >= size:
            return int(magnitude) if magnitude == int(magnitude) and int(magnitude) % size == 0 else 0
        count = round(1 / magnitude) if magnitude > 1e-12 else 0
        return -count if count and count % size == 0 and _reciprocal(count) == _single(magnitude) else 0

    def _summed(self, node: Node) -> int:
        """How many elements a node adds up over the batch; 0 if it does not."""
        name = node.op.name
        if name in _NO_SUM or node.op is CALL or holds(self.batch.labels.get(node, NONE) or NONE):
            return 0
        taken = [shape for i, path, shape in tensors(node) if not path and self.batch.labels.get(node.operand(i))]
        reduction = node.op.attributes.get("reduction")
        if not taken or not isinstance(node.type, TensorType) or reduction == "mean":
            return 0
        last = node.operand(node.num_operands - 1)
        if name.endswith("Loss") and isinstance(last, Constant) and last.value == _MEAN_OF_KERNEL:
            return 0
        return max(map(prod, taken))

    def _is_mean(self, node: Node) -> bool:
        """Whether a node takes the batch and gives a mean over it."""
        taken = any(self.batch.labels.get(v) for v in node._operands)
        gives = holds(self.batch.labels.get(node, NONE) or NONE)
        return (
            self.parts.get(node) == FORWARD and taken and not gives and not self._summed(node) and node.op is not CALL
        )

    def _divides(self, node: Node, i: int, count: int) -> bool:
        """Whether the number at operand ``i`` makes the result smaller."""
        return (count > 0) == (node.op.name in DIVIDES and i > 0)

    def _neighbours(self, start: Mapping[Node, int], steps: Sequence[Step]) -> dict[Node, int]:
        """The nodes of the forward part that those of ``start`` are multiples of, or are multiples of them, with the
        largest number that ``start`` has for such a node."""
        near: dict[Node, int] = {}
        for step in steps:
            reached = dict(start)
            pending = list(start)
            while pending:
                node = pending.pop()
                for other in step(node):
                    if self.parts.get(other) == FORWARD and reached.get(other, 0) < reached[node]:
                        reached[other] = reached[node]
                        pending.append(other)
            for node, count in reached.items():
                near[node] = max(near.get(node, 0), count)
        return near

    def _doubt(self, node: Node, i: int, count: int, what: str) -> None:
        if self.doubtful == "batch":
            self.found.counts[node, i] = count
        elif self.doubtful == "refuse":
            spelled = str(count) if count > 0 else f"1/{-count}"
            self.found.stuck[node] = (
                f"its constant operand {i} is {spelled} and {what}: that may be the batch size or not. Say which for "
                f"all such numbers, constants=batch or constants=literal"
            )

    def _backward(self, node: Node) -> None:
        linear = {i for positions in linear_in(node) or () for i in positions}
        for i, value in numbers(node):
            count = self._count(value)
            divides = self._divides(node, i, count) if node.op.name in SCALES else count < 0
            if not count or not (node.op.name in SCALES or i in linear):
                continue
            means = self._means(node)
            if divides and any(abs(count) == self._averaged(mean) for mean in means):
                self.found.counts[node, i] = count
            elif abs(value) not in self.literal and (not means or any(map(self._averaged, means))):
                known = {abs(c) for c in self.found.counts.values()}
                if abs(count) in known:
                    self.found.counts[node, i] = count
                elif divides:
                    self._doubt(node, i, count, "scales a derivative")

    def _means(self, node: Node) -> list[Node]:
        """The means that a node of the backward part is the derivative of."""
        number = node.primal.get(BACKWARD_ID)
        return [n for n in self.forward.get(number, ()) if n.op.name in MEANS] if number is not None else []

    def _averaged(self, mean: Node) -> int:
        """How many elements a mean is taken of, the batch being among its axes."""
        axes, _ = reduced_axes(mean)
        shape = shape_of(mean.operand(0).type)
        held = self.batch.labels.get(mean.operand(0)) or NONE
        return prod(shape[k] for k in axes) if axes & set(held) else 0


def numbers(node: Node) -> Iterator[tuple[int, float]]:
    """(operand, number) of each constant operand that is one number, or a tensor of one number everywhere."""
    for i, operand in enumerate(node._operands):
        if isinstance(operand, Constant) and (value := number_of(operand)) is not None:
            yield i, value


def number_of(constant: Constant) -> float | None:
    value = constant.value
    if isinstance(value, Number):
        return float(value.value)
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        return float(value)
    if not isinstance(value, TensorValue) or value.type.dtype in (DType.BOOL, DType.STRING, DType.BFLOAT16):
        return None
    if not value.type.size or "complex" in value.type.dtype.value:
        return None
    array = to_numpy(value.type, value.data).reshape(-1)
    return float(array[0]) if (array == array[0]).all() else None


def _takers(node: Node) -> list[Node]:
    """The users that are linear in a value."""
    return [u for u, i in node.use_sites() if any(i in positions for positions in linear_in(u) or ())]


def _givers(node: Node) -> list[Node]:
    """The operands that a value is linear in."""
    positions = {i for alternative in linear_in(node) or () for i in alternative}
    values: list[Value] = [node.operand(i) for i in positions if i < node.num_operands]
    return [v for v in values if isinstance(v, Node)]


def _single(value: float) -> float:
    return float(struct.unpack("<f", struct.pack("<f", value))[0])


def _reciprocal(value: float) -> float:
    return _single(1 / value) if value and abs(value) > 1e-30 else 0.0
