"""Which axes of every value of a graph hold the batch, starting from its inputs.

Sweeps over the nodes until nothing changes: forward by the rules of :mod:`.rules`, and backward where a value that
holds the batch meets one of the same extent that does not come from an input (zeros, ones, constants made at export):
that one must grow with the batch. What cannot be followed is noted, with the reason, and what depends on it left
alone, so that all reasons are found at once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ...core.attributes import TensorValue
from ...core.data import to_numpy
from ...core.graph import Constant, Graph, Input, Node, State, Value
from ...core.sites import site
from ...core.types import TensorType, TupleType, Type, is_monad
from ...core.wording import counted
from ..functions.closures import Closures
from .spans import NONE, Axes, Span, Stuck, joined

if TYPE_CHECKING:
    import numpy as np

Label = Any
"""The axes of a tensor; of a tuple, a tuple of labels (or NONE: none of its elements holds the batch); LOST behind a
node that could not be followed."""
LOST = None
Site = tuple[Node, int]
_MOST_SWEEPS = 64


@dataclass(slots=True)
class Batch:
    """The findings. ``labels`` by value, without those that hold no batch; ``constants``: the axes that a tensor
    constant must have at this use (node, operand), and ``steps`` by how much integers that begin with 0 grow along that
    axis, which may number the samples; ``ends``: the axes of a StridedSlice whose end is the batch's;
    ``stuck``: the nodes that cannot be rewritten, with the reason."""

    size: int
    labels: dict[Value, Label] = field(default_factory=dict)
    constants: dict[Site, Axes] = field(default_factory=dict)
    steps: dict[Site, int] = field(default_factory=dict)
    ends: dict[Node, set[int]] = field(default_factory=dict)
    stuck: dict[Node, str] = field(default_factory=dict)


Rules = tuple[Callable[["Analysis", Node], Label], Callable[["Analysis", Node, Axes, tuple[int, ...]], None]]
"""Moves the batch forward through a node; makes a value grow with it (:mod:`.rules`)."""


class Analysis:
    """The state of the sweeps, and what rules ask."""

    def __init__(self, graph: Graph, inputs: Mapping[str, int], size: int, rules: Rules):
        self.graph = graph
        self.propagate, self.grow = rules
        self.size = size
        self.found = Batch(size)
        self.changed = False
        self.settled = False
        """Whether nothing changes any more: what is missing now stays missing."""
        self.closures = Closures(graph)
        self._entered: set[tuple[Node, tuple[int, ...]]] = set()
        self.forced: dict[Value, Label] = {}
        for value in graph.inputs:
            if value.name in inputs:
                self.found.labels[value] = {inputs[value.name]: Span()}

    def run(self) -> Batch:
        for _ in range(_MOST_SWEEPS):
            self.changed = False
            self.found.stuck.clear()
            before = dict(self.found.labels)
            # What was lost may have been found since, also in a loop, where each would wait for the other.
            self.found.labels = {v: label for v, label in before.items() if label is not LOST}
            for part in self.graph.all_graphs():
                if part is not self.graph:
                    self._bind(part)
                for node in part:
                    try:
                        label = LOST if self._lost(node) else self.propagate(self, node)
                    except Stuck as reason:
                        self.found.stuck[node] = str(reason)
                        label = LOST
                    self.put(node, label)
            if not self.changed and self.found.labels == before:
                if self.settled:
                    break
                self.settled = True
        return self.found

    # -- labels ----------------------------------------------------------------------------------------------

    def label(self, value: Value) -> Label:
        return self.found.labels.get(value, NONE)

    def of(self, node: Node, i: int, path: Sequence[int] = ()) -> Axes:
        """The axes of operand ``i``, or of an element of it."""
        value = node.operand(i)
        if isinstance(value, Constant) and not path:
            return self.found.constants.get((node, i), NONE)
        label = self.label(value)
        for k in path:
            label = element(label, k)
        return NONE if label is LOST else label

    def put(self, value: Value, label: Label) -> None:
        forced = self.forced.get(value)
        if forced is not None and label is not LOST:
            label = label or forced
        if label is LOST or holds(label):
            self.found.labels[value] = label
        else:
            self.found.labels.pop(value, None)

    def _lost(self, node: Node) -> bool:
        if node.op.name == "UpdateState":
            return False
        carried = node.operands[:1] if node.op.name == "Depend" else node._operands
        return any(self.found.labels.get(v, NONE) is LOST for v in carried)

    def _bind(self, function: Graph) -> None:
        """The inputs of a function hold what any of its callers passes."""
        for formal in function.inputs:
            sites = list(self.closures.bound.get(formal, ()))
            labels = [self.of(node, i) for node, i in sites]
            known = [x for x in labels if holds(x)]
            if not known or is_monad(formal.type):
                continue
            if any(x != known[0] for x in known):
                self.found.stuck.update(dict.fromkeys((n for n, _ in sites), "its callees get the batch in two ways"))
                continue
            for (node, i), label in zip(sites, labels, strict=True):
                if not holds(label) and isinstance(formal.type, TensorType):
                    try:
                        self.demand(node, i, known[0])
                    except Stuck as reason:
                        self.found.stuck[node] = str(reason)
            self.put(formal, known[0])

    # -- what must grow --------------------------------------------------------------------------------------

    def demand(self, user: Node, i: int, axes: Axes, path: Sequence[int] = ()) -> None:
        """Operand ``i`` of ``user``, or an element of it, has to hold the batch on ``axes``. Stuck where it cannot."""
        value = user.operand(i)
        have = self.of(user, i, path)
        if all(have.get(a) == s for a, s in axes.items()) or self.label(value) is LOST:
            return
        want = joined(have, axes)
        if isinstance(value, Constant):
            self._grow_constant(user, i, value, want)
        else:
            self._grow(value, want, tuple(path))

    def demand_behind(self, node: Node, moves: Mapping[int, int], axes: Axes, otherwise: str) -> None:
        """Operand 0 has to hold the batch on the axes that ``moves`` (of the operand, to the result's) brings to
        ``axes``. Stuck, with the node and ``otherwise``, where there are none."""
        back = {j: k for k, j in moves.items()}
        if not set(axes) <= set(back):
            raise Stuck(f"{site(node)} {otherwise}")
        self.demand(node, 0, {back[j]: s for j, s in axes.items()})

    def demand_label(self, value: Value, label: Label, path: tuple[int, ...] = ()) -> None:
        """The same for what a function returns."""
        if isinstance(label, tuple):
            for k, part in enumerate(label):
                self.demand_label(value, part, (*path, k))
            return
        have = self.label(value)
        for k in path:
            have = element(have, k)
        if any(have.get(a) != s for a, s in label.items()):
            self._grow(value, joined(have, label), path)

    def grow_functions(self, call: Node, axes: Axes, path: tuple[int, ...]) -> None:
        """The same for an element of what a call returns."""
        if (call, path) in self._entered:
            return  # a loop calls itself
        self._entered.add((call, path))
        label: Label = axes
        for k in reversed(path):
            label = (*(NONE for _ in range(k)), label)
        for function in self.closures.targets.get(call, ()):
            self.demand_label(function.result, label)
        self._entered.discard((call, path))

    def _grow(self, value: Value, axes: Axes, path: tuple[int, ...]) -> None:
        if not isinstance(value, Node):
            kind = "state" if isinstance(value, State) else "input" if isinstance(value, Input) else "value"
            raise Stuck(f"{kind} '{value.name}' ({value.type}) has the batch's extent but does not grow with it")
        self.grow(self, value, axes, path)

    def force(self, value: Value, axes: Label) -> None:
        """Notes a growth that ``grow`` has found possible."""
        self.forced[value] = axes
        self.put(value, axes)

    def _grow_constant(self, user: Node, i: int, constant: Constant, axes: Axes) -> None:
        value = constant.value
        if not isinstance(value, TensorValue):
            raise Stuck(f"its operand {i} is the constant {str(value)[:40]}")
        for axis, span in axes.items():
            if value.type.shape[axis] != span.extent(self.size):
                raise Stuck(f"its constant operand {i} ({value.type}) does not have the batch's extent on axis {axis}")
            array = to_numpy(value.type, value.data)
            if (array == array.take([0], axis=axis)).all():
                continue
            step = _step(array, axis) if len(axes) == 1 else 0
            if not step:
                raise Stuck(
                    f"its constant operand {i} ({value.type}) was made for {counted(self.size, 'sample')}: its "
                    "values differ along the batch"
                )
            self.found.steps[user, i] = step
        if self.found.constants.get((user, i)) != axes:
            self.found.constants[user, i] = axes
            self.changed = True


def _step(array: np.ndarray, axis: int) -> int:
    """By how much integers that begin with 0 grow along an axis, each by the same, if there are three at least (any two
    do); else 0."""
    import numpy as np

    along = np.moveaxis(array, axis, -1).reshape(-1, array.shape[axis])
    if array.dtype.kind not in "iu" or along.shape[1] < 3:
        return 0
    step = int(along[0, 1])
    return step if step > 0 and (along == np.arange(along.shape[1]) * step).all() else 0


def holds(label: Label) -> bool:
    """Whether any axis of the value holds the batch."""
    return any(map(holds, label)) if isinstance(label, tuple) else bool(label)


def element(label: Label, k: int) -> Label:
    """The label of an element of a tuple."""
    return label[k] if isinstance(label, tuple) else NONE


def shape_of(type_: Type) -> tuple[int, ...]:
    return type_.shape if isinstance(type_, TensorType) else ()


def tensors(node: Node) -> Iterator[tuple[int, tuple[int, ...], tuple[int, ...]]]:
    """(operand, path, shape) of each tensor among the operands, those in a tuple included; not those without axes."""
    for i, value in enumerate(node._operands):
        if isinstance(value.type, TensorType) and value.type.shape:
            yield i, (), value.type.shape
        elif isinstance(value.type, TupleType) and not isinstance(value, Constant):
            for k, t in enumerate(value.type.elements):
                if isinstance(t, TensorType) and t.shape:
                    yield i, (k,), t.shape
