"""On CPU: gradients are multiplied by the reciprocal of their divisor (accumulation's number of micro-batches, a loss
scale) where that is a power of two.

A division takes twice to three times as long as a multiplication. By a power of two both give the same bits. A cycle
that ends early, after three of four micro-batches, then rounds once more, and so does a job whose number of ranks is no
power of two. Where a product with a number follows, as of a clip, both numbers are multiplied and the gradient once.
That keeps the bits too, but for quotients below 2**-126, which it does not round.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import frexp

from ...ir.analysis.training.divisor import find_divisor, quotients
from ...ir.core.attributes import TensorValue, scalar_tensor
from ...ir.core.data import to_numpy
from ...ir.core.graph import Constant, Graph, Node, State, Value, tensor_type
from ...ir.core.primitives import CPU
from ...ir.core.program import Program, StateVariable
from ...ir.core.types import TensorType
from ...ir.core.walk import carried_operands, walk
from ...ir.core.wording import counted
from .context import Context
from .measures import is_scaling, reads_state

SCOPE = "reciprocal"
_KEEPING = frozenset({"Load", "Depend", "Mul", "Add", "Cast", "AllReduce"})
"""Primitives that make a divisor of a count and of scales. One that subtracts (micro-batches that were dropped) or
selects (their weights) may be any number."""


def applies(graph: Graph, context: Context) -> bool:
    length = context.program.micro_batches()
    if context.target != CPU or length & (length - 1):
        return False
    divisor = find_divisor(graph)
    return divisor is not None and _is_power_of_two(divisor, context.program)


def run(graph: Graph, context: Context) -> str:
    divisor = find_divisor(graph)
    assert divisor is not None
    products: list[Node] = []
    for by, divisions in quotients(divisor).items():
        # Where the divisor is cast, so is one: the type of the quotients.
        one = graph.constant(scalar_tensor(tensor_type(by).dtype, 1.0))
        with graph.inserting_before(divisions[0]):
            reciprocal = graph.create("RealDiv", [one, by], scope=SCOPE)
        for node in divisions:
            with graph.inserting_before(node):
                product = graph.create("Mul", [node.operand(0), reciprocal], scope=node.scope, sources=[node])
            graph.substitute(node, product)
            products.append(product)
    joined = _join(graph, products)
    graph.sort()
    with_others = f", {joined} of them joined with the one that follows" if joined else ""
    return f"{counted(len(products), 'division')} by a power of two turned into multiplications{with_others}"


def _join(graph: Graph, products: Sequence[Node]) -> int:
    """Lets products of products take both numbers at once; returns how many there are. A token waits for who reads an
    accumulator, so products of these stay as they are."""
    numbers: dict[tuple[Value, Value], Node] = {}
    joined = 0
    for product in products:
        value, by = product.operands
        if reads_state(value):
            continue
        for user in [u for u, i in product.use_sites() if i == 0 and u.op is product.op and is_scaling(u)]:
            pair = (by, user.operand(1))
            if pair not in numbers:
                numbers[pair] = graph.create("Mul", [pair[1], by], scope=user.scope, sources=[user])
            user.set_operands([value, numbers[pair]])
            joined += 1
        if not product.uses:
            graph.erase(product)
    return joined


def is_reciprocal(value: Value) -> bool:
    """Whether a value is what this lowering multiplies by."""
    return isinstance(value, Node) and value.op.name == "RealDiv" and value.scope == SCOPE


def _has_one_bit(number: float) -> bool:
    return frexp(number)[0] == 0.5


def _scales(variable: StateVariable, program: Program) -> list[float]:
    """The first value of a loss scale, and the writes to it."""
    factors = [float(r.options.get("factor", 2.0)) for r in program.reports if r.name == "loss-scale"]
    return [float(variable.initial.item()), *factors]


def _is_power_of_two(divisor: Value, program: Program) -> bool:
    """Whether a divisor is made of powers of two when a cycle is full."""
    return all(_keeps_one_bit(value, program) for value in walk([divisor], carried_operands))


def _keeps_one_bit(value: Value, program: Program) -> bool:
    """Whether a value is a power of two if its operands are."""
    if isinstance(value, Node):
        return value.op.name in _KEEPING and isinstance(value.type, TensorType) and value.type.size == 1
    if isinstance(value, State):
        variable = program.state[value.name]
        return variable.role != "loss-scale" or all(map(_has_one_bit, _scales(variable, program)))
    if isinstance(value, Constant) and isinstance(value.value, TensorValue):
        return _has_one_bit(to_numpy(value.value.type, value.value.data).item())
    return isinstance(value, Constant)
