"""Conditions in normal form: what is true in a case of a proof, what follows from it, and comparisons of numbers."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from ..core.attributes import TensorValue
from ..core.types import DType
from ..symbolic.terms import Terms
from .polynomial import Polynomial, plus

COMPARISONS = ("Greater", "GreaterEqual", "Less", "LessEqual", "Equal", "NotEqual")


class Conditions:
    """``truths``: what the case says of conditions, in normal form. ``positive``: numbers of the proof that are at
    least 1; ``natural``: those that are at least 0. ``tests``: the tests for finite values that were met, in normal
    form, and what they test. ``nonzero``: numbers that are not 0."""

    def __init__(
        self, terms: Terms, truths: Mapping[int, bool], positive: Collection[int], natural: Collection[int],
        nonzero: Collection[int] = (),
    ):  # fmt: skip
        self.terms, self.nonzero = terms, frozenset(nonzero)
        self.truths, self.positive, self.natural = dict(truths), frozenset(positive), frozenset(natural)
        self.tests: dict[int, int] = {}

    def truth(self, form: int) -> bool | None:
        """Whether a condition holds; None where that is not known."""
        known = self.truths.get(form)
        if known is not None:
            return known
        head = self.terms.heads[form]
        if head[0] == "sum" and head[2] == ((1, (1,)),):  # one truth for each element
            form = self.terms.arguments[form][0]
        value = self.terms.values.get(form)
        if isinstance(value, bool):
            return value
        if isinstance(value, TensorValue) and value.type.dtype is DType.BOOL and value.data.nbytes == 1:
            return not value.data.is_zero()
        return None

    def of(self, t: int, forms: Sequence[int], polynomials: Sequence[Polynomial]) -> bool | int:
        """A condition (:data:`CONDITIONS`) on arguments in normal form: its truth, or else its normal form."""
        name = self.terms.name(t)
        if name in COMPARISONS:
            decided = self.compared(name, *polynomials)
            return self._known(self._made(t, forms)) if decided is None else decided
        return RULES[name](self, t, forms)

    def _not(self, t: int, forms: Sequence[int]) -> bool | int:
        truth = self.truth(forms[0])
        if truth is not None:
            return not truth
        again = self.terms.name(forms[0]) == self.terms.name(t)
        return self.terms.arguments[forms[0]][0] if again else self._known(self._made(t, forms))

    def _joined(self, t: int, forms: Sequence[int]) -> bool | int:
        """A conjunction, or a disjunction."""
        name, truths = self.terms.name(t), [self.truth(f) for f in forms]
        absorbing = name == "LogicalOr"
        if absorbing in truths:
            return absorbing
        unknown = [f for f, known in zip(forms, truths, strict=True) if known is None]
        nested = [self.terms.arguments[f] if self.terms.name(f) == name else (f,) for f in unknown]
        rest = sorted({f for of in nested for f in of})
        if not rest:
            return not absorbing
        return rest[0] if len(rest) == 1 else self._known(self._made(t, rest))

    def _all(self, t: int, forms: Sequence[int]) -> bool | int:
        truth = self.truth(forms[0])
        if truth is not None:
            return truth
        if self.terms.shapes[forms[0]] == ():  # of one element
            return forms[0]
        made = self._made(t, forms)
        if forms[0] in self.tests:
            self.tests.setdefault(made, self.tests[forms[0]])
        return self._known(made)

    def _finite(self, t: int, forms: Sequence[int]) -> bool | int:
        if not self.terms.arguments[forms[0]] and self.terms.heads[forms[0]][0] == "sum":
            return True  # a number, and over the reals it is finite
        made = self._made(t, forms)
        self.tests.setdefault(made, forms[0])
        return self._known(made)

    def _made(self, t: int, forms: Sequence[int]) -> int:
        terms = self.terms
        return terms.make(terms.heads[t], tuple(forms), terms.shapes[t], terms.nodes[t])

    def _known(self, form: int) -> bool | int:
        return self.truths.get(form, form)

    def compared(self, name: str, a: Polynomial, b: Polynomial) -> bool | None:
        """Whether a comparison holds, by the sign of the difference; None where that is not known."""
        difference = plus(a, {m: -c for m, c in b.items()})
        if not difference:
            return name in ("Equal", "GreaterEqual", "LessEqual")
        (monomial, _), *others = difference.items()
        if name in ("Equal", "NotEqual") and not others and monomial and all(x in self.nonzero for x, _ in monomial):
            return name == "NotEqual"
        least = 0
        signs = set()
        for monomial, c in difference.items():
            if any(x not in self.positive and x not in self.natural for x, _ in monomial):
                return None
            if all(x in self.positive for x, _ in monomial):
                least = 1
            signs.add(c > 0)
        if len(signs) > 1:
            return None
        up = signs.pop()
        if least:  # strictly above, or strictly below
            return {"Greater": up, "GreaterEqual": up, "Less": not up, "LessEqual": not up, "Equal": False,
                    "NotEqual": True}[name]  # fmt: skip
        return True if name == ("GreaterEqual" if up else "LessEqual") else False if name == (
            "Less" if up else "Greater") else None  # fmt: skip


RULES = {
    "LogicalNot": Conditions._not, "LogicalAnd": Conditions._joined, "LogicalOr": Conditions._joined,
    "ReduceAll": Conditions._all, "IsFinite": Conditions._finite,
}  # fmt: skip
CONDITIONS = frozenset((*COMPARISONS, *RULES))
"""The primitives that make a condition."""
