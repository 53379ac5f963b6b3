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
from ..analysis.derivative.linear_operands import FILLS, SHAPE_ONLY, ZEROS, linear_in
from ..core.attributes import Number, TensorValue
from ..core.data import to_numpy
from ..core.primitives import Family
from ..core.types import DType, TensorType
from ..symbolic.execution import ite
from ..symbolic.terms import REAL, Shape, Terms
from .laws import LAWS
from .polynomial import ONE, Monomial, Polynomial, plus, power, product, times
from .ranks import Ranks, laid_out

_FLOATS = {REAL, *(d.value for d in DType if d.is_float)}
_MOST = 400
"""Monomials that products are taken of: of more, the product is an atom."""
_SUMMANDS = 20_000
"""Monomials of a polynomial at most: more, and it is an atom. The norm of all gradients has one for each weight."""
_COMPARISONS = ("Greater", "GreaterEqual", "Less", "LessEqual", "Equal", "NotEqual")
_DEEPEST = 60
"""Nodes through which a zero is followed."""


class Reals:
    """The normal forms of one case. ``opaque``: terms that are atoms. ``positive``: numbers of the proof that are at
    least 1, and ``nonzero`` others that are not 0. ``truths``: what the case says of conditions, in normal form.
    ``scales``: the loss scales that leave the network as factors; ``calls``: functions that are linear."""

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
        replaced: Mapping[int, int] | None = None,
        ranks: Ranks | None = None,
        calls: Mapping[int, LinearCall] | None = None,
    ):
        self.terms = terms
        self.opaque = opaque
        self.positive = frozenset(positive)
        self.natural = frozenset(natural)
        self.nonzero = frozenset((*positive, *nonzero))
        self.truths = dict(truths or {})
        self.scales = frozenset(scales)
        self.replaced = dict(replaced or {})
        self.ranks = ranks
        self.calls = calls or {}
        self._taken = 0
        self._masks: dict[int, int] = {}
        self._polynomials: dict[int, Polynomial] = {}
        self._forms: dict[int, int] = {}
        self._factored: dict[int, tuple[Monomial, int]] = {}
        self._scaled: dict[int, bool] = {}
        self._zeros: dict[int, bool] = {}
        self.tests: dict[int, int] = {}
        """Tests for finite values that were met, in normal form, and what they test."""

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
        return not self._polynomials[number] or self._truth(form) is False

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
            if t not in opaque and not (self.scales and self._factor(t)[1] in opaque):
                stack.extend(a for a in arguments[t] if a not in forms)
        return sorted(found)

    def _settle(self, t: int) -> None:
        if t in self._forms:
            return
        replaced = self.replaced.get(t)
        if replaced is not None:
            self._polynomials[t], self._forms[t] = {((replaced, 1),): Fraction(1)}, replaced
            return
        self._taken = 0
        scale, base = self._factor(t) if self.scales else (ONE, t)
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
        if name in ("LogicalNot", "LogicalAnd", "LogicalOr", "ReduceAll", "IsFinite", *_COMPARISONS):
            return self._logic(t, name, arguments)
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
                return self._in_place(plain)
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
            truth = self._truth(self._forms[arguments[0]])
            if truth is not None:
                self._use("logic")
                return {ONE: Fraction(1)} if truth else {}
            return None
        if name in ("ZerosLike", "ZerosLikeExt"):
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
        if not others or (not scalars and coefficient == 1):
            return None
        inner = self.term({others: Fraction(1)}, terms.shapes[arguments[at]])
        new = tuple(inner if i == at else self._forms[a] for i, a in enumerate(arguments))
        self._use("linear")
        atom = terms.make(terms.heads[t], new, terms.shapes[t], node)
        return {times(scalars, ((atom, 1),)): coefficient}

    def _in_place(self, p: Polynomial) -> Polynomial:
        """A rearrangement without what undoes itself."""
        (monomial, c), *others = p.items()
        atoms = [a for a, _ in monomial if self.terms.shapes[a] != ()]
        if others or len(atoms) != 1:
            return p
        found = laid_out(self.terms, atoms[0])
        if found == atoms[0]:
            return p
        self._use("layout")
        rest = tuple(f for f in monomial if f[0] != atoms[0])
        return product({rest: c}, self._polynomials_of_form(found))

    # -- conditions --------------------------------------------------------------------------------------------

    def _truth(self, form: int) -> bool | None:
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

    def _said(self, truth: bool) -> Polynomial:
        self._use("logic")
        return self._atom(self.terms.constant(truth))

    def _branch(self, t: int, condition: int, yes: int, no: int) -> Polynomial:
        truth = self._truth(self._forms[condition])
        if truth is not None:
            self._use("select")
            return self._polynomials[yes if truth else no]
        terms = self.terms
        a, b = self._forms[yes], self._forms[no]
        if a == b:
            self._use("select")
            return self._polynomials[yes]
        new = (self._forms[condition], a, b)
        if terms.name(new[0]) == "LogicalNot":
            self._use("select")
            new = (terms.arguments[new[0]][0], b, a)
        if terms.heads[t][0] == "ite" or terms.shapes[condition] == ():
            return self._atom(ite(terms, *new))
        return self._atom(terms.make(terms.heads[t], new, terms.shapes[t], terms.nodes[t]))

    def _logic(self, t: int, name: str, arguments: tuple[int, ...]) -> Polynomial:
        forms = [self._forms[a] for a in arguments]
        truths = [self._truth(f) for f in forms]
        if name == "LogicalNot":
            if truths[0] is not None:
                return self._said(not truths[0])
            if self.terms.name(forms[0]) == "LogicalNot":
                self._use("logic")
                return self._atom(self.terms.arguments[forms[0]][0])
        elif name in ("LogicalAnd", "LogicalOr"):
            absorbing = name == "LogicalOr"
            if absorbing in truths:
                return self._said(absorbing)
            unknown = [f for f, known in zip(forms, truths, strict=True) if known is None]
            nested = [self.terms.arguments[f] if self.terms.name(f) == name else (f,) for f in unknown]
            rest = sorted({f for of in nested for f in of})
            if not rest:
                return self._said(not absorbing)
            if len(rest) == 1:
                self._use("logic")
                return self._atom(rest[0])
            return self._known(
                self.terms.make(self.terms.heads[t], tuple(rest), self.terms.shapes[t], self.terms.nodes[t])
            )
        elif name in ("ReduceAll", "IsFinite"):
            if truths[0] is not None and name == "ReduceAll":
                return self._said(truths[0])
            rebuilt = self._rebuilt(t)
            if name == "IsFinite" and not self.terms.arguments[forms[0]] and self.terms.heads[forms[0]][0] == "sum":
                return self._said(True)  # a number, and over the reals it is finite
            if name == "IsFinite":
                self.tests.setdefault(rebuilt, forms[0])
            elif forms[0] in self.tests:
                self.tests.setdefault(rebuilt, self.tests[forms[0]])
            return self._known(rebuilt)
        elif len(arguments) == 2:
            decided = self._compared(name, *(self._polynomials[a] for a in arguments))
            if decided is not None:
                return self._said(decided)
        return self._known(self._rebuilt(t))

    def _known(self, form: int) -> Polynomial:
        truth = self.truths.get(form)
        return self._atom(form) if truth is None else self._said(truth)

    def _compared(self, name: str, a: Polynomial, b: Polynomial) -> bool | None:
        difference = plus(a, {m: -c for m, c in b.items()})
        if not difference:
            return name in ("Equal", "GreaterEqual", "LessEqual")
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

    # -- factors of the network --------------------------------------------------------------------------------

    def _depends(self, root: int) -> bool:
        """Whether a loss scale is part of the term."""
        known = self._scaled
        if root not in known:
            for t in self.terms.below([root], known):
                known[t] = t in self.scales or any(known[a] for a in self.terms.arguments[t])
        return known[root]

    def _factor(self, root: int) -> tuple[Monomial, int]:
        """A term as a product of loss scales and what is left: f(s·x) = s·f(x) from the scaled seeds on."""
        found = self._factored.get(root)
        if found is None:
            if not self._depends(root):
                return ONE, root
            for t in self.terms.below([root], self._factored):
                self._factored[t] = self._factor_one(t) if self._depends(t) else (ONE, t)
            found = self._factored[root]
        return found

    def _factor_one(self, t: int) -> tuple[Monomial, int]:
        terms = self.terms
        head, arguments = terms.heads[t], terms.arguments[t]
        if t in self.scales:
            return ((t, 1),), self._one()
        parts = [self._factored.get(a, (ONE, a)) for a in arguments]
        kind, name = head[0], terms.name(t)
        node = terms.nodes[t]
        if kind == "op" and node is not None:
            family = _FAMILIES.get(name, Family.OTHER)
            one = self._one()
            if family in (Family.PRODUCT, Family.QUOTIENT) and len(arguments) == 2:
                sign = 1 if family is Family.PRODUCT else -1
                for at, other in ((1, 0), (0, 1)):
                    if parts[at][1] == one and (at == 1 or sign == 1):
                        scale = times(parts[other][0], power(parts[at][0], sign if at == 1 else 1))
                        if parts[other][1] == one or terms.shapes[parts[other][1]] == terms.shapes[t]:
                            return scale, parts[other][1]
            if family is Family.CAST:
                return parts[0][0], self._cast(t, parts[0][1])
            if name in SHAPE_ONLY:
                return ONE, self._with(t, parts)
        if (kind == "op" or (kind == "written" and head[3] == 0)) and node is not None:
            return self._factor_linear(t, parts)
        if kind == "apply" and arguments[0] in self.calls:
            return self._factor_jointly(t, parts, self.calls[arguments[0]].operands) or (ONE, t)
        scales = {s for s, base in parts if not self._zero(base)}
        if kind == "tuple" and len(scales) == 1:
            return scales.pop(), self._with(t, parts)
        if kind == "item":
            call = self.calls.get(next(iter(terms.arguments[arguments[0]]), -1))
            scaled = call is None or head[1] in call.items or parts[0][0] == ONE
            return (parts[0][0], self._with(t, parts)) if scaled else (ONE, t)
        if kind == "ite" and parts[0][0] == ONE:
            joint = {s for s, base in parts[1:] if not self._zero(base)}
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

    def _factor_linear(self, t: int, parts: list[tuple[Monomial, int]]) -> tuple[Monomial, int]:
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
        found = (self._factor_jointly(t, parts, places_) for places_ in alternatives)
        return next((f for f in found if f is not None), (ONE, t))

    def _factor_jointly(
        self, t: int, parts: list[tuple[Monomial, int]], places: Collection[int]
    ) -> tuple[Monomial, int] | None:
        """The factor of what is linear in these places together; None where they do not have one."""
        inside = [parts[i] for i in places if i < len(parts) and not self._zero(parts[i][1])]
        outside = [parts[i] for i in range(len(parts)) if i not in places]
        if inside and len({s for s, _ in inside}) == 1 and all(s == ONE for s, _ in outside):
            return inside[0][0], self._with(t, parts)
        return None

    def _zero(self, root: int) -> bool:
        """Whether a term is zero everywhere: a constant, zeros like something, or such elements moved about."""
        known = self._zeros
        if root in known:
            return known[root]
        stack = [root]
        while stack:
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


def _families() -> dict[str, Family]:
    from ..core.primitives import PRIMITIVES

    wanted = (Family.SUM, Family.DIFFERENCE, Family.PRODUCT, Family.QUOTIENT, Family.CAST)
    return {n: f.family for n, f in PRIMITIVES.items() if f.family in wanted and not f.writes}


_FAMILIES = _families()
_BITS = {law: 1 << i for i, law in enumerate(LAWS)}
