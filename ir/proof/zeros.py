"""Terms that are zero everywhere, as a run leaves them: the backward part fills places with zeros that no derivative
reaches, and multiplies with them."""

from __future__ import annotations

from ..analysis.derivative.linear_operands import FILLS, ZEROS, linear_in
from ..core.attributes import TensorValue
from ..symbolic.terms import Terms

_DEEPEST = 60
"""Nodes through which a zero is followed."""


class Zeros:
    """The terms that are a constant 0, zeros like something, such elements moved about, or products with them: 0 over
    the reals, where the other factor is finite."""

    def __init__(self, terms: Terms):
        self.terms = terms
        self._known: dict[int, bool] = {}

    def __contains__(self, root: int) -> bool:
        known, stack = self._known, [root]
        while root not in known:
            t = stack[-1]
            ways = self._zero_if(t)
            open_ = [a for way in ways for a in way if a not in known]
            if open_ and len(stack) < _DEEPEST:
                stack.append(open_[0])
                continue
            known[t] = any(all(known.get(a, False) for a in way) for way in ways)
            stack.pop()
        return known[root]

    def _zero_if(self, t: int) -> tuple[tuple[int, ...], ...]:
        """The terms that make this one zero if all of them are; a product has several such ways, what is never zero
        none."""
        terms, always = self.terms, ((),)
        value = terms.values.get(t)
        if isinstance(value, TensorValue):
            return always if value.data.is_zero() else ()
        if isinstance(value, (int, float)) and not isinstance(value, bool):
            return () if value else always
        if terms.heads[t][0] != "op":
            return ()
        name, node, arguments = terms.name(t), terms.nodes[t], terms.arguments[t]
        if name in ZEROS:
            return always
        if name in FILLS:
            return (arguments[1:2],)
        alternatives = linear_in(node) if node is not None else None
        ways = (tuple(arguments[i] for i in places if i < len(arguments)) for places in alternatives or ())
        return tuple(way for way in ways if way)
