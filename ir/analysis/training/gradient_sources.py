"""Where the value that an update writes comes from: the walk from the update up to the backward nodes.

It follows what carries a gradient on, of its own shape: first only where that stays a gradient (sums, scalings, casts),
and, for who asks with ``linear=False``, in any form (a sign, a square). With ``reshaped`` it also follows other shapes
(sums over rows), but for single numbers: in these the gradients of all weights meet. What brings rows to places that
indices name has a shape of its own: a gradient of rows goes on from there. The walk crosses functions: a function's
input stands for what the call that was entered passes. For example, up from ``%new``::

    state %w: float32[2]
    graph @step(%x: float32[2]) {
      %w0 = Load(%w, umonad) : float32[2] primal {unique_id = "1"}
      %y = Mul(%w0, %x) : float32[2] primal {unique_id = "2"}
      %g = Mul(%x, %x) : float32[2] primal {forward_unique_id = "2"}     // the gradient
      %norm = L2Loss(%g) : float32[]
      %scaled = Mul(%g, %norm) : float32[2]                              // passed: of its shape, which %norm is not
      %new = AssignSub(%w, %scaled, umonad) : float32[2]
      %t = UpdateState(umonad, %new)
      %result = Depend(%y, %t)
      return %result
    }
"""

from __future__ import annotations

from collections.abc import Iterator

from ...core.graph import Input, Node, State, Value
from ...core.op import CALL
from ...core.primitives import Family, facts, named
from ...core.types import TensorType, TupleType, Type
from ...core.walk import walk
from ..effects.state_access import location, states_behind
from ..functions.calls import Calls, actuals, entered, picked_within, targets
from .network import BACKWARD, OPTIMIZER
from .update_side import UpdateSide

DIVIDING = named(Family.QUOTIENT, in_place=True)
ASSIGNING = frozenset({"Assign", "AssignAdd", "AssignSub"})
RESHAPING = named(Family.RESHAPE, Family.TRANSPOSE, Family.TUPLE) | {"Depend", "call"}
LINEAR = (
    RESHAPING
    | DIVIDING
    | ASSIGNING
    | named(Family.COPY, Family.CAST, Family.SUM, Family.DIFFERENCE, Family.PRODUCT, Family.CLAMP, Family.CHOICE)
    | named(Family.SUM, Family.DIFFERENCE, Family.PRODUCT, in_place=True)
    | {"Neg", "MatMul", "AllReduce", "ReduceScatter", "AllGather", "LARSUpdate", "Centralization", "Load"}
    | {"InplaceCopy"}
)
"""Ops through which a gradient passes as a gradient; others (squares, norms, signs) make something else of it."""
JUDGING = named(*(Family.FINITE, Family.OVERFLOWED, Family.STATUS, Family.LOGICAL, Family.TOTAL, Family.NORM)) | {
    "ReduceMax"
}
"""Ops that ask something of a gradient (is it finite, how long is it): what follows is no gradient any more."""

Place = tuple[Value, Calls]
"""A value, and the calls that were entered on the way to it."""


