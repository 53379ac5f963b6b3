"""By what a training graph multiplies the derivative of its loss: numbers and states that an optimizer may divide by.

The derivative of the loss enters the backward part at its seeds (:mod:`..derivative.linearity`). A seed that belongs to
the derivative of a forward node takes a number there. That number, divided by what the chain rule gives for this node
(1/n behind the mean of n numbers), is what the training cell has multiplied by: ``sens``. What multiplies the loss
itself in the forward part (``net(x) * 1000``) counts besides. Each number must be met at every seed.

    %loss = ReduceMean(%e)                                          // 24 numbers: the derivative of %e is 1/24
    %seed = RealDiv(float32[8,3]<1024.0, …>, 24)                    // 1024 times as much
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import isclose, prod

from ...core.attributes import TensorValue, scalar_of
from ...core.data import numbers
from ...core.errors import AnatomyError
from ...core.graph import Node, State, Value
from ...core.names import BACKWARD_ID, FORWARD_ID
from ...core.primitives import Family, facts, named
from ...core.types import TensorType, TupleType
from ...core.walk import carried_operands, walk
from ..derivative.linearity import Seed, find_seeds
from ..effects.tokens import orders_only
from .anatomy import TrainingAnatomy
from .network import BACKWARD, FORWARD, OTHER

Multiplier = float | str
"""A number, or the name of a state."""
_ALIKE = named(Family.COPY, Family.CAST, Family.RESHAPE, Family.TUPLE, Family.REPEAT) | {"Depend", "Load"}
_FACTORS = named(Family.PRODUCT, Family.QUOTIENT)
_NETWORK = (FORWARD, BACKWARD)
_FILLED = {"Fill": 2, "FillV2": 1, "FillScalar": 1}
"""Which operand all elements are."""


def is_among(multipliers: Sequence[Multiplier], number: float) -> bool:
    """Whether a number is one of these, up to the rounding of float32."""
    return any(isinstance(known, float) and isclose(known, number, rel_tol=1e-6) for known in multipliers)


def loss_multipliers(found: TrainingAnatomy) -> tuple[Multiplier, ...] | None:
    """What every seed of the gradients is multiplied by; None where a seed or its derivative cannot be told. Linear in
    nodes for each level of nested functions."""
    gradients = dict.fromkeys(g for info in found.weights for g in info.gradient)
    wanted = [use for g in gradients for use in g.use_sites() if found.part(use[0]) not in _NETWORK]
    try:
        seeds = find_seeds(found.graph, found.parts, wanted)
    except AnatomyError:
        return None
    chain = _chain(found)
    common: list[Multiplier] | None = None
    for seed in seeds:
        met = _at_seed(seed, chain, found.parts)
        if met is None:
            return None
        common = met if common is None else _common(common, met)
    return tuple(common or ())


@dataclass(slots=True)
class _Derivative:
    """That of the loss by the result of a forward node, one number for all its elements, and the factors of it that
    multiply the loss itself."""

    number: float
    of_loss: list[float] = field(default_factory=list)
    node: Node | None = None


def _chain(found: TrainingAnatomy) -> dict[str, _Derivative]:
    """The derivative of the loss by what leads to it linearly, by the numbers of forward nodes."""
    known: dict[str, _Derivative] = {}
    met: set[Node] = set()
    todo: list[tuple[Value | None, _Derivative]] = [(found.loss, _Derivative(1.0))]
    while todo:
        node, here = todo.pop()
        if not isinstance(node, Node) or found.part(node) not in (FORWARD, OTHER):
            continue
        number = node.primal.get(FORWARD_ID)
        if node in met:  # reached in several ways: their sum is not followed
            known.pop(str(number), None)
            continue
        met.add(node)
        if number:
            known[str(number)] = _Derivative(here.number, here.of_loss, node)
        todo += [(operand, _Derivative(by * here.number, of_loss)) for operand, by, of_loss in _above(node, here)]
    return known


def _above(node: Node, here: _Derivative) -> list[tuple[Value, float, list[float]]]:
    """The operands in which a node is linear, by how much, and the factors of the loss behind it."""
    family, operands = facts(node.op).family, carried_operands(node)
    if node.op.name in _ALIKE and family is not Family.REPEAT:
        return [(operands[0], 1.0, here.of_loss)] if operands else []
    if node.op.name == "Neg":
        return [(operands[0], -1.0, here.of_loss)]
    if family is Family.TOTAL:
        return [(operands[0], 1.0, here.of_loss)]
    if family is Family.MEAN and _size(operands[0]) and _size(node):
        return [(operands[0], _size(node) / _size(operands[0]), here.of_loss)]
    if family in (Family.SUM, Family.DIFFERENCE) and _size(node) == 1:
        sign = -1.0 if family is Family.DIFFERENCE else 1.0
        summands = operands if not isinstance(operands[0].type, TupleType) else carried_operands(operands[0])
        return [(o, sign if k == 1 else 1.0, here.of_loss) for k, o in enumerate(summands)]
    if family in (Family.PRODUCT, Family.QUOTIENT):
        divides = family is Family.QUOTIENT
        for value, other in ((operands[0], operands[1]), (operands[1], operands[0])):
            by = scalar_of(other.literal)
            if by and not (divides and other is operands[0]):
                of_loss = here.of_loss if divides or _size(node) != 1 else [*here.of_loss, float(by)]
                return [(value, 1.0 / by if divides else float(by), of_loss)]
    return []


def _at_seed(seed: Seed, chain: Mapping[str, _Derivative], parts: Mapping[Node, str]) -> list[Multiplier] | None:
    """What multiplies the derivative where a seed enters; None where the chain rule is not known there."""
    met: list[Multiplier] | None = None
    for user, _ in seed.uses:
        group = user.primal.get(BACKWARD_ID)
        if not group and isinstance(seed.value, Node):  # a product whose constants the exporter has folded
            group = seed.value.primal.get(BACKWARD_ID)
        derivative = chain.get(str(group))
        factors = _factors(seed, [node for node in _behind(user, group) if parts.get(node) == BACKWARD])
        mine: list[Multiplier] = [s.name for s in walk(factors, _multiplied) if isinstance(s, State)]
        if derivative is not None:
            of_loss = derivative.of_loss
            by = _number(factors, group) / _brought(derivative.node) / derivative.number
            mine += dict.fromkeys((by, *of_loss, by * prod(of_loss)))
        elif not mine:
            return None
        met = mine if met is None else _common(met, mine)
    return met


def _behind(user: Node, group: object) -> list[Node]:
    """A node, and those behind it that alone take what it computes, of one group of the backward part."""
    found = [user]
    while True:
        users = [u for u, i in user.use_sites() if not orders_only(u, i)]
        if len(users) != 1 or users[0].primal.get(BACKWARD_ID) != group:
            return found
        user = users[0]
        found.append(user)


def _factors(seed: Seed, behind: Sequence[Node]) -> list[Value]:
    """The last product of these, or the seed where none of them is a product."""
    products = [node for node in behind if node.op.name in _FACTORS]
    return [products[-1] if products else seed.value]


def _number(factors: Sequence[Value], group: object) -> float:
    """The product of the constants of one group of the backward part."""

    def inside(value: Value) -> Sequence[Value]:
        own = value in factors or (isinstance(value, Node) and value.primal.get(BACKWARD_ID) == group)
        return _multiplied(value) if own and _uniform(value) is None else ()

    found = 1.0
    for value in walk(factors, inside):
        number = _uniform(value)
        found *= 1.0 if number is None or value not in factors else number
        if isinstance(value, Node) and value.op.name in _FACTORS:
            divides = facts(value.op).family is Family.QUOTIENT
            for k, operand in enumerate(value.operands[:2]):
                by = _uniform(operand)
                if by:
                    found *= 1.0 / by if k and divides else by
    return found


def _brought(forward: Node | None) -> float:
    """The number that the derivative of a forward node holds whatever it is taken of."""
    if forward is None:
        return 1.0
    operands = carried_operands(forward)
    if forward.op.name in ("Pow", "PowTensorScalar"):
        return float(scalar_of(operands[1].literal) or 1.0)
    if facts(forward.op).family is Family.MEAN:
        return _size(forward) / (_size(operands[0]) or 1)
    return 2.0 if forward.op.name == "Square" else 1.0


def _multiplied(value: Value) -> Sequence[Value]:
    """The factors that a value is made of."""
    if not isinstance(value, Node) or value.op.name not in _ALIKE | _FACTORS | _FILLED.keys():
        return ()
    return carried_operands(value)[: 2 if value.op.name in _FACTORS else 1]


def _uniform(value: Value) -> float | None:
    """The number that all elements of a constant are."""
    if isinstance(value, Node):
        at = _FILLED.get(value.op.name)
        if at is not None:
            return _uniform(value.operand(at))
        return _uniform(value.operand(0)) if value.op.name in _ALIKE else None
    literal = value.literal
    if isinstance(literal, TensorValue) and literal.type.size > 1 and literal.type.dtype.is_float:
        elements = numbers(literal.type, literal.data).reshape(-1)
        return float(elements[0]) if (elements == elements[0]).all() else None
    number = scalar_of(literal)
    return None if number is None else float(number)


def _size(value: Value) -> int:
    """How many numbers a tensor holds; 0 where that is open."""
    t = value.type
    return t.size if isinstance(t, TensorType) and t.is_static else 0


def _common(some: Sequence[Multiplier], others: Sequence[Multiplier]) -> list[Multiplier]:
    return [m for m in some if m in others or (isinstance(m, float) and is_among(others, m))]
