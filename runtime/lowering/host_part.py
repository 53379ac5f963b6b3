"""What is left to the session of a graph: numbers and averages that it computes on the host when the rest has run.

The numbers are Python's: with numpy's, and a state of its warnings, the session took half as long again. A product of
two float32 is exact in the 53 bits of a Python float, and a sum is so nearly exact that rounding it once more gives the
bits of a kernel.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from ctypes import c_float, c_int32, c_int64
from dataclasses import dataclass
from itertools import groupby
from typing import Any, NamedTuple

from ...ir.core.attributes import TensorValue
from ...ir.core.data import to_numpy
from ...ir.core.graph import Constant, Graph, Node, State, Value, tensor_type
from ...ir.core.primitives import Family, named
from ...ir.core.types import DType, TensorType
from ...ir.core.walk import result_value
from .measures import is_constant
from .moves import moves_of

Pairs = tuple[tuple[str, str], ...]
"""Averages and their weights, by name."""
COMPUTED: Mapping[str, Callable[..., Any]] = {
    "Add": operator.add,
    "Sub": operator.sub,
    "Mul": operator.mul,
    "Minimum": lambda a, b: a if a < b else b,
    "Maximum": lambda a, b: a if a > b else b,
    "Select": lambda where, a, b: a if where else b,
    "Greater": operator.gt,
    "GreaterEqual": operator.ge,
    "Less": operator.lt,
    "LessEqual": operator.le,
    "LogicalAnd": lambda a, b: a and b,
    "LogicalOr": lambda a, b: a or b,
    "LogicalNot": operator.not_,
    "TensorMove": lambda value: value,
}
"""Primitives on numbers, with the bits of MindSpore's kernels once their results are rounded (:func:`kernel`). Of these
kernels Minimum and Maximum give the second operand where either is NaN. (A quotient by zero has other bits.)"""
_ROUNDED = named(Family.SUM, Family.DIFFERENCE, Family.PRODUCT)
"""Those whose results may have no place in the type of their operands."""
_STORED: Mapping[DType, Any] = {DType.FLOAT32: c_float, DType.INT32: c_int32, DType.INT64: c_int64, DType.BOOL: None}
"""By the types of numbers that the host computes: what rounds one, or lets it overflow, as memory of the type would."""


def is_number(value: Value) -> bool:
    """Whether a value is one number of a type that the host computes."""
    type_ = value.type
    return isinstance(type_, TensorType) and type_.is_static and type_.size == 1 and type_.dtype in _STORED


def kernel(name: str, dtype: DType) -> Callable[..., Any]:
    """What computes one of :data:`COMPUTED` whose result has this type."""
    compute, stored = COMPUTED[name], _STORED[dtype]
    if name not in _ROUNDED or stored is None:
        return compute
    return lambda *operands: stored(compute(*operands)).value


@dataclass(slots=True)
class HostNumber:
    """A result that the host computed, of one element. A Tensor is made of it where somebody asks for one: that takes
    six times as long as this."""

    value: Any
    type: TensorType

    @property
    def size(self) -> int:
        return 1

    def item(self) -> Any:
        return self.value

    def asnumpy(self) -> Any:
        import numpy as np

        return np.full(self.type.shape, self.value, self.type.dtype.value)

    def tensor(self) -> Any:
        import mindspore

        return mindspore.Tensor.from_numpy(self.asnumpy())


class HostPart:
    """``graph`` takes numbers that the device returns at the places ``taken``, reads states as they are before it
    writes, writes numbers and averages to states, and returns a tuple. ``results``: for each result of the whole its
    place, and whether it is the host that returns it."""

    def __init__(self, graph: Graph, taken: Sequence[int], results: Sequence[tuple[int, bool]]) -> None:
        self.graph = graph
        self.results = tuple(results)
        self.states: tuple[str, ...] = ()
        """All that it reads or writes, but for averages and their weights."""
        self._numbers: list[Any] = []
        """The constants; what is computed follows them."""
        self._given = tuple(taken)
        """The places of the numbers of the device among its results."""
        self._reads: list[str] = []
        self._steps: list[tuple[Callable[..., Any], tuple[int, ...]]] = []
        self._writes: list[tuple[str, int]] = []
        self._returned: list[tuple[int, TensorType]] = []
        self._moves: list[tuple[Pairs, tuple[int, ...], bool]] = []
        """The averages that move by the same numbers, with the places of these, and where they do not move."""
        self._prepare()

    def _prepare(self) -> None:
        """Gives each value its place among the numbers, in the order in which :meth:`run` gets and computes them."""
        nodes = list(self.graph)
        assigned = {node: moves_of(node) for node in nodes if node.op.name == "Assign"}
        moves = [move for found in assigned.values() for move in found]
        numbers = [node for node in nodes if isinstance(node.type, TensorType) and node.type.size == 1]
        constants = dict.fromkeys(v for node in nodes for v in node.operands if is_constant(v))
        loads = [node for node in numbers if node.op.name == "Load"]
        computed = [node for node in numbers if node.op.name in COMPUTED]
        places = {v: i for i, v in enumerate([*constants, *self.graph.inputs, *loads, *computed])}
        self._numbers = [_number(value) for value in constants]
        self._reads = [_state(node).name for node in loads]
        self._steps = [
            (kernel(node.op.name, tensor_type(node).dtype), tuple(places[v] for v in node.operands))
            for node in computed
        ]
        alone = [node for node, found in assigned.items() if not found]
        self._writes = [(_state(node).name, places[node.operand(1)]) for node in alone]
        self.states = tuple(dict.fromkeys([*self._reads, *(name for name, _ in self._writes)]))
        by = groupby(moves, lambda move: (tuple(places[v] for v in move.numbers), move.skips))
        self._moves = [(tuple((m.average.name, m.weight.name) for m in found), *key) for key, found in by]
        results = result_value(self.graph)
        assert isinstance(results, Node)
        self._returned = [(places[value], tensor_type(value)) for value in results.operands]

    def run(self, results: Sequence[Any], read: Callable[[str], Any]) -> Finished:
        """Computes everything but averages from the ``results`` of the device and the numbers that states hold."""
        numbers = [*self._numbers, *[results[i].item() for i in self._given], *map(read, self._reads)]
        for compute, operands in self._steps:
            numbers.append(compute(*[numbers[i] for i in operands]))
        moves = []
        for pairs, places, skips in self._moves:
            kept, taken, *condition = (numbers[i] for i in places)
            if not condition or bool(condition[0]) != skips:
                moves.append((pairs, kept, taken))
        written = [(name, numbers[i]) for name, i in self._writes]
        return Finished(written, [HostNumber(numbers[i], type_) for i, type_ in self._returned], moves)


class Finished(NamedTuple):
    """What states become, by name; the results of the host; and the averages that move
    (:class:`runtime.engine.moving.Moves`), with what stays of them and what they take of their weights."""

    written: Sequence[tuple[str, Any]]
    returned: Sequence[HostNumber]
    moves: Sequence[tuple[Pairs, Any, Any]]


def _number(value: Value) -> Any:
    assert isinstance(value, Constant)
    assert isinstance(value.value, TensorValue)
    return to_numpy(value.value.type, value.value.data).item()


def _state(node: Node) -> State:
    state = node.operand(0)
    assert isinstance(state, State)
    return state
