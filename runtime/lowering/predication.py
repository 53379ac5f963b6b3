"""On CPU: updates that an overflow skips always run, with operands by which nothing changes where they are skipped.

A Switch costs 7 µs or more for each weight, slot and gradient that it hands to its function: more than half a step of
a small network. A rate of 0, a momentum of 1 and a gradient of zeros leave every bit of an ApplyMomentum's state as it
is, but that a zero may lose its sign. Gradients become zeros in the product that clips or unscales them. One without
such a product gets one, where all of these cost less than the Switch. A function that does anything else stays.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Iterator, Mapping
from dataclasses import dataclass, field

from ...ir.analysis.effects.effect_list import list_effects
from ...ir.analysis.effects.state_access import Effect
from ...ir.analysis.effects.tokens import orders_only
from ...ir.analysis.functions.calls import forget_unreached
from ...ir.builders.reduce import BIG
from ...ir.core.attributes import TensorValue, bits, scalar_tensor
from ...ir.core.data import from_numpy
from ...ir.core.graph import Constant, Graph, Node, State, Value
from ...ir.core.op import CALL
from ...ir.core.predicates import is_random, written_operands
from ...ir.core.primitives import CPU, Family, facts
from ...ir.core.types import DType, TensorType
from ...ir.core.walk import walk
from ...ir.core.wording import counted
from ...ir.rewrite.effects.editing import Effects
from ...ir.rewrite.graft import inline
from .conditional import Conditional, conditional
from .context import Context
from .measures import is_scaling, reads_state

STILL: Mapping[str, Mapping[int, float]] = {
    "Assign": {},
    "AssignAdd": {1: 0.0},
    "AssignSub": {1: 0.0},
    "ApplyMomentum": {2: 0.0, 3: 0.0, 4: 1.0},
    "Adam": {3: 0.0, 4: 0.0, 5: 0.0, 6: 1.0, 7: 1.0, 8: 1.0, 9: 0.0},
    "AdamWeightDecay": {3: 0.0, 4: 1.0, 5: 1.0, 6: 1.0, 8: 0.0},
}
"""Operands by which a kernel changes nothing: a rate of 0, moments that keep all of themselves, a gradient of zeros. An
epsilon of 1 keeps the quotient finite that the rate multiplies, and powers of 0 keep the divisor from being zero: those
of a step count that was not advanced are 1. What is assigned becomes what is there."""
_ARGUMENT, _KERNEL, _ELEMENT = 7.0, 4.0, 0.0006
"""Microseconds of an argument of a Switch, of a kernel, of an element of a product (docs/mindir.md)."""
_SELECTED = BIG
"""Elements up to which a tensor is selected, which takes three times as long as a product."""


def applies(graph: Graph, context: Context) -> bool:
    return context.target == CPU and any(True for _ in _conditional_updates(graph))


def run(graph: Graph, context: Context) -> str:
    writes = 0
    for update in list(_conditional_updates(graph)):
        writes += _move(graph, update)
    forget_unreached(graph)
    return f"{counted(writes, 'write')} that may be skipped made to change nothing then"


def _conditional_updates(graph: Graph) -> Iterator[Conditional]:
    """The calls that update or do nothing, can be told to change nothing, and gain by it."""
    for call in graph:
        update = conditional(call)
        if update is None or not _is_overflow(update.condition):
            continue
        if _can_be_still(update) and _pays(update):
            yield update


def _is_overflow(condition: Value) -> bool:
    """Whether a condition asks for infinities or NaN, which is seldom so. What is left out more often stays behind its
    Switch: measurements, averages, the update at the end of a cycle."""

    def number(node: Node) -> list[Node]:
        single = isinstance(node.type, TensorType) and node.type.size == 1
        return [v for v in node.operands if isinstance(v, Node)] if single else []

    asked = walk([condition] if isinstance(condition, Node) else [], number)
    return any(facts(node.op).family in (Family.FINITE, Family.OVERFLOWED, Family.STATUS) for node in asked)


def _can_be_still(update: Conditional) -> bool:
    """Whether each write is to a state and has operands by which it changes nothing."""
    given = update.given
    if any(node.op is CALL or is_random(node) for node in update.function):
        return False
    for effect in list_effects(update.function).effects:
        node = effect.node
        if effect.passive and node.op.name == "Load":
            continue
        written = [given.get(node.operand(i)) for i in written_operands(node)]
        if node.op.name not in STILL or not all(isinstance(state, State) for state in written):
            return False
        if not all(_is_plain(node.operand(i)) for i in _changed(node)):
            return False
    return True


def _changed(node: Node) -> tuple[int, ...]:
    return (1,) if node.op.name == "Assign" else tuple(STILL[node.op.name])


def _is_plain(value: Value) -> bool:
    """Whether a value can be selected, or multiplied by a number."""
    if isinstance(value, Constant) and isinstance(value.value, float):
        return True
    type_ = value.type
    if not isinstance(type_, TensorType) or not type_.is_static:
        return False
    return type_.dtype in (DType.FLOAT32, DType.FLOAT16) or (type_.dtype in _INTEGERS and type_.size <= _SELECTED)


_INTEGERS = (DType.INT32, DType.INT64)


def _pays(update: Conditional) -> bool:
    """Whether the products that are new, and what is selected, take less time than the Switch."""
    given = update.given
    cost = 0.0
    for effect in list_effects(update.function).writes():
        for i in _changed(effect.node):
            value = effect.node.operand(i)
            size = value.type.size if isinstance(value.type, TensorType) else 1
            if size == 1:
                continue
            if effect.node.op.name == "Assign" and size > _SELECTED:
                return False
            source = given.get(value, value)
            if not (_is_product(source) and _taken_once(source) and _taken_once(value)):
                cost += _KERNEL + size * _ELEMENT
    return cost < len(update.arguments) * _ARGUMENT


def _taken_once(value: Value) -> bool:
    return sum(not orders_only(*use) for use in value.use_sites()) == 1


def _is_product(value: Value) -> bool:
    """Whether a value is a product with a number."""
    return isinstance(value, Node) and value.op.name == "Mul" and is_scaling(value)


def _move(graph: Graph, update: Conditional) -> int:
    """Puts the function in the place of its call; returns how many writes it has."""
    fx = Effects(graph)
    at = next(i for i, effect in enumerate(fx.list) if effect.node is update.call)
    others = len(fx.list) - 1
    inline(fx, update.call, update.branch)
    count = len(fx.list) - others
    before, moved, after = fx.list[:at], fx.list[at : at + count], fx.list[at + count :]
    condition, skips = update.condition, update.skips
    while isinstance(condition, Node) and condition.op.name == "LogicalNot":
        condition, skips = condition.operand(0), not skips
    still = _Still(fx, condition, skips, {state for effect in fx.list for state in effect.writes})
    fx.list = before
    for effect in moved:
        if not effect.passive:
            still.hold(effect)
        fx.list.append(effect)
    fx.list.extend(after)
    fx.commit()
    return sum(not effect.passive for effect in moved)


@dataclass(slots=True)
class _Still:
    """Makes operands that change nothing where ``condition`` is ``skips``. Reads of states are appended to ``fx``; of
    states that are ``written`` each reads what is there by then."""

    fx: Effects
    condition: Value
    skips: bool
    written: Collection[Value]
    made: dict[tuple[Hashable, float], Value] = field(default_factory=dict)

    def hold(self, effect: Effect) -> None:
        node = effect.node
        if node.op.name == "Assign":
            there = self.fx.load(node.operand(0), initial=False)
            node.set_operand(1, self._select(there, node.operand(1), scope=node.scope))
        for i, number in STILL[node.op.name].items():
            node.set_operand(i, self._instead(node.operand(i), number))

    def _instead(self, value: Value, number: float) -> Value:
        """A value, or ``number`` where the update is skipped."""
        if value in self.written:
            return self._chosen(self.fx.load(value, initial=False), number)
        key = (bits(value.value) if isinstance(value, Constant) else value, number)
        if key not in self.made:
            read = self.fx.load(value) if isinstance(value, State) else value
            small = not isinstance(value.type, TensorType) or value.type.size == 1 or value.type.dtype in _INTEGERS
            self.made[key] = self._chosen(read, number) if small else self._product(read)
        return self.made[key]

    def _chosen(self, value: Value, number: float) -> Value:
        graph = self.fx.graph
        if not isinstance(value.type, TensorType):
            assert isinstance(value, Constant)
            assert isinstance(value.value, float)
            value = graph.constant(scalar_tensor("float32", value.value))
        assert isinstance(value.type, TensorType)
        return self._select(_full(graph, value.type, number), value)

    def _select(self, still: Value, value: Value, scope: str = "") -> Node:
        both = [still, value] if self.skips else [value, still]
        return self.fx.graph.create("Select", [self.condition, *both], scope=scope)

    def _product(self, value: Value) -> Value:
        """Zeros where the update is skipped, of infinities and NaN too. A product with a number gets another number,
        but for that of an accumulator: a token waits for who reads it."""
        assert isinstance(value.type, TensorType)
        graph, type_ = self.fx.graph, TensorType(value.type.dtype, value.type.shape)
        by: Value = graph.constant(scalar_tensor(type_.dtype, 1.0))
        if isinstance(value, Node) and _is_product(value) and not reads_state(value.operand(0)):
            value, by = value.operands
        return graph.create("MulNoNan", [value, self._instead(by, 0.0)], type_, scope="")


def _full(graph: Graph, type_: TensorType, number: float) -> Value:
    if type_.shape == () and type_.dtype.is_float:
        return graph.constant(scalar_tensor(type_.dtype, number))
    import numpy as np

    return graph.constant(TensorValue(*from_numpy(np.full(type_.shape, number, str(type_.dtype)))))
