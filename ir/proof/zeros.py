"""Terms that are zero everywhere, as a run leaves them: the backward part fills places with zeros that no derivative
reaches."""

from __future__ import annotations

from ..analysis.derivative.linear_operands import FILLS, ZEROS, linear_in
from ..core.attributes import TensorValue
from ..symbolic.terms import Terms

_DEEPEST = 60
"""Nodes through which a zero is followed."""


class Zeros:
    """The terms that are a constant 0, zeros like something, or such elements moved about."""

    def __init__(self, terms: Terms):
        self.terms = terms
        self._known: dict[int, bool] = {}

    def __contains__(self, root: int) -> bool:
        known, stack = self._known, [root]
        while root not in known:
            t = stack[-1]
            needed = self._zero_if(t)
            open_ = [a for a in needed or () if a not in known]
            if open_ and len(stack) < _DEEPEST:
                stack.append(open_[0])
                continue
            known[t] = needed is not None and all(known.get(a, False) for a in needed)
            stack.pop()
        return known[root]

    def _zero_if(self, t: int) -> tuple[int, ...] | None:
        """The terms that make this one zero if they are; None where it is not zero."""
        terms = self.terms
        value = terms.values.get(t)
        if isinstance(value, TensorValue):
            return () if value.data.is_zero() else None
        if isinstance(value, (int, float)) and not isinstance(value, bool):
            return None if value else ()
        if terms.heads[t][0] != "op":
            return None
        name, node, arguments = terms.name(t), terms.nodes[t], terms.arguments[t]
        if name in ZEROS:
            return ()
        if name in FILLS:
            return arguments[1:2]
        alternatives = linear_in(node) if node is not None else None
        if alternatives is None or len(alternatives) != 1:
            return None
        return tuple(arguments[i] for i in alternatives[0] if i < len(arguments)) or None
