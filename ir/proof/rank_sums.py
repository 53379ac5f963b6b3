"""Sums over ranks: what AllReduce makes of a term, with the number of ranks as a symbol.

Every rank runs the same program on data of its own. A state is the same on all ranks if it was at first, for each
update of it takes what is the same on all. Inputs, draws, and what the network learns for itself differ. So the sum of
a product over the ranks is what is the same in it, times the sum of what differs: of N micro-batches on each rank M on
all of them together, of N times the mean of their gradients M times the mean over all. Elements are summed where they
stand, so a rearrangement of a tensor is summed before or after it alike.
"""

from __future__ import annotations

from collections.abc import Collection
from fractions import Fraction
from typing import Protocol

from ..core.graph import Node
from ..rewrite.ranks.collectives import group_of, is_world
from ..symbolic.terms import Shape, Terms

Factors = tuple[tuple[int, int], ...]
Polynomial = dict[Factors, Fraction]


class Forms(Protocol):
    """Normal forms, as :mod:`.reals` makes them."""

    opaque: Collection[int]

    def polynomial(self, number: int) -> Polynomial: ...

    def polynomial_of(self, form: int) -> Polynomial: ...

    def term(self, p: Polynomial, shape: Shape) -> int: ...


class Ranks:
    """``own``: terms that every rank has for itself, besides draws. ``kept`` and ``gone``: the numbers of micro-batches
    of one rank that count and that do not, and ``all_kept``, ``all_gone`` of all ranks together; ``ranks``: how many
    there are. ``alike``: all take as many micro-batches a cycle, a number that the program knows."""

    def __init__(self, terms: Terms, own: Collection[int], kept: int, gone: int, *, alike: bool = False):
        self.terms, self.own = terms, frozenset((*own, kept, gone))
        self.ranks, self.all_kept, self.all_gone = (terms.make(("symbol", name), (), ()) for name in "RME")
        self.totals = {kept: self.all_kept, gone: self.all_gone}
        self.alike = alike
        self._differs: dict[int, bool] = {}

    def mean(self, t: int) -> int:
        """The mean of a term over all micro-batches of all ranks."""
        head, arguments = self.terms.heads[t], self.terms.arguments[t]
        if head[0] == "op" and head[1] == "Reshape":
            moved = (self.mean(arguments[0]), *arguments[1:])
            return self.terms.make(head, moved, self.terms.shapes[t], self.terms.nodes[t])
        return self.terms.make(("all",), (t,), self.terms.shapes[t], self.terms.nodes[t], 2)

    def differs(self, root: int) -> bool:
        """Whether a term may be another one on each rank."""
        known, terms = self._differs, self.terms
        for t in terms.below([root], known):
            kind = terms.heads[t][0]
            known[t] = kind != "all" and (kind == "draw" or t in self.own or any(known[a] for a in terms.arguments[t]))
        return known[root]

    def sums(self, node: Node | None) -> bool:
        """Whether a node sums over all ranks."""
        return (
            node is not None and node.op.name == "AllReduce" and is_world(group_of(node))
            and node.op.attributes.get("op", "sum") == "sum"
        )  # fmt: skip

    def total(self, form: int, reals: Forms) -> Polynomial:
        """The sum over the ranks of a term in normal form."""
        terms = self.terms
        name, arguments = terms.name(form), terms.arguments[form]
        joins = name == "Concat" and form not in reals.opaque  # what the network joined has a mean as a whole
        if terms.heads[form][0] == "op" and (name == "Reshape" or joins) and self.differs(form):
            inner = arguments[0]
            if terms.heads[inner][0] == "tuple":
                parts = [reals.term(self.total(a, reals), terms.shapes[a]) for a in terms.arguments[inner]]
                new = terms.make(("tuple",), tuple(parts))
            else:
                new = reals.term(self.total(inner, reals), terms.shapes[inner])
            moved = terms.make(terms.heads[form], (new, *arguments[1:]), terms.shapes[form], terms.nodes[form])
            return reals.polynomial(moved)
        total: Polynomial = {}
        for monomial, c in reals.polynomial_of(form).items():
            same = tuple((a, e) for a, e in monomial if not self.differs(a))
            for factors, d in self._of_product(tuple(f for f in monomial if f not in same), reals).items():
                key = tuple(sorted(_merged((*same, *factors))))
                total[key] = total.get(key, Fraction(0)) + c * d
        return {m: c for m, c in total.items() if c}

    def _of_product(self, factors: Factors, reals: Forms) -> Polynomial:
        """The sum over the ranks of a product of what differs between them."""
        terms = self.terms
        if not factors:
            return {((self.ranks, 1),): Fraction(1)}
        counts = [a for a, e in factors if a in self.totals and e == 1]
        others = [a for a, e in factors if a not in counts and e == 1]
        if len(counts) + len(others) == len(factors) and len(counts) <= 1 and len(others) <= 1:
            number = self.totals[counts[0]] if counts else self.ranks
            if not others:
                return {((number, 1),): Fraction(1)}
            mean = self._mean_of(others[0], reals, cycle=bool(counts))
            if mean is not None:
                return {tuple(sorted(((number, 1), (mean, 1)))): Fraction(1)}
        product = reals.term({factors: Fraction(1)}, max((terms.shapes[a] or () for a, _ in factors), key=len))
        return {((terms.make(("over ranks",), (product,), terms.shapes[product]), 1),): Fraction(1)}

    def _mean_of(self, atom: int, reals: Forms, *, cycle: bool) -> int | None:
        """The mean over all ranks of one rank's mean, which may be rearranged; None of anything else."""
        terms = self.terms
        head, arguments = terms.heads[atom], terms.arguments[atom]
        if head[0] == "mean":
            return self.mean(arguments[0]) if cycle or self.alike else None
        if head[0] == "op" and head[1] == "Reshape":
            inner = self._mean_of(arguments[0], reals, cycle=cycle)
            if inner is None:
                return None
            return terms.make(head, (inner, *arguments[1:]), terms.shapes[atom], terms.nodes[atom])
        return None if cycle or terms.traits[atom] & 2 else self.mean(atom)


def _merged(factors: Factors) -> Factors:
    powers: dict[int, int] = {}
    for atom, e in factors:
        powers[atom] = powers.get(atom, 0) + e
    return tuple((a, e) for a, e in powers.items() if e)


def laid_out(terms: Terms, atom: int) -> int:
    """A rearranged term without what undoes itself: a Reshape of a Reshape, or to its own shape, and a Slice at the
    bounds of what a Concat put there."""
    name, arguments = terms.name(atom), terms.arguments[atom]
    if terms.heads[atom][0] != "op" or not arguments:
        return atom
    inner = arguments[0]
    if name == "Reshape":
        if terms.heads[inner][0] == "op" and terms.name(inner) == "Reshape":
            inner = terms.arguments[inner][0]
        if terms.shapes[inner] is not None and terms.shapes[inner] == terms.shapes[atom]:
            return inner
        return terms.make(terms.heads[atom], (inner, *arguments[1:]), terms.shapes[atom], terms.nodes[atom])
    if name == "Slice" and terms.name(inner) == "Concat" and terms.heads[terms.arguments[inner][0]][0] == "tuple":
        begin, at = terms.values.get(arguments[1]), 0
        for part in terms.arguments[terms.arguments[inner][0]]:
            shape = terms.shapes[part]
            if shape is None or len(shape) != 1:
                return atom
            if begin == (at,) and shape == terms.shapes[atom]:
                return part
            at += shape[0]
    return atom
