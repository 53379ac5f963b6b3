"""Loss scales that leave the network as factors: f(s·x) = s·f(x), from the scaled seed on.

Terms of the network are atoms for a normal form, which looks into none of them. A scale that stands deep in one has to
come out by itself. A factor comes out of a primitive by what the table says it is linear in, and out of a function that
is not followed by what the analysis of the derivative says of it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from ..analysis.derivative.calls import LinearCall
from ..analysis.derivative.linear_operands import SHAPE_ONLY, linear_in
from ..core.primitives import Family, named
from ..core.types import DType, TensorType
from ..symbolic.execution import ite
from ..symbolic.terms import Terms
from .polynomial import ONE, Monomial, power, times
from .zeros import Zeros

_PRODUCTS, _QUOTIENTS, _CASTS = named(Family.PRODUCT), named(Family.QUOTIENT), named(Family.CAST)


class ScaleFactors:
    """``scales``: the states that are loss scales; ``calls``: functions that are linear."""

    def __init__(self, terms: Terms, scales: Collection[int], calls: Mapping[int, LinearCall]):
        self.terms, self.scales, self.calls = terms, scales, calls
        self._zeros = Zeros(terms)
        self._factored: dict[int, tuple[Monomial, int]] = {}
        self._scaled: dict[int, bool] = {}

    def _depends(self, root: int) -> bool:
        """Whether a loss scale is part of the term."""
        known = self._scaled
        if root not in known:
            for t in self.terms.below([root], known):
                known[t] = t in self.scales or any(known[a] for a in self.terms.arguments[t])
        return known[root]

    def of(self, root: int) -> tuple[Monomial, int]:
        """A term as a product of loss scales, and what is left of it."""
        found = self._factored.get(root)
        if found is None:
            if not self._depends(root):
                return ONE, root
            for t in self.terms.below([root], self._factored):
                self._factored[t] = self._of_one(t) if self._depends(t) else (ONE, t)
            found = self._factored[root]
        return found

    def _of_one(self, t: int) -> tuple[Monomial, int]:
        terms = self.terms
        head, arguments = terms.heads[t], terms.arguments[t]
        if t in self.scales:
            return ((t, 1),), self._one()
        parts = [self._factored.get(a, (ONE, a)) for a in arguments]
        kind, name = head[0], terms.name(t)
        node = terms.nodes[t]
        if kind == "op" and node is not None:
            one = self._one()
            sign = 1 if name in _PRODUCTS else -1 if name in _QUOTIENTS else 0
            if sign and len(arguments) == 2:
                for at, other in ((1, 0), (0, 1)):
                    if parts[at][1] == one and (at == 1 or sign == 1):
                        scale = times(parts[other][0], power(parts[at][0], sign if at == 1 else 1))
                        if parts[other][1] == one or terms.shapes[parts[other][1]] == terms.shapes[t]:
                            return scale, parts[other][1]
            if name in _CASTS:
                return parts[0][0], self._cast(t, parts[0][1])
            if name in SHAPE_ONLY:
                return ONE, self._with(t, parts)
        if (kind == "op" or (kind == "written" and head[3] == 0)) and node is not None:
            return self._of_linear(t, parts)
        if kind == "apply" and arguments[0] in self.calls:
            return self._of_joint(t, parts, self.calls[arguments[0]].operands) or (ONE, t)
        scales = {s for s, base in parts if base not in self._zeros}
        if kind == "tuple" and len(scales) == 1:
            return scales.pop(), self._with(t, parts)
        if kind == "item":
            call = self.calls.get(next(iter(terms.arguments[arguments[0]]), -1))
            scaled = call is None or head[1] in call.items or parts[0][0] == ONE
            return (parts[0][0], self._with(t, parts)) if scaled else (ONE, t)
        if kind == "ite" and parts[0][0] == ONE:
            joint = {s for s, base in parts[1:] if base not in self._zeros}
            if len(joint) == 1:
                return joint.pop(), ite(terms, parts[0][1], parts[1][1], parts[2][1])
        if scales == {ONE}:
            return ONE, self._with(t, parts)
        return ONE, t

    def _one(self) -> int:
        return self.terms.make(("one",), (), ())

    def _with(self, t: int, parts: Iterable[tuple[Monomial, int]]) -> int:
        terms = self.terms
        return terms.make(terms.heads[t], tuple(base for _, base in parts), terms.shapes[t], terms.nodes[t])

    def _cast(self, t: int, base: int) -> int:
        """Cast(Cast(x)) is x where the inner one widens and the outer one goes back."""
        terms = self.terms
        if base == self._one():
            return base
        said = terms.heads[t][3]
        if terms.name(base) == "Cast":
            inner = terms.arguments[base][0]
            node = terms.nodes[base]
            source = node.operand(0).type if node is not None else None
            if isinstance(source, TensorType) and said and source.dtype.value == said[0]:  # type: ignore[index]
                between = terms.heads[base][3]
                if source.dtype.is_float and DType(between[0]).is_float:  # type: ignore[index]
                    return inner
        return terms.make(terms.heads[t], (base, *terms.arguments[t][1:]), terms.shapes[t], terms.nodes[t])

    def _of_linear(self, t: int, parts: list[tuple[Monomial, int]]) -> tuple[Monomial, int]:
        terms = self.terms
        if all(s == ONE for s, _ in parts):
            return ONE, self._with(t, parts)
        node = terms.nodes[t]
        one = self._one()
        if any(base == one for _, base in parts) or node is None:
            return ONE, t
        alternatives = linear_in(node)
        if alternatives is None:
            return ONE, t
        products = len(alternatives) > 1 and all(len(a) == 1 for a in alternatives)
        if products:
            scale: Monomial = ONE
            places = {a[0] for a in alternatives}
            if any(s != ONE for i, (s, _) in enumerate(parts) if i not in places):
                return ONE, t
            for s, _ in parts:
                scale = times(scale, s)
            return scale, self._with(t, parts)
        found = (self._of_joint(t, parts, places_) for places_ in alternatives)
        return next((f for f in found if f is not None), (ONE, t))

    def _of_joint(
        self, t: int, parts: list[tuple[Monomial, int]], places: Collection[int]
    ) -> tuple[Monomial, int] | None:
        """The factor of what is linear in these places together; None where they do not have one."""
        inside = [parts[i] for i in places if i < len(parts) and parts[i][1] not in self._zeros]
        outside = [parts[i] for i in range(len(parts)) if i not in places]
        if inside and len({s for s, _ in inside}) == 1 and all(s == ONE for s, _ in outside):
            return inside[0][0], self._with(t, parts)
        return None
