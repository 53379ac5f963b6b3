"""Gradients multiplied by the reciprocal of what they are divided by."""

from __future__ import annotations

from math import frexp

from ..ir.attributes import TensorValue, scalar_tensor
from ..ir.data import to_numpy
from ..ir.gradient_path import NORMALISATION, STAGE
from ..ir.graph import Graph, tensor_type
from ..ir.program import Program, StateVariable
from ..ir.types import TensorType
from ..ir.values import Constant, Node, State, Value

SCOPE = "reciprocal"
_KEEPING = frozenset({"Load", "Mul", "Add", "Cast", "AllReduce"})
"""What makes a divisor of a count and of scales. One that subtracts (micro-batches that were dropped) or selects (their
weights) may be any number."""


def multiply_by_reciprocal(graph: Graph, program: Program) -> Graph:
    """A copy of ``graph``, of ``program``, that multiplies gradients by the reciprocal of their divisor (accumulation's
    number of micro-batches, a loss scale) where that is a power of two; ``graph`` itself where none is.

    On CPU a division takes twice to three times as long as a multiplication. By a power of two both give the same bits.
    A cycle that ends early, after three of four micro-batches, then rounds once more, and so does a job whose number of
    ranks is no power of two.
    """
    length = program.micro_batches()
    if length & (length - 1) or not _divisions(graph, program):
        return graph
    copy = graph.clone()[0]
    for divisor, quotients in _divisions(copy, program).items():
        # Where the divisor is cast, so is one: the type of the quotients.
        with copy.inserting_before(quotients[0]):
            one = copy.constant(scalar_tensor(tensor_type(divisor).dtype, 1.0))
            reciprocal = copy.create("RealDiv", [one, divisor], scope=SCOPE)
        for node in quotients:
            with copy.inserting_before(node):
                product = copy.create("Mul", [node.operand(0), reciprocal], scope=node.scope, sources=[node])
            node.replace_uses(product)
            copy.erase(node)
    copy.sort()
    return copy


def _divisions(graph: Graph, program: Program) -> dict[Node, list[Node]]:
    """What is divided by the divisor of the graph, or a cast of it."""
    found: dict[Node, list[Node]] = {}
    for node in graph:
        divisor = node.operand(1) if node.op.name == "RealDiv" else None
        if isinstance(divisor, Node) and (divisor in found or _divides_by_power_of_two(divisor, program)):
            found.setdefault(divisor, []).append(node)
    return found


def _power_of_two(number: float) -> bool:
    return frexp(number)[0] == 0.5


def _scales(variable: StateVariable, program: Program) -> list[float]:
    """What a loss scale starts from, and what changes it."""
    factors = [float(r.options.get("factor", 2.0)) for r in program.reports if r.name == "loss-scale"]
    return [float(variable.initial.item()), *factors]


def _divides_by_power_of_two(divisor: Node, program: Program) -> bool:
    """Whether it is the graph's divisor, and made of powers of two when a cycle is full."""
    normalises = False
    stack: list[Value] = [divisor]
    seen: set[Value] = set()
    while stack:
        value = stack.pop()
        if value in seen:
            continue
        seen.add(value)
        if isinstance(value, Node):
            if value.op.name not in _KEEPING or not isinstance(value.type, TensorType) or value.type.size != 1:
                return False
            normalises = normalises or value.marks.get(STAGE) == NORMALISATION
            stack.extend(value.operands[:1] if value.op.name == "Load" else value.operands)
        elif isinstance(value, State):
            variable = program.state[value.name]
            if variable.role == "loss-scale" and not all(map(_power_of_two, _scales(variable, program))):
                return False
        elif isinstance(value, Constant) and isinstance(value.value, TensorValue):
            if not _power_of_two(to_numpy(value.value.type, value.value.data).item()):
                return False
        elif not isinstance(value, Constant):
            return False
    return normalises
