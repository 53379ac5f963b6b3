"""Which operands of one primitive to multiply so that its result comes out multiplied.

All terms of a sum, one factor of a product: ``%g = Mul(%dy, %w)`` wants ``%dy``, which carries the derivative, not the
weight; ``%s = Add(%a, %b)`` wants both. Of ``%e = Exp(%dy)`` there is none, and that is an error.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ...core.errors import AnatomyError
from ...core.graph import Constant, Node
from ...core.predicates import is_float_tensor
from ...core.sites import site
from .components import is_nothing, leaves
from .derivative import CARRIER, TAIL, Derivative
from .linear_operands import linear_in


@dataclass(frozen=True)
class Terms:
    """``assumed``: primitives that are taken as linear in the first operand that carries the derivative."""

    derivative: Derivative
    assumed: frozenset[str]

    def of(self, node: Node) -> tuple[int, ...] | None:
        """The operands to multiply; None where the derivative starts here."""
        derivative = self.derivative
        brought = [i for i, operand in enumerate(node._operands) if derivative.brings(node, operand)]
        if node.op.name in self.assumed:
            return tuple(brought[:1]) or None
        alternatives = linear_in(node)
        if alternatives is None:
            if brought:
                raise not_linear(node, f"{node.op.name} is not known to be linear in it")
            return None
        chosen = self._choose(node, alternatives)
        if chosen is None:
            if len([i for i in brought if derivative.rank(node.operand(i)) == CARRIER]) > 1:
                raise not_linear(node, "it multiplies the derivative by itself")
            return None
        outside = [i for i in brought if i not in chosen]
        if len(outside) == len(brought) > 0 or any(derivative.rank(node.operand(i)) == CARRIER for i in outside):
            raise not_linear(node, f"it is not linear in operand {outside[0]}, which carries the derivative too")
        for i in chosen:
            operand = node.operand(i)
            if next(leaves(operand.type), None) is None and not is_nothing(operand):
                if brought:
                    raise not_linear(node, f"its operand {i}, {site(operand)}, is no tensor of floats")
                return None
        return chosen

    def _choose(self, node: Node, alternatives: Sequence[tuple[int, ...]]) -> tuple[int, ...] | None:
        """The alternative nearest to the derivative; of equal ones a constant; None where that is not decided."""
        present = [tuple(i for i in a if i < node.num_operands) for a in alternatives]
        if len(present) == 1:
            return present[0]
        ranked = [(max((self.derivative.rank(node.operand(i)) for i in a), default=-1), a) for a in present]
        top = max(rank for rank, _ in ranked)
        best = [a for rank, a in ranked if rank == top]
        if len(best) > 1 and top < TAIL:
            operands = {i: node.operand(i) for a in best for i in a}
            fixed = {i for i, v in operands.items() if isinstance(v, Constant) and is_float_tensor(v)}
            best = [a for a in best if fixed.issuperset(a)]
        return best[0] if len(best) == 1 else None


def home_of(node: Node) -> str:
    return node.graph.name if node.graph is not None else "?"


def not_linear(node: Node, why: str) -> AnatomyError:
    return AnatomyError(
        f"graph '{home_of(node)}': the derivative of the loss passes through {site(node)}, but "
        f"{why}: the gradients behind it would not be those of a scaled loss. If the primitive is linear in its first "
        f"operand that carries the derivative, say so with loss-scale{{assume_linear=[{node.op.name}]}}; else train "
        "without a loss scale."
    )
