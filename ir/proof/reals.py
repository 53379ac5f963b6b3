"""Normal form over the real numbers: equal terms by the laws of :mod:`.laws`.

What is computed element by element from sums, products and quotients becomes a polynomial: products of atoms with
rational coefficients. An atom is a term that no law looks into, its own arguments in normal form. Terms of the network
are atoms from the start (``opaque``): a residual network is a product of sums, and its normal form would be as large
as the number of paths through it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from fractions import Fraction
from math import isfinite

from ..analysis.derivative.calls import LinearCall
from ..analysis.derivative.linear_operands import ZEROS, linear_in
from ..core.attributes import Number, TensorValue
from ..core.data import to_numpy
from ..core.primitives import PRIMITIVES, Family, named
from ..core.types import DType, TensorType
from ..symbolic.execution import ite
from ..symbolic.terms import REAL, Shape, Terms
from .conditions import CONDITIONS, Conditions
from .laws import LAWS
from .polynomial import ONE, Polynomial, plus, power, product, times
from .rank_sums import Ranks, laid_out
from .scale_factors import ScaleFactors

_FLOATS = {REAL, *(d.value for d in DType if d.is_float)}
_MOST = 400
"""Monomials that products are taken of: of more, the product is an atom."""
_SUMMANDS = 20_000
"""Monomials of a polynomial at most: more, and it is an atom. The norm of all gradients has one for each weight."""
_FAMILIES = {
    name: PRIMITIVES[name].family
    for name in named(Family.SUM, Family.DIFFERENCE, Family.PRODUCT, Family.QUOTIENT, Family.CAST)
}
_BITS = {law: 1 << i for i, law in enumerate(LAWS)}


class Reals:
    """The normal forms of one case. ``opaque``: terms that are atoms. ``positive``: numbers of the proof that are at
    least 1, ``natural`` those that are at least 0, and ``nonzero`` others that are not 0. ``truths``: what the case
    says of conditions, in normal form. ``scales``: the loss scales that leave the network as factors; ``calls``:
    functions that are linear."""

    def __init__(
        self,
        terms: Terms,
        opaque: Collection[int] = (),
        *,
        positive: Collection[int] = (),
        natural: Collection[int] = (),
        nonzero: Collection[int] = (),
        truths: Mapping[int, bool] | None = None,
        scales: Collection[int] = (),
        ranks: Ranks | None = None,
        calls: Mapping[int, LinearCall] | None = None,
    ):
        self.terms = terms
        self.opaque = opaque
        self.nonzero = frozenset((*positive, *nonzero))
        self.conditions = Conditions(terms, truths or {}, positive, natural, self.nonzero)
        self.scales = ScaleFactors(terms, scales, calls or {}) if scales else None
        self.ranks = ranks
        self._taken = 0
        self._masks: dict[int, int] = {}
        self._polynomials: dict[int, Polynomial] = {}
        self._forms: dict[int, int] = {}

    # -- the normal form of a term -----------------------------------------------------------------------------

    def form(self, number: int) -> int:
        """The normal form of a term."""
        found = self._forms.get(number)
        if found is None:
            for t in self._needed(number):
                self._settle(t)
            found = self._forms[number]
        return found

    def polynomial(self, number: int) -> Polynomial:
        self.form(number)
        return self._polynomials[number]

    @property
    def forms(self) -> Mapping[int, int]:
        """The normal forms that were made so far."""
        return self._forms

    def polynomial_of(self, form: int) -> Polynomial:
        """The polynomial of a normal form."""
        return self._polynomials_of_form(form)

    def is_nothing(self, number: int) -> bool:
        """Whether a term is 0, or false."""
        form = self.form(number)
        return not self._polynomials[number] or self.conditions.truth(form) is False

    def laws(self, numbers: Iterable[int]) -> set[str]:
        """The laws that the normal forms of these terms take."""
        mask = 0
        for number in numbers:
            self.form(number)
            mask |= self._masks.get(number, 0)
        return {law for i, law in enumerate(LAWS) if mask >> i & 1}

    def _use(self, law: str) -> None:
        self._taken |= _BITS[law]

    def _needed(self, root: int) -> list[int]:
        found: set[int] = set()
        stack = [root]
        forms, opaque, arguments = self._forms, self.opaque, self.terms.arguments
        while stack:
            t = stack.pop()
            if t in found or t in forms:
                continue
            found.add(t)
            if t not in opaque and not (self.scales and self.scales.of(t)[1] in opaque):
                stack.extend(a for a in arguments[t] if a not in forms)
        return sorted(found)

    def _settle(self, t: int) -> None:
        if t in self._forms:
            return
        self._taken = 0
        scale, base = self.scales.of(t) if self.scales else (ONE, t)
        if base in self.opaque:
            p: Polynomial = {times(scale, ((base, 1),)): Fraction(1)}
            if scale:
                self._use("linear")
        else:
            for a in self.terms.arguments[t]:
                self._taken |= self._masks.get(a, 0)
            p = self._compute(t)
        self._polynomials[t] = p
        self._forms[t] = self.term(p, self.terms.shapes[t], t)
        self._masks[t] = self._taken

    def term(self, p: Polynomial, shape: Shape, of: int | None = None) -> int:
        """A polynomial as a term of the given shape."""
        terms = self.terms
        if len(p) == 1:
            (monomial, coefficient), *_ = p.items()
            if coefficient == 1 and len(monomial) == 1 and monomial[0][1] == 1:
                atom = monomial[0][0]
                if terms.shapes[atom] == shape:
                    return atom
        if of is not None and terms.heads[of][0] == "const" and not self._number(of):
            return of
        items = sorted(p.items())
        head = ("sum", shape, tuple((c, tuple(e for _, e in m)) for m, c in items))
        return terms.make(head, tuple(a for m, _ in items for a, _ in m), shape)

    def _number(self, t: int) -> bool:
        value = self.terms.values.get(t)
        if isinstance(value, TensorValue):
            return value.type.dtype.is_float
        return isinstance(value, float) or (isinstance(value, Number) and isinstance(value.value, float))

    def _atom(self, t: int) -> Polynomial:
        return {((t, 1),): Fraction(1)}

    def _compute(self, t: int) -> Polynomial:
        terms = self.terms
        head = terms.heads[t]
        kind = head[0]
        if kind == "const":
            constant = self._constant(t)
            return self._atom(t) if constant is None else constant
        if kind == "sum":
            return self._sum(t)
        if kind == "ite":
            return self._branch(t, *terms.arguments[t])
        if kind == "op":
            found = self._operation(t, str(head[1]), head)
            if found is not None:
                return found
        arguments = terms.arguments[t]
        if not arguments:
            return self._atom(t)
        if kind == "item":
            whole = self._forms[arguments[0]]
            if terms.heads[whole][0] == "tuple" and isinstance(head[1], int):
                return self._polynomials_of_form(terms.arguments[whole][head[1]])
        return self._atom(self._rebuilt(t))

    def _rebuilt(self, t: int) -> int:
        terms = self.terms
        new = tuple(self._forms[a] for a in terms.arguments[t])
        if new == terms.arguments[t]:
            return t
        return terms.make(terms.heads[t], new, terms.shapes[t], terms.nodes[t])

    def _polynomials_of_form(self, form: int) -> Polynomial:
        if form not in self._forms:
            if self.terms.heads[form][0] == "sum":
                for a in self.terms.arguments[form]:
                    self._forms.setdefault(a, a)
                    self._polynomials.setdefault(a, self._atom(a))
                self._polynomials[form] = self._sum(form)
            else:
                self._polynomials[form] = self._atom(form)
            self._forms[form] = form
        return self._polynomials[form]

    def _sum(self, t: int) -> Polynomial:
        arguments = iter(self.terms.arguments[t])
        total: Polynomial = {}
        for coefficient, exponents in self.terms.heads[t][2]:  # type: ignore[attr-defined]
            summand: Polynomial = {ONE: coefficient}
            for e in exponents:
                argument = next(arguments)
                a = self._polynomials[argument] if e > 0 else self._inverse(argument)
                if a is None:
                    return self._atom(t)
                summand = product(summand, a, abs(e))
            total = plus(total, summand)
        return total

    def _constant(self, t: int) -> Polynomial | None:
        value = self.terms.values.get(t)
        if isinstance(value, TensorValue):
            if value.type.dtype is DType.BOOL or value.type.dtype in (DType.STRING, DType.BFLOAT16):
                return None
            if value.data.is_zero():
                return {}
            if value.type.size != 1:
                return None
            value = to_numpy(value.type, value.data).reshape(-1)[0].item()
        elif isinstance(value, Number):
            value = value.value
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not isfinite(value):
            return None
        return {ONE: Fraction(value)} if value else {}

    # -- primitives --------------------------------------------------------------------------------------------

    def _operation(self, t: int, name: str, head: tuple[object, ...]) -> Polynomial | None:
        terms = self.terms
        arguments = terms.arguments[t]
        said = head[3]
        dtype = said[0] if said else ""  # type: ignore[index]
        if name in CONDITIONS:
            return self._condition(t)
        if terms.shapes[t] is None:
            return None
        if name in ("Select",) and len(arguments) == 3:
            return self._branch(t, *arguments)
        if name in ("Maximum", "Minimum") and len(arguments) == 2:
            new = tuple(sorted(self._forms[a] for a in arguments))
            if new != tuple(self._forms[a] for a in arguments):
                self._use("extremes")
            return self._atom(terms.make(head, new, terms.shapes[t], terms.nodes[t]))
        if dtype == "bool":
            return None
        if self.ranks is not None:
            if self.ranks.sums(terms.nodes[t]):
                self._use("ranks")
                return self.ranks.total(self._forms[arguments[0]], self)
            if name in ("Reshape", "Slice"):
                plain = self._linear(t) or self._atom(self._rebuilt(t))
                return self._laid_out(plain)
        found = self._arithmetic(t, name, arguments, str(dtype))
        return self._linear(t) if found is None else found

    def _arithmetic(self, t: int, name: str, arguments: tuple[int, ...], dtype: str) -> Polynomial | None:
        terms = self.terms
        family = _FAMILIES.get(name, Family.OTHER)
        p = [self._polynomials[a] for a in arguments]
        floating = dtype in _FLOATS
        if family is Family.CAST:
            node = terms.nodes[t]
            source = node.operand(0).type if node is not None else None
            if floating and isinstance(source, TensorType) and source.dtype.is_float:
                if p[0] != self._atom(arguments[0]) or source.dtype.value != dtype:
                    self._use("cast")
                return p[0]
            truth = self.conditions.truth(self._forms[arguments[0]])
            if truth is not None:
                self._use("logic")
                return {ONE: Fraction(1)} if truth else {}
            return None
        if name in ZEROS:
            self._use("zeros")
            return {}
        if name == "OnesLike":
            self._use("zeros")
            return {ONE: Fraction(1)}
        if name in ("AddN", "AccumulateNV2") and arguments:
            parts = arguments
            if len(arguments) == 1 and terms.heads[arguments[0]][0] == "tuple":
                parts = terms.arguments[arguments[0]]
            total: Polynomial = {}
            for a in parts:
                total = plus(total, self._polynomials[a])
            return self._bounded(total, "sums")
        if family in (Family.SUM, Family.DIFFERENCE) and len(arguments) in (2, 3):
            factor = Fraction(1)
            if len(arguments) == 3:
                constant = p[2]
                if set(constant) - {ONE}:
                    return None
                factor = constant.get(ONE, Fraction(0))
            sign = -factor if family is Family.DIFFERENCE else factor
            return self._bounded(plus(p[0], {m: c * sign for m, c in p[1].items()}), "sums")
        if name == "Neg":
            return self._bounded({m: -c for m, c in p[0].items()}, "sums")
        if family is Family.PRODUCT and len(arguments) == 2 and len(p[0]) * len(p[1]) <= _MOST:
            return self._bounded(product(p[0], p[1]), "products")
        if name == "Square" and len(p[0]) <= 1:
            return self._bounded(product(p[0], p[0]), "products")
        if family is Family.QUOTIENT and len(arguments) == 2 and floating:
            inverse = self._inverse(arguments[1])
            return None if inverse is None else self._bounded(product(p[0], inverse), "quotients")
        if name == "Reciprocal" and floating:
            inverse = self._inverse(arguments[0])
            return None if inverse is None else self._bounded(inverse, "quotients")
        return None

    def _inverse(self, t: int) -> Polynomial | None:
        p = self._polynomials[t]
        if len(p) == 1:
            (monomial, coefficient), *_ = p.items()
            if all(a in self.nonzero for a, _ in monomial):
                return {power(monomial, -1): 1 / coefficient}
        if not p:
            return None
        form = self._forms[t]
        return self._atom(self.terms.make(("inverse",), (form,), self.terms.shapes[form]))

    def _bounded(self, p: Polynomial, law: str) -> Polynomial | None:
        if len(p) > _SUMMANDS:
            return None
        self._use(law)
        return p

    def _linear(self, t: int) -> Polynomial | None:
        """f(s·x) as s·f(x), where x is all that f is linear in and s is a scalar."""
        terms = self.terms
        node = terms.nodes[t]
        alternatives = linear_in(node) if node is not None else None
        arguments = terms.arguments[t]
        if alternatives is None or len(alternatives) != 1 or len(alternatives[0]) != 1:
            return None
        at = alternatives[0][0]
        if at >= len(arguments):
            return None
        p = self._polynomials[arguments[at]]
        if len(p) != 1:
            return {} if not p else None
        (monomial, coefficient), *_ = p.items()
        scalars = tuple((a, e) for a, e in monomial if terms.shapes[a] == ())
        others = tuple((a, e) for a, e in monomial if terms.shapes[a] != ())
        if not others:  # of numbers alone, those of the proof come out
            scalars = tuple((a, e) for a, e in monomial if a in self.nonzero or terms.heads[a][0] == "symbol")
            others = tuple(f for f in monomial if f not in scalars)
        if not others or (not scalars and coefficient == 1):
            return None
        inner = self.term({others: Fraction(1)}, terms.shapes[arguments[at]])
        new = tuple(inner if i == at else self._forms[a] for i, a in enumerate(arguments))
        self._use("linear")
        atom = terms.make(terms.heads[t], new, terms.shapes[t], node)
        return {times(scalars, ((atom, 1),)): coefficient}

    def _laid_out(self, p: Polynomial) -> Polynomial:
        """A rearrangement without what undoes itself."""
        (monomial, c), *others = p.items()
        atoms = [a for a, _ in monomial if self.terms.shapes[a] != ()]
        atoms = atoms or [a for a, e in monomial if e == 1 and self.terms.name(a) in ("Reshape", "Slice")]
        if others or len(atoms) != 1:
            return p
        found = laid_out(self.terms, atoms[0])
        if found == atoms[0]:
            return p
        self._use("layout")
        rest = tuple(f for f in monomial if f[0] != atoms[0])
        return product({rest: c}, self._polynomials_of_form(found))

    # -- conditions --------------------------------------------------------------------------------------------

    def _condition(self, t: int) -> Polynomial:
        arguments = self.terms.arguments[t]
        forms, polynomials = [self._forms[a] for a in arguments], [self._polynomials[a] for a in arguments]
        found = self.conditions.of(t, forms, polynomials)
        if isinstance(found, bool):
            self._use("logic")
            return self._atom(self.terms.constant(found))
        if found != self._rebuilt(t):
            self._use("logic")
        return self._atom(found)

    def _branch(self, t: int, condition: int, yes: int, no: int) -> Polynomial:
        truth = self.conditions.truth(self._forms[condition])
        if truth is not None:
            self._use("select")
            return self._polynomials[yes if truth else no]
        terms = self.terms
        a, b = self._forms[yes], self._forms[no]
        if a == b:
            self._use("select")
            return self._polynomials[yes]
        if not self._polynomials[no] and self._vanishes_without(self._polynomials[yes], self._forms[condition]):
            self._use("weights")
            return self._polynomials[yes]
        new = (self._forms[condition], a, b)
        if terms.name(new[0]) == "LogicalNot":
            self._use("select")
            new = (terms.arguments[new[0]][0], b, a)
        if terms.heads[t][0] == "ite" or terms.shapes[condition] == ():
            return self._atom(ite(terms, *new))
        return self._atom(terms.make(terms.heads[t], new, terms.shapes[t], terms.nodes[t]))

    def _vanishes_without(self, p: Polynomial, condition: int) -> bool:
        """Whether what has to be other than 0 by a condition is a factor of all of ``p``."""
        if self.terms.name(condition) != "NotEqual":
            return False
        a, b = (self._polynomials_of_form(form) for form in self.terms.arguments[condition])
        difference = plus(a, {m: -c for m, c in b.items()})
        factors = next(iter(difference)) if len(difference) == 1 else ONE
        if len(factors) != 1 or factors[0][1] != 1:
            return False
        return all(any(atom == factors[0][0] and e > 0 for atom, e in monomial) for monomial in p)
