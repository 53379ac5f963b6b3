"""What is left to the session of a graph: numbers that it computes on the host when the rest has run."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ...ir.core.attributes import TensorValue
from ...ir.core.data import to_numpy
from ...ir.core.graph import Constant, Graph, Node, State, Value, tensor_type
from ...ir.core.types import TensorType
from ...ir.core.walk import result_value

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
    "LogicalAnd": operator.and_,
    "LogicalOr": operator.or_,
    "LogicalNot": operator.not_,
    "TensorMove": lambda value: value,
}
"""Primitives on numbers of numpy, with the bits of MindSpore's kernels, of which Minimum and Maximum give the second
operand where either is NaN. (A quotient by zero has other bits.)"""


class HostPart:
    """``graph`` takes numbers that the device returns at the places ``taken``, reads states as they are before it
    writes, writes states, and returns a tuple. ``results``: for each result of the whole its place, and whether it is
    the host that returns it."""

    def __init__(self, graph: Graph, taken: Sequence[int], results: Sequence[tuple[int, bool]]) -> None:
        self.graph = graph
        self.taken = tuple(taken)
        self.results = tuple(results)
        self._numbers: list[Any] = []
        """The constants; what is computed follows them."""
        self._reads: list[str] = []
        self._steps: list[tuple[Callable[..., Any], tuple[int, ...]]] = []
        self._writes: list[tuple[str, int]] = []
        self._returned: list[tuple[int, tuple[int, ...]]] = []
        self._prepare()

    def _prepare(self) -> None:
        """Gives each value its place among the numbers, in the order in which :meth:`run` gets and computes them."""
        nodes = list(self.graph)
        constants = dict.fromkeys(v for node in nodes for v in node.operands if is_constant(v))
        loads = [node for node in nodes if node.op.name == "Load"]
        computed = [node for node in nodes if node.op.name in COMPUTED]
        places = {v: i for i, v in enumerate([*constants, *self.graph.inputs, *loads, *computed])}
        self._numbers = [_number(value) for value in constants]
        self._reads = [_state(node).name for node in loads]
        self._steps = [(COMPUTED[n.op.name], tuple(places[v] for v in n.operands)) for n in computed]
        self._writes = [(_state(node).name, places[node.operand(1)]) for node in nodes if node.op.name == "Assign"]
        results = result_value(self.graph)
        assert isinstance(results, Node)
        self._returned = [(places[value], tensor_type(value).shape) for value in results.operands]

    def run(self, given: Sequence[Any], read: Callable[[str], Any]) -> tuple[dict[str, Any], list[Any]]:
        """What states become, by name, and the results of the host as arrays of their shapes, from the numbers of the
        device and of states."""
        import numpy as np

        numbers = [*self._numbers, *given, *map(read, self._reads)]
        for compute, operands in self._steps:
            numbers.append(compute(*[numbers[i] for i in operands]))
        return {name: numbers[i] for name, i in self._writes}, [np.full(s, numbers[i]) for i, s in self._returned]


def is_constant(value: Value) -> bool:
    """Whether a value is a constant tensor of one number."""
    if not (isinstance(value, Constant) and isinstance(value.value, TensorValue)):
        return False
    return isinstance(value.type, TensorType) and value.type.size == 1


def _number(value: Value) -> Any:
    assert isinstance(value, Constant)
    assert isinstance(value.value, TensorValue)
    return to_numpy(value.value.type, value.value.data).reshape(())[()]


def _state(node: Node) -> State:
    state = node.operand(0)
    assert isinstance(state, State)
    return state