class GradientSources:
    """Answers for one update side; see above."""

    def __init__(self, side: UpdateSide):
        self.side = side

    def gradients(self, update: Node, *, linear: bool) -> list[Node]:
        """Backward nodes that the value written by ``update`` is made from."""
        return [n for n in self.sources(update, linear=linear) if self.side.parts.get(n) == BACKWARD]

    def sources(self, update: Node, *, linear: bool, reshaped: bool = False) -> Iterator[Node]:
        """Backward nodes and Loads that the value written by ``update`` is made from, by way of the update side."""
        starts: list[Place] = [(v, ()) for v in reversed(self.operands(update))]
        for value, _ in walk(starts, lambda place: reversed(self._above(*place, linear=linear, reshaped=reshaped))):
            if isinstance(value, Node) and (self.side.parts.get(value) == BACKWARD or value.op.name == "Load"):
                yield value

    def brings_rows(self, update: Node) -> bool:
        """Whether the gradient of an update is rows, which indices bring to their places."""
        starts: list[Place] = [(v, ()) for v in self.operands(update)]
        met = (value for value, _ in walk(starts, lambda place: self._above(*place, linear=True, reshaped=False)))
        own = (v for v in met if isinstance(v, Node) and self.side.parts.get(v) in (None, OPTIMIZER))
        return any(facts(node.op).rows is not None for node in (update, *own))

    def _above(self, value: Value, calls: Calls, *, linear: bool, reshaped: bool) -> list[Place]:
        if isinstance(value, Input):
            return actuals(value, calls, self.side.bound)
        if not isinstance(value, Node) or self.side.parts.get(value) not in (None, OPTIMIZER):
            return []
        return self.upward(value, calls, linear, reshaped)

    def _written_before(self, reader: Node, value: State | Input) -> Node | None:
        """The write whose value ``reader`` sees in a state, or in the input of a function that stands for one, where
        this step's update side wrote it: a slot that is updated first and then used (a hand-written momentum). A
        weight's own value is no gradient, whoever wrote it."""
        found: Node | None = None
        for state in states_behind(value, self.side.bound):
            if state.name in self.side.read:
                continue
            for node in self.side.written.get(state.name, ()):
                if node.graph is reader.graph and self.side.depth[node] < self.side.depth[reader]:
                    found = node if found is None or self.side.depth[node] > self.side.depth[found] else found
        return found

    @staticmethod
    def operands(update: Node) -> list[Value]:
        """The operands of an update that bring the gradient."""
        if (taken := _taken(update)) is not None:
            return [taken]
        if update.op.name in ASSIGNING:
            return [update.operand(1)]
        shape = getattr(update.operand(0).type, "shape", None)
        return [v for v in update.operands[1:] if isinstance(v.type, TensorType) and v.type.shape == shape]

    def upward(self, node: Node, calls: Calls, linear: bool, reshaped: bool = False) -> list[tuple[Value, Calls]]:
        """The values behind an update-side node that carry the gradient on, and the calls that each is behind: a
        function that several weights share (a clipping) is left where it was entered."""
        if (items := picked_within(node, calls, self.side.bound)) is not None:
            return items
        if node.op is CALL:
            inside = entered(calls, node)
            return [(t.function.result, inside) for t in targets(node) or () if t.function.has_result]
        return [(v, calls) for v in self._carrying(node, linear, reshaped)]

    def _carrying(self, node: Node, linear: bool, reshaped: bool) -> list[Value]:
        """The operands of an update-side node that carry the gradient on: of its own shape, or of any (``reshaped``).
        ``linear``: as a gradient still, in a float type; else in any form (a sign, a comparison)."""
        return [self._seen_by(node, operand) for operand in self._carrying_operands(node, linear, reshaped)]

    def _seen_by(self, node: Node, operand: Value) -> Value:
        """An operand, or, for one that is memory, the write of this step whose value stands there."""
        memory = isinstance(operand, (State, Input)) or node.op.name == "Load"
        where = location(operand) if memory else None
        written = self._written_before(node, where) if isinstance(where, (State, Input)) else None
        return operand if written is None else written

    def _carrying_operands(self, node: Node, linear: bool, reshaped: bool) -> list[Value]:
        name = node.op.name
        if name in ("Depend", "Load"):
            return [node.operand(0)]
        if (taken := _taken(node)) is not None:
            return [taken]
        if (name in JUDGING and not (reshaped and _is_array(node.type))) or (linear and name not in LINEAR):
            return []
        operands = list(node._operands)
        if name == "Select" and linear:
            operands = operands[1:]
        elif name in ASSIGNING:
            operands = operands[1:2]
        elif name in DIVIDING and linear:
            operands = operands[:1]
        free = name in RESHAPING or isinstance(node.type, TupleType)
        out: list[Value] = []
        for operand in operands:
            t = operand.type
            if isinstance(t, TupleType):
                # AddN takes a tuple of summands; a collective may take one too.
                out.append(operand)
            elif not isinstance(t, TensorType) or (linear and not t.dtype.is_float):
                continue
            elif free or t.shape == getattr(node.type, "shape", None) or (reshaped and _is_array(t)):
                out.append(operand)
        return out


def _taken(node: Node) -> Value | None:
    """What an optimizer takes for a gradient, or the rows of what brings rows to their places."""
    fact = facts(node.op)
    at = fact.rows if fact.gradient is None else fact.gradient
    return node.operand(at) if at is not None and at < node.num_operands else None


def _is_array(type_: Type) -> bool:
    """Whether values of a type hold more than one number."""
    return isinstance(type_, TensorType) and not (type_.is_static and type_.size == 1)
