"""On CPU: updates that an overflow skips always run, with operands by which nothing changes where they are skipped.

MindSpore hands each weight, slot and gradient over to the function behind a Switch, which takes as long as a kernel
takes to start: more than half a step of a small network. A rate of 0, a momentum of 1 and a gradient of zeros leave
every bit of an ApplyMomentum's state as it is, but that a zero may lose its sign. Gradients become zeros where they are
clipped or unscaled. One that nothing scales gets a product, unless all of these would take longer than the Switch.
A function that does anything else stays.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Iterator, Mapping
from dataclasses import dataclass, field

import numpy as np

from ...ir.analysis.effects.effect_list import list_effects
from ...ir.analysis.effects.state_access import Effect, state_behind
from ...ir.analysis.effects.tokens import orders_only
from ...ir.analysis.functions.calls import forget_unreached, switch_behind
from ...ir.builders.reduce import BIG
from ...ir.core.attributes import TensorValue, bits, scalar_tensor
from ...ir.core.data import from_numpy
from ...ir.core.graph import Constant, Graph, GraphRef, Node, State, Value, tensor_type
from ...ir.core.op import CALL
from ...ir.core.predicates import is_random, written_operands
from ...ir.core.primitives import CPU, VIEWS, Family, facts
from ...ir.core.types import DType, TensorType
from ...ir.core.walk import through, walk
from ...ir.core.wording import counted
from ...ir.rewrite.effects.editing import Effects
from ...ir.rewrite.graft import inline
from .context import Context

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
_SCALINGS = {"Mul": "MulNoNan", "MulNoNan": "MulNoNan", "RealDiv": "DivNoNan"}
"""Primitives that scale a gradient, and those that give the same bits, but zeros where the number is 0, of infinities
and NaN too."""
_TYPES = (DType.FLOAT32, DType.FLOAT16, DType.INT32, DType.INT64)


def applies(graph: Graph, context: Context) -> bool:
    return context.target == CPU and any(True for _ in _updates(graph))


def run(graph: Graph, context: Context) -> str:
    writes = sum(_move(graph, update) for update in list(_updates(graph)))
    forget_unreached(graph)
    return f"{counted(writes, 'write')} that may be skipped made to change nothing then"


@dataclass(frozen=True, slots=True)
class _Update:
    """The ``function`` of ``branch``, which ``call`` runs unless ``condition`` is ``skips``; ``given``: what each of
    its inputs stands for."""

    call: Node
    condition: Value
    skips: bool
    branch: Node
    function: Graph
    given: Mapping[Value, Value]


def _updates(graph: Graph) -> Iterator[_Update]:
    """The calls that update or do nothing, can be told to change nothing, and gain by it."""
    for call in graph:
        update = _update(call)
        if update is not None and _is_overflow(update.condition) and _gains(update):
            yield update


def _update(call: Node) -> _Update | None:
    """A call of one of two functions, of which the other writes nothing, and whose result nobody takes."""
    switch = switch_behind(call.operand(0)) if call.op is CALL and call.num_operands == 1 else None
    if switch is None or not all(orders_only(*use) for use in call.use_sites()):
        return None
    branches = [branch for branch in switch.operands[1:] if isinstance(branch, Node) and branch.op.name == "Partial"]
    called = [branch.operand(0) for branch in branches]
    functions = [v.graph for v in called if isinstance(v, GraphRef) and len(v.uses) == 1]
    does = [bool(list_effects(function).writes()) for function in functions]
    if len(does) < 2 or sum(does) != 1 or any(len(branch.uses) != 1 for branch in branches):
        return None
    branch, function = branches[does.index(True)], functions[does.index(True)]
    given = dict[Value, Value](zip(function.inputs, branch.operands[1:], strict=True))
    return _Update(call, switch.operand(0), does[1], branch, function, given)


def _is_overflow(condition: Value) -> bool:
    """Whether a condition asks for infinities or NaN, which is seldom so. What is left out more often stays behind its
    Switch: measurements, averages, the update at the end of a cycle."""

    def number(node: Node) -> list[Node]:
        single = isinstance(node.type, TensorType) and node.type.size == 1
        return [v for v in node.operands if isinstance(v, Node)] if single else []

    asked = walk([condition] if isinstance(condition, Node) else [], number)
    return any(facts(node.op).family in (Family.FINITE, Family.OVERFLOWED, Family.STATUS) for node in asked)


def _gains(update: _Update) -> bool:
    """Whether each write is to a state and has operands by which it changes nothing, and all that is multiplied or
    selected anew is, for each argument of the Switch, less than what a kernel computes in the time in which one
    starts."""
    if any(node.op is CALL or is_random(node) for node in update.function):
        return False
    new = 0
    for effect in list_effects(update.function).effects:
        node = effect.node
        if effect.passive and node.op.name == "Load":
            continue
        written = [update.given.get(node.operand(i)) for i in written_operands(node)]
        if node.op.name not in STILL or not all(isinstance(state, State) for state in written):
            return False
        for value in (node.operand(i) for i in STILL[node.op.name] or (1,)):
            source = update.given.get(value, value)
            if not _is_plain(value):
                return False
            if not (_scaled_by(source) == "MulNoNan" and _taken_once(source) and _taken_once(value)):
                new += value.type.size if isinstance(value.type, TensorType) else 1
    return new < BIG * len(update.given)


def _is_plain(value: Value) -> bool:
    """Whether a value can be selected, or multiplied by a number."""
    if isinstance(value, Constant) and isinstance(value.value, float):
        return True
    return isinstance(value.type, TensorType) and value.type.is_static and value.type.dtype in _TYPES


def _taken_once(value: Value) -> bool:
    return sum(not orders_only(*use) for use in value.use_sites()) == 1


def _scaled_by(value: Value) -> str | None:
    """What makes zeros of a value that is multiplied or divided by a number, where that number is 0; None of any other
    value, and of an accumulator: a token waits for who reads it."""
    made = _SCALINGS.get(value.op.name) if isinstance(value, Node) else None
    if made is None or not isinstance(value, Node):
        return None
    of, by = (v.type for v in value.operands)
    same = isinstance(of, TensorType) and value.type == TensorType(of.dtype, of.shape)
    if not same or by != TensorType(tensor_type(value).dtype, ()):
        return None
    return made if state_behind(through(value.operand(0), VIEWS)) is None else None


def _move(graph: Graph, update: _Update) -> int:
    """Puts the function in the place of its call; returns how many writes it has."""
    fx = Effects(graph)
    at = next(i for i, effect in enumerate(fx.list) if effect.node is update.call)
    others = len(fx.list) - 1
    inline(fx, update.call, update.branch)
    count = len(fx.list) - others
    before, moved, after = fx.list[:at], fx.list[at : at + count], fx.list[at + count :]
    still = _Still(fx, update.condition, update.skips, {state for effect in fx.list for state in effect.writes})
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
            node.set_operand(1, self._select(there, node.operand(1)))
        for i, number in STILL[node.op.name].items():
            node.set_operand(i, self._instead(node.operand(i), number))

    def _instead(self, value: Value, number: float) -> Value:
        """A value, or ``number`` where the update is skipped."""
        if value in self.written:
            return self._chosen(self.fx.load(value, initial=False), number)
        key = (bits(value.value) if isinstance(value, Constant) else value, number)
        if key not in self.made:
            read = self.fx.load(value) if isinstance(value, State) else value
            number_ = not isinstance(value.type, TensorType) or value.type.size == 1 or not value.type.dtype.is_float
            self.made[key] = self._chosen(read, number) if number_ else self._product(read)
        return self.made[key]

    def _chosen(self, value: Value, number: float) -> Value:
        graph = self.fx.graph
        if isinstance(value, Constant) and isinstance(value.value, float):
            value = graph.constant(scalar_tensor("float32", value.value))
        type_ = tensor_type(value)
        if type_.shape == () and type_.dtype.is_float:
            still = scalar_tensor(type_.dtype, number)
        else:
            still = TensorValue(*from_numpy(np.full(type_.shape, number, str(type_.dtype))))
        return self._select(graph.constant(still), value)

    def _select(self, still: Value, value: Value) -> Node:
        both = [still, value] if self.skips else [value, still]
        return self.fx.graph.create("Select", [self.condition, *both], scope="")

    def _product(self, value: Value) -> Value:
        """Zeros where the update is skipped, of infinities and NaN too. What is scaled by a number gets another."""
        graph, type_ = self.fx.graph, TensorType(tensor_type(value).dtype, tensor_type(value).shape)
        by: Value = graph.constant(scalar_tensor(type_.dtype, 1.0))
        made = _scaled_by(value)
        if made is not None:
            value, by = value.operands  # type: ignore[attr-defined]  # what is scaled is a node
        return graph.create(made or "MulNoNan", [value, self._instead(by, 0.0)], type_, scope="")
