"""Where the value that an update writes comes from: the walk from the update up to the backward nodes.

It follows what carries a gradient on, of its own shape: first only where that stays a gradient (sums, scalings, casts),
and, for who asks with ``linear=False``, in any form (a sign, a square). With ``reshaped`` it also follows other shapes
(sums over rows), but for single numbers: in these the gradients of all weights meet. What brings rows to places that
indices name has a shape of its own: a gradient of rows goes on from there. It follows terms
(:mod:`.interpretation`), so memory and calls are no matter: of a slot that is updated first and then used, the version
tells. A weight's own value is no gradient, whoever wrote it. For example, up from ``%new``::

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

from collections.abc import Collection, Iterator, Mapping, Sequence

from ...core.graph import Node
from ...core.primitives import Family, facts, named
from ...core.types import TensorType, TupleType, Type
from ...core.walk import walk
from .interpretation import CHOICE, LEAF, READ, Term
from .network import BACKWARD

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


class GradientSources:
    """Answers for one update side; see above. ``read``: the states that the network reads."""

    def __init__(self, parts: Mapping[Node, str], read: Collection[str]):
        self.parts, self.read = parts, read

    def gradients(self, version: Term, *, linear: bool) -> list[Node]:
        """Backward nodes that a version of a state is made from."""
        return [t.value for t in self.sources(version, linear=linear) if t.kind == LEAF and isinstance(t.value, Node)]

    def sources(self, version: Term, *, linear: bool, reshaped: bool = False) -> Iterator[Term]:
        """Backward nodes and versions of states that the version is made from."""
        for term in self.met(version, linear=linear, reshaped=reshaped):
            gradient = term.kind == LEAF and isinstance(term.value, Node) and self.parts.get(term.value) == BACKWARD
            if gradient or term.state is not None:
                yield term

    def met(self, version: Term, *, linear: bool, reshaped: bool = False) -> Iterator[Term]:
        """All that carries the gradient on to a version."""
        return walk(handed(version)[::-1], lambda term: self.above(term, linear=linear, reshaped=reshaped)[::-1])

    def brings_rows(self, version: Term) -> bool:
        """Whether the gradient of an update is rows, which indices bring to their places."""
        own = (t.value for t in (version, *self.met(version, linear=True)) if t.kind != LEAF)
        return any(isinstance(node, Node) and facts(node.op).rows is not None for node in own)

    def above(self, term: Term, *, linear: bool, reshaped: bool = False) -> Sequence[Term]:
        """The operands of a term that carry the gradient on: of its own shape, or of any (``reshaped``). ``linear``: as
        a gradient still, in a float type; else in any form (a sign, a comparison)."""
        if term.kind == READ:
            return term.operands
        if term.kind == CHOICE:
            return term.operands[1:]
        if term.kind == LEAF or (term.state is not None and term.state.name in self.read):
            return ()
        name = term.name
        if (taken := _taken(term)) is not None:
            return [taken]
        if (name in JUDGING and not (reshaped and is_array(term.type))) or (linear and name not in LINEAR):
            return ()
        operands = term.operands
        if name == "Select" and linear:
            operands = operands[1:]
        elif name in ASSIGNING:
            operands = operands[1:2]
        elif name in DIVIDING and linear:
            operands = operands[:1]
        free = name in RESHAPING or isinstance(term.type, TupleType)
        return [o for o in operands if _carries(o.type, term.type, linear, free, reshaped)]


def handed(version: Term) -> list[Term]:
    """The operands of an update that bring the gradient."""
    if (taken := _taken(version)) is not None:
        return [taken]
    if version.name in ASSIGNING:
        return [version.operands[1]]
    shape = getattr(version.operands[0].type, "shape", None)
    return [o for o in version.operands[1:] if isinstance(o.type, TensorType) and o.type.shape == shape]


def _carries(operand: Type, result: Type, linear: bool, free: bool, reshaped: bool) -> bool:
    if isinstance(operand, TupleType):  # AddN takes a tuple of summands; a collective may take one too
        return True
    if not isinstance(operand, TensorType) or (linear and not operand.dtype.is_float):
        return False
    return free or operand.shape == getattr(result, "shape", None) or (reshaped and is_array(operand))


def _taken(term: Term) -> Term | None:
    """What an optimizer takes for a gradient, or the rows of what brings rows to their places."""
    assert isinstance(term.value, Node)
    fact = facts(term.value.op)
    at = fact.rows if fact.gradient is None else fact.gradient
    return term.operands[at] if at is not None and at < len(term.operands) else None


def is_array(type_: Type) -> bool:
    """Whether values of a type hold more than one number."""
    return isinstance(type_, TensorType) and not (type_.is_static and type_.size == 1)
