"""Which values of the backward part carry the derivative of the loss, and which are coefficients it is multiplied by.

Both are backward nodes: of ``dx = dout * (2 * x)`` autodiff marks both products. What tells them apart:

* the nodes that compute the derivative of one forward node share its number (``forward_unique_id``): a *group*;
* a group that takes a backward value of another group takes the derivative from there, so what it computes of forward
  values alone are coefficients;
* a group that takes none is the *tail* of the network: the derivative starts in it.

A gradient that the loss depends on (a gradient penalty differentiates twice) is forward, and no derivative of it.

The answer guides a choice and finds what is not linear; a rewrite that rests on linearity alone stays right without it.
The choice (:class:`Terms`): all terms of a sum, one factor of a product: ``%g = Mul(%dy, %w)`` wants ``%dy``, which
carries the derivative, not the weight. Of ``%e = Exp(%dy)`` there is none, and that is an error.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from ...core.errors import AnatomyError
from ...core.graph import Constant, Graph, Node, Value
from ...core.names import BACKWARD_ID, FORWARD_ID
from ...core.op import CALL
from ...core.predicates import is_float_tensor
from ...core.sites import site
from ...core.types import TensorType, TupleType
from ...core.walk import walk
from ..functions.closures import Closures, Path
from .components import is_nothing, leaves
from .linear_operands import linear_in, sees_shape_only

FORWARD, BACKWARD = "forward", "backward"
NONE, COEFFICIENT, TAIL, CARRIER = 0, 1, 2, 3
"""How near a value is to the derivative: not backward; a coefficient; where it starts; made from it."""


class Derivative:
    """``parts``: forward and backward nodes, of functions too. Linear in nodes for each level of nested functions."""

    def __init__(self, graph: Graph, parts: Mapping[Node, str], closures: Closures):
        self.graph = graph
        self.parts = parts
        self.closures = closures
        self.ranks: dict[Value, int] = {}
        self.groups: dict[Node, object] = {}
        for node in graph.all_nodes():
            self.groups[node] = self._group(node)
        self.fixed: set[Value] = set()
        self._note_fixed()
        self.fed: dict[object, None] = {}
        self.tails: set[object] = set()
        while self._settle():
            self.ranks.clear()

    def rank(self, value: Value) -> int:
        return self.ranks.get(value, NONE)

    def brings(self, user: Node, value: Value) -> bool:
        """Whether ``user`` gets the derivative from its operand ``value``."""
        rank = self.rank(value)
        if self._is_setting(user, value):
            return False
        if rank != TAIL or not isinstance(value, Node):
            return rank == CARRIER
        return self.groups[value] != self.groups.get(user, user)

    def _note_fixed(self) -> None:
        """Notes the single numbers that are computed from constants alone."""
        for node in self.graph.all_nodes():
            fixed = node.op is not CALL and all(isinstance(v, Constant) or v in self.fixed for v in node.operands)
            if fixed and isinstance(node.type, TensorType) and node.type.is_static and node.type.size == 1:
                self.fixed.add(node)

    def _is_setting(self, user: Node, value: Value) -> bool:
        """Whether a value is a number that says how ``user`` computes, an exponent: the exporter leaves ``2 - 1`` as a
        node, one for all gradients of squares, and it carries no derivative to what is linear in nothing."""
        return value in self.fixed and linear_in(user) is None

    # -- groups ----------------------------------------------------------------------------------------------

    def _group(self, node: Node) -> object:
        number = node.primal.get(BACKWARD_ID)
        if number:
            return number
        if node.op.name in ("TupleGetItem", "Depend"):
            source = node.operand(0)
            return self.groups.get(source, node) if isinstance(source, Node) else node
        return node

    # -- ranks -----------------------------------------------------------------------------------------------

    def _settle(self) -> bool:
        """Ranks all values by the groups that are known to be fed, and says whether these rank others so. Of groups
        that were fed by coefficients alone, which they share with others, the first one is a tail all the same."""
        while self._round():
            pass
        carried: dict[object, None] = {}  # by the last node that takes the derivative
        for node, rank in self.ranks.items():
            if rank == CARRIER and isinstance(node, Node):
                carried.pop(self.groups[node], None)
                carried[self.groups[node]] = None
        missed = next((g for g in self.fed if g not in carried and g not in self.tails), None)
        if missed is not None:
            self.tails.add(missed)
        known = len(self.fed)
        self.fed |= carried
        return missed is not None or len(self.fed) > known

    def _round(self) -> bool:
        """Ranks every value once, operands before users; says whether any rank changed."""
        changed = False
        for node in self.graph.all_nodes():
            before = self.ranks.get(node)
            rank = self._rank(node)
            if before == CARRIER and (node.op is CALL or node.op.name == "TupleGetItem"):
                rank = CARRIER  # what recursion could make swing to and fro
            if rank != before:
                self.ranks[node] = rank
                changed = True
        for formal, sites in self.closures.bound.items():
            if self.rank(formal) != CARRIER and any(self._passes(node, i) for node, i in sites):
                self.ranks[formal] = CARRIER
                changed = True
        return changed

    def _passes(self, node: Node, i: int) -> bool:
        """Whether the argument of a call or Partial is a derivative; a constant argument of a backward call is one."""
        value = node.operand(i)
        if isinstance(value, Constant):
            return node.op is CALL and self.parts.get(node) == BACKWARD
        return self.rank(value) >= TAIL

    def _rank(self, node: Node) -> int:
        part = self.parts.get(node)
        if part == FORWARD and (FORWARD_ID in node.primal or BACKWARD_ID in node.primal):
            return NONE
        name = node.op.name
        if name == "Depend":
            return self.rank(node.operand(0))
        if name == "TupleGetItem":
            return self._rank_of_element(node)
        sources: Iterable[Value] = [v for i, v in enumerate(node._operands) if not sees_shape_only(node, i)]
        if node.op is CALL and node not in self.closures.open:
            sources = [f.result for f in self.closures.targets[node] if f.has_result]
        if any(self.brings(node, source) for source in sources):
            return CARRIER
        integers = isinstance(node.type, (TensorType, TupleType)) and next(leaves(node.type), None) is None
        if sees_shape_only(node, 0) or (integers and node.op is not CALL):
            return COEFFICIENT  # sizes, axes, indices: the derivative neither is one nor starts in one
        if part != BACKWARD:
            # What autodiff marked neither way may be a derivative all the same: one written by hand, of a loss.
            return COEFFICIENT if part == FORWARD else NONE
        group = self.groups[node]
        numbered = not isinstance(group, Node)
        return TAIL if numbered and (group in self.tails or group not in self.fed) else COEFFICIENT

    def _rank_of_element(self, node: Node) -> int:
        """That of the element itself where the tuple can be followed, else that of the tuple."""

        def step(item: tuple[Value, Path]) -> list[tuple[Value, Path]] | None:
            return self.closures.step(*item) if item[1] else None

        found = walk(self.closures.step(node, ()) or [], lambda item: step(item) or [])
        return max((self.rank(item[0]) for item in found if step(item) is None), default=NONE)


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
