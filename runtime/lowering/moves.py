"""The moves of averages: a state s becomes s · k + x · t, where x is another state, and k and t are numbers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from ...ir.analysis.effects.effect_list import list_effects
from ...ir.core.graph import Node, State, Value, tensor_type
from ...ir.core.predicates import is_float_tensor
from ...ir.core.types import DType
from .conditional import conditional
from .measures import is_constant


@dataclass(frozen=True, slots=True)
class Move:
    """``average`` becomes ``average`` · ``kept`` + ``weight`` · ``taken``, both float32 and of one shape. It stays
    where ``condition``, a bool or None for none, is ``skips``. ``read``: the Load of the weight."""

    average: State
    weight: State
    kept: Value
    taken: Value
    read: Node
    condition: Value | None = None
    skips: bool = False

    @property
    def numbers(self) -> tuple[Value, ...]:
        """What it takes beside the two states."""
        condition = () if self.condition is None else (self.condition,)
        return (self.kept, self.taken, *condition)


def moves_of(node: Node) -> list[Move]:
    """The moves that an effect of a main graph makes; none where it does anything else."""
    if node.op.name == "Assign":
        alone = _move(node, {})
        return [] if alone is None else [alone]
    call = conditional(node)
    if call is None:
        return []
    found = [_move(effect.node, call.given) for effect in list_effects(call.function).writes()]
    moves = [replace(move, condition=call.condition, skips=call.skips) for move in found if move is not None]
    return moves if len(moves) == len(found) else []


def _move(node: Node, given: Mapping[Value, Value]) -> Move | None:
    """A write as a move, in a function to which its inputs are ``given``."""
    if node.op.name != "Assign":
        return None
    state, mean = node.operands[:2]
    condition, ways = None, _operands(mean, "Select")
    if ways and not given:
        condition, *ways = ways
        mean = next((way for way in ways if not _reads(way, state)), mean)
    match [_operands(product, "Mul") for product in _operands(mean, "Add")]:
        case [(old, kept), (Node() as new, taken)] if _reads(old, state) and new.op.name == "Load":
            average, weight = (given.get(v, v) for v in (state, new.operand(0)))
            factors = [given.get(v, v) for v in (kept, taken) if not given or v in given or is_constant(v)]
        case _:
            return None
    if not (isinstance(average, State) and isinstance(weight, State)) or len(factors) < 2 or weight is average:
        return None
    if not (is_float_tensor(average) and tensor_type(average).dtype is DType.FLOAT32 and weight.type == average.type):
        return None
    kept, taken = factors
    return Move(average, weight, kept, taken, new, condition, condition is not None and mean is ways[1])


def _operands(value: Value, name: str) -> Sequence[Value]:
    """The operands of a value that a primitive makes; none of any other."""
    return value.operands if isinstance(value, Node) and value.op.name == name else ()


def _reads(value: Value, state: Value) -> bool:
    return isinstance(value, Node) and value.op.name == "Load" and value.operand(0) is state
