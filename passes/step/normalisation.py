"""The divisor of a cycle's summed gradients: one scalar in each updating graph, for all gradients.

Accumulation divides by the number (or the weights) of the micro-batches, loss scaling by its scale. Each folds its
factor into the one scalar node that is marked here, so that a gradient is divided once, and whoever asks how a gradient
was normalised finds one place.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from ...ir.analysis.training.divisor import NORMALISATION, divides, find_divisor
from ...ir.builders.cast import cast
from ...ir.core.graph import Graph, Node, Use, Value, rewire, tensor_type
from ...ir.core.names import STAGE
from ...ir.core.walk import through
from ...ir.rewrite.stages import mark
from .names import COUNTED


def declare_divisor(node: Node, *, counted: bool = False) -> Node:
    """Marks the scalar float32 node that :func:`divide` is given. ``counted``: it is a number of micro-batches."""
    mark(node, {STAGE: NORMALISATION, **({COUNTED: True} if counted else {})})
    node.name = NORMALISATION
    return node


def divide(graph: Graph, value: Value, divisor: Value, *, scope: str) -> Value:
    """``value`` by a scalar float32 divisor, in at least float32: half precision could not hold every divisor. A
    quotient of half-precision numbers is the same as in half precision."""
    dtype = tensor_type(value).dtype
    # A division, not a multiplication by 1/N: that rounds twice where N is no power of two.
    quotient = graph.create(
        "RealDiv",
        [cast(graph, value, dtype.widened, scope=scope), cast(graph, divisor, dtype.widened, scope=scope)],
        scope=scope,
        sources=[value],
    )
    return cast(graph, quotient, dtype, scope=scope)


def change_divisor(graph: Graph, make: Callable[[Node], Node]) -> bool:
    """Replaces the divisor by what ``make`` creates from it; False where there is none."""
    old = find_divisor(graph)
    if old is None:
        return False
    _replace(old, make, [(user, i) for user, i in old.use_sites() if divides(user, i)])
    return True


def change_count(graph: Graph, make: Callable[[Node], Node]) -> None:
    """Replaces the number of micro-batches in the divisor, if it stands there, by what ``make`` creates from it."""
    counted = next((n for n in graph if COUNTED in n.marks), None)
    if counted is not None:
        uses = [(user, i) for user, i in counted.use_sites() if user.op.name in ("RealDiv", "Cast", "Mul")]
        _replace(counted, make, uses)


def _replace(old: Node, make: Callable[[Node], Node], uses: Iterable[Use]) -> None:
    new = make(old)
    if old.marks.get(STAGE) == NORMALISATION:
        forget_divisor(old)
        declare_divisor(new)
    rewire(uses, new)


def forget_divisor(node: Node) -> None:
    """The node is one factor of the divisor from now on, or divides by itself."""
    node.marks = {k: v for k, v in node.marks.items() if k != STAGE}
    node.name = node.op.name + "." + NORMALISATION


def divide_gradients(graph: Graph, divisors: Mapping[Use, Value], *, scope: str) -> None:
    """Divides the value that each of these uses takes; each value once, by the divisor of its first use."""
    quotients: dict[Value, Value] = {}
    for (user, i), divisor in divisors.items():
        value = user.operand(i)
        if value not in quotients:
            quotients[value] = divide(graph, value, divisor, scope=scope)
            mark(quotients[value], {STAGE: "unscale"})  # type: ignore[arg-type]
        user.set_operand(i, quotients[value])


def division_of(value: Value) -> Node | None:
    """The division by what was counted that makes a gradient, if one does."""
    node = through(value, ("Cast",))
    if not isinstance(node, Node) or node.op.name != "RealDiv":
        return None
    divisor = through(node.operand(1), ("Cast",))
    is_divisor = isinstance(divisor, Node) and divisor.marks.get(STAGE) == NORMALISATION
    return node if is_divisor else None
