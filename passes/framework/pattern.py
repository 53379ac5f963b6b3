"""Patterns of nodes, and rewriting by them.

    double_negation = Rewrite(
        op("Neg", op("Neg", any_value("x"))),
        lambda graph, m: m["x"],
    )
    double_negation.run(program, self.result())

A pattern is written down from its root, the node that is replaced, towards the operands:

* ``op(names, *operands)``: a node of one of these primitives. ``...`` as the last operand stands for any others.
  ``attributes``: values that some must have. ``commutative``: its first two operands may stand in either order.
  ``single_use``: nothing else may use it (a node that others use stays anyway; this is for rewrites that pay only if
  it goes). ``where``: a function of the node that says what speaks against it, or None.
* ``any_value(name)``: anything; one name stands for one value, wherever it occurs. ``constant(name)``: a constant.

Where the primitives match but a condition does not hold, that is a miss: it is reported with the reason. Looking at a
node costs what its pattern has of nodes, so a whole graph costs its nodes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from types import EllipsisType
from typing import Any

from ...ir.analysis.compare.equal import same
from ...ir.core.errors import VerifyError
from ...ir.core.graph import Constant, Graph, Node, Origin, Value
from ...ir.core.op import NO_ATTRIBUTES
from ...ir.core.predicates import is_effect
from ...ir.core.program import Program
from ...ir.core.report import PassResult
from ...ir.core.sites import site

Condition = Callable[[Any], "str | None"]
"""Of a value: what speaks against it, None if nothing does."""


class Declined(Exception):
    """A match that fails in a condition, or that cannot be rewritten: the message says why."""


@dataclass(frozen=True, slots=True)
class Match:
    """``root`` and all ``nodes`` of the pattern, root first; values by the names that the pattern gives them."""

    root: Node
    nodes: tuple[Node, ...]
    values: Mapping[str, Value]

    def __getitem__(self, name: str) -> Value:
        return self.values[name]

    def node(self, name: str) -> Node:
        found = self.values[name]
        assert isinstance(found, Node)
        return found


@dataclass(frozen=True, slots=True)
class _Found:
    """A match in the making. ``conditions``: what must hold of which value."""

    values: Mapping[str, Value]
    nodes: tuple[Node, ...] = ()
    conditions: tuple[tuple[Condition, Value], ...] = ()

    def with_value(self, name: str, value: Value, *conditions: Condition | None) -> _Found | None:
        """None where the name stands for another value already."""
        if self.values.get(name, value) is not value:
            return None
        values = {**self.values, name: value} if name else self.values
        return _Found(values, self.nodes, (*self.conditions, *((c, value) for c in conditions if c is not None)))

    def reasons(self) -> list[str]:
        """Of the conditions that do not hold."""
        return [reason for condition, value in self.conditions if (reason := condition(value)) is not None]


@dataclass(frozen=True, slots=True)
class ValuePattern:
    """Any value; made by :func:`any_value`, or of constants alone by :func:`constant`."""

    name: str
    constant: bool
    equal: Any
    where: Condition | None

    def ways(self, value: Value, found: _Found) -> Iterator[_Found]:
        """``found`` with what this adds to it, if it fits."""
        if self.constant and not isinstance(value, Constant):
            return
        if self.equal is not None and not (isinstance(value, Constant) and same(value.value, self.equal)):
            return
        following = found.with_value(self.name, value, self.where)
        if following is not None:
            yield following


@dataclass(frozen=True, slots=True)
class OpPattern:
    """A node; made by :func:`op`."""

    ops: frozenset[str]
    operands: tuple[ValuePattern | OpPattern, ...]
    more: bool
    name: str
    attributes: Mapping[str, Any]
    commutative: bool
    single_use: bool
    where: Condition | None

    def match(self, root: Node) -> Match | None:
        """The match of the pattern with ``root`` as its root; None where there is none. :class:`Declined` where a
        condition does not hold."""
        if root.op.name not in self.ops:
            return None
        declined: list[str] = []
        for found in self.ways(root, _Found({})):
            reasons = found.reasons()
            if not reasons:
                return Match(root, found.nodes, found.values)
            declined = declined or reasons
        if declined:
            raise Declined("; ".join(declined))
        return None

    def ways(self, value: Value, found: _Found) -> Iterator[_Found]:
        """``found`` with what this adds to it, for each order of operands that fits."""
        if not isinstance(value, Node) or value.op.name not in self.ops:
            return
        count = len(self.operands)
        if value.num_operands < count or (value.num_operands > count and not self.more):
            return
        for name, wanted in self.attributes.items():
            if name not in value.attributes or not same(value.attributes[name], wanted):
                return
        inner = bool(found.nodes)
        here = found.with_value(self.name, value, self.where, _only_use if self.single_use and inner else None)
        if here is None:
            return
        here = _Found(here.values, (*here.nodes, value), here.conditions)
        yield from self._operands_from(0, value, (0, 1), here)
        if self.commutative:
            yield from self._operands_from(0, value, (1, 0), here)

    def _operands_from(self, i: int, node: Node, order: tuple[int, int], found: _Found) -> Iterator[_Found]:
        if i == len(self.operands):
            yield found
            return
        for following in self.operands[i].ways(node.operand(order[i] if i < 2 else i), found):
            yield from self._operands_from(i + 1, node, order, following)


def _only_use(node: Node) -> str | None:
    once = len(node.uses) == 1 and all(isinstance(at, int) for at in node.uses.values())
    return None if once else f"{site(node)} has other uses"


def any_value(name: str = "", where: Condition | None = None) -> ValuePattern:
    """Any value, by that name if it has one."""
    return ValuePattern(name, False, None, where)


def constant(name: str = "", equal: Any = None, where: Condition | None = None) -> ValuePattern:
    """A constant; with ``equal``, of this value (compared by bits)."""
    return ValuePattern(name, True, equal, where)


def op(
    names: str | Iterable[str],
    *operands: ValuePattern | OpPattern | EllipsisType,
    name: str = "",
    attributes: Mapping[str, Any] = NO_ATTRIBUTES,
    commutative: bool = False,
    single_use: bool = False,
    where: Condition | None = None,
) -> OpPattern:
    """A node of one of the primitives ``names``; see the head of this file."""
    more = bool(operands) and operands[-1] is ...
    given = [o for o in operands if not isinstance(o, EllipsisType)]
    if len(given) != len(operands) - more or (commutative and len(given) < 2):
        raise ValueError("'...' stands last, and a commutative op has at least two operands")
    ops = frozenset([names] if isinstance(names, str) else names)
    return OpPattern(ops, tuple(given), more, name, dict(attributes), commutative, single_use, where)


Build = Callable[[Graph, Match], Value]
"""Makes what takes the root's place; raises :class:`Declined` (before it makes anything) where it cannot."""


