"""Which values of the backward part carry the derivative of the loss, and which are coefficients it is multiplied by.

Both are backward nodes: of ``dx = dout * (2 * x)`` autodiff marks both products. What tells them apart:

* the nodes that compute the derivative of one forward node share its number (``forward_unique_id``): a *group*;
* a group that takes a backward value of another group takes the derivative from there, so what it computes of forward
  values alone are coefficients;
* a group that takes none is the *tail* of the network: the derivative starts in it.

A gradient that the loss depends on (a gradient penalty differentiates twice) is forward, and no derivative of it.

The answer guides a choice and finds what is not linear; a rewrite that rests on linearity alone stays right without it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from ...core.graph import Constant, Graph, Node, Value
from ...core.names import BACKWARD_ID, FORWARD_ID
from ...core.op import CALL
from ...core.types import TensorType, TupleType
from ...core.walk import carried_operands, walk
from ..functions.closures import Closures, Path
from .components import leaves
from .linear_operands import linear_in, sees_shape_only

FORWARD, BACKWARD = "forward", "backward"
NONE, COEFFICIENT, TAIL, CARRIER = 0, 1, 2, 3
"""How near a value is to the derivative: not backward; a coefficient; where it starts; made from it."""
SEVERAL = object()


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
        self.numbers = {group for group in self.groups.values() if not isinstance(group, Node)}
        self.fixed: set[Value] = set()
        self._note_fixed()
        self.fed: set[object] = set()
        self.tails: set[object] = set()
        self._settle()

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
            single = isinstance(node.type, TensorType) and node.type.is_static and node.type.size == 1
            if (
                single
                and node.op is not CALL
                and all(isinstance(v, Constant) or v in self.fixed for v in node.operands)
            ):
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

    def _is_backward(self, node: Node) -> bool:
        return self.parts.get(node) == BACKWARD

    def _feed(self) -> None:
        """Notes the groups that take the derivative from another group, or from an input of their function."""
        for node, group in self.groups.items():
            if group not in self.fed and self._is_backward(node) and self._takes_of_others(node):
                self.fed.add(group)

    def _takes_of_others(self, node: Node) -> bool:
        group = self.groups[node]
        for operand in carried_operands(node):
            if self._is_setting(node, operand):
                continue
            if isinstance(operand, Node) and self._is_backward(operand):
                other = self.groups[operand]
                if other != group and (other in self.numbers or self.rank(operand) == CARRIER):
                    return True
            elif self.rank(operand) == CARRIER:
                return True
        return False

    # -- ranks -----------------------------------------------------------------------------------------------

    def _settle(self) -> None:
        """Ranks until nothing changes. A group once found to be fed, or a tail all the same, stays so: this ends."""
        while True:
            self._feed()
            if self._round():
                continue
            missed = self._missed_tails()
            if not missed:
                return
            self.tails.update(missed)

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
            return node.op is CALL and self._is_backward(node)
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
        return TAIL if group in self.tails or (group in self.numbers and group not in self.fed) else COEFFICIENT

    def _rank_of_element(self, node: Node) -> int:
        """That of the element itself where the tuple can be followed, else that of the tuple."""

        def step(item: tuple[Value, Path]) -> list[tuple[Value, Path]] | None:
            return self.closures.step(*item) if item[1] else None

        found = walk(self.closures.step(node, ()) or [], lambda item: step(item) or [])
        return max((self.rank(item[0]) for item in found if step(item) is None), default=NONE)

    def _missed_tails(self) -> set[object]:
        """Groups that seem fed but get the derivative from nowhere: all that they take of other groups are coefficients
        that they share with them. Of those, the ones that take nothing of another of them: it may feed them yet."""
        carried = {self.groups[n] for n, rank in self.ranks.items() if rank == CARRIER and isinstance(n, Node)}
        missed: dict[object, None] = {}
        for node, group in self.groups.items():
            unfed = group in self.fed and group not in carried and group not in self.tails and group not in missed
            if unfed and group in self.numbers and self._is_backward(node) and self._takes_of_others(node):
                missed[group] = None
        behind: dict[Node, object] = {}  # the missed group that a node is computed from, several of them
        waiting: set[object] = set()
        for node, group in self.groups.items():
            sources = {behind[v] for v in carried_operands(node) if v in behind}
            if group in missed:
                if sources - {group}:
                    waiting.add(group)
                sources.add(group)
            if sources:
                behind[node] = sources.pop() if len(sources) == 1 else SEVERAL
        first = set(missed) - waiting
        return first or set(list(missed)[:1])