@dataclass(frozen=True, slots=True)
class Rewrite:
    """Replaces what a pattern finds. New nodes get scope, notes of forward and backward, and provenance from the root;
    a scope that the builder gives stays. Nodes of the pattern that nothing uses any more are removed."""

    pattern: OpPattern
    build: Build

    def run(self, program: Program, result: PassResult) -> PassResult:
        """Rewrites all graphs of a program, each node once, operands before users; counts, and reports misses."""
        for graph in program.graphs.values():
            for body in graph.all_graphs():
                self.sweep(body, result)
        return result

    def sweep(self, graph: Graph, result: PassResult) -> None:
        """The same for one graph, without its functions."""
        for node in graph:
            try:
                match = self.pattern.match(node)
                if match is not None:
                    self.replace(match)
                    result.changed += 1
                    result.matched += 1
            except Declined as reason:
                result.matched += 1
                result.miss(node.scope or f"%{node.name}", str(reason))

    def at(self, root: Node) -> Value:
        """Rewrites one node, which must match; returns what stands in its place."""
        match = self.pattern.match(root)
        if match is None:
            raise VerifyError(f"{root!r} is not what is to be rewritten")
        return self.replace(match)

    def replace(self, match: Match) -> Value:
        """Rewrites one match; returns what stands in the root's place."""
        root = match.root
        graph = root.graph
        if graph is None:
            raise VerifyError(f"{root!r} stands in no graph: it was replaced already")
        if is_effect(root):
            raise Declined(f"{root.op.name} has an effect, which only ir/rewrite/effects/editing.py may take out")
        following, sites = root.next, list(root.use_sites())
        with graph.inserting_after(root):
            new = self.build(graph, match)
        if new.type != root.type:
            raise VerifyError(f"{root!r} would be replaced by {new!r}, which has another type")
        self._derive(match, following)
        for user, i in sites:  # not those in the replacement itself
            user.set_operand(i, new)
        for node in match.nodes:  # users before operands
            if not node.uses and node.graph is graph and not is_effect(node):
                graph.erase(node)
        return new

    @staticmethod
    def _derive(match: Match, end: Node | None) -> None:
        """Notes on the new nodes, which stand between the root and ``end``, where they come from."""
        root = match.root
        sources = dict.fromkeys(
            s for old in match.nodes for s in (old.origin.sources if old.origin and old.origin.sources else (old.name,))
        )
        node = root.next
        while node is not None and node is not end:
            node.origin = Origin(tuple(sources), node.origin.passes if node.origin else ())
            node.scope = node.scope or root.scope
            node.primal = node.primal or root.primal
            node = node.next
