"""Common subexpression elimination: what is computed twice is computed once."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from typing import Any

from ..ir.analysis.training.network import mark
from ..ir.core.attributes import bits
from ..ir.core.graph import Constant, Graph, GraphRef, Node, Origin, Value
from ..ir.core.op import Op
from ..ir.core.predicates import is_ordering, is_pure, is_random, may_act
from ..ir.core.program import Program
from ..ir.core.report import PassResult
from ..ir.core.sites import site
from ..ir.core.types import FunctionType, TensorType, Type
from ..ir.core.wording import agreed, counted
from ..ir.rewrite.ranks.collectives import is_collective
from .framework.base import Pass


class CommonSubexpressionElimination(Pass):
    """Merges nodes that compute the same bits from the same operands; the first one stays.

    Operands, attributes and types are compared by their bits. The pass never merges random nodes, effects, collectives,
    closures, tokens and Depend. Two Loads of one state under one token do merge. Two nodes merge only if both are
    forward or both backward, and their marks are equal or one has none.

    Preserves training bit for bit.

    Source: value numbering, Cocke and Schwartz, 1970.
    """

    name = "common-subexpression-elimination"
    may_match_nothing = True

    def run(self, program: Program) -> PassResult:
        result = self.result()
        constants = 0
        for graph in program.graphs.values():
            for body in graph.all_graphs():
                constants += _merge_equal_nodes(body, self.name, result)
        result.statistics = {"nodes": result.changed, "constants": constants}
        result.summary = _summary(result.changed, result.matched, constants)
        result.matched += constants
        result.changed += constants
        return result


def _summary(merged: int, equal: int, constants: int) -> str:
    parts = []
    if equal:
        parts.append(f"{merged} of {counted(equal, 'node')} that {agreed(equal, 'repeats', 'repeat')} another")
    if constants:
        parts.append(counted(constants, "equal constant"))
    return f"merged {' and '.join(parts)}" if parts else "no node repeats another"


def _merge_equal_nodes(graph: Graph, editor: str, result: PassResult) -> int:
    """One sweep in order: operands of a node are final when it is met. Returns how many constants were merged."""
    firsts: dict[Hashable, Node] = {}
    anywhere: dict[Hashable, Node] = {}
    merged: dict[Node, list[Node]] = {}
    operands = _Operands(graph)
    met, undated = operands.met, operands.undated
    ops: dict[Op, int] = {}
    types: dict[int, tuple[Type, int]] = {}
    numbers: dict[Hashable, int] = {}  # the same for primitives, and for types, that are equal
    for node in graph:
        op, type_ = node.op, node.type
        if not met.issuperset(node._operands):
            operands.meet(node)
        met.add(node)
        if type_.__class__ is TensorType and type_.ref:
            undated.add(node)
        number = ops.get(op)
        if number is None:
            number = ops[op] = numbers.setdefault(op.key, len(numbers)) if _may_merge(node) else _NEVER
        if number == _NEVER or type_.__class__ is FunctionType:
            continue
        if op.name != "Load":
            if may_act(node) and not is_pure(node):
                continue
            if not undated.isdisjoint(node._operands):
                continue
        known = types.get(id(type_))
        if known is None:
            known = types[id(type_)] = type_, numbers.setdefault(type_, len(numbers))
        key = (number, known[1], *node._operands)
        equal = anywhere.setdefault(key, node)
        if equal is node:
            continue
        result.matched += 1
        firsts.setdefault((key, mark(equal)), equal)
        first = firsts.setdefault((key, mark(node)), node)
        if first is not node and not _agree(first, node):
            first = firsts.setdefault((key, mark(node), _notes(node)), node)
        if first is node:
            result.miss(_site(node), f"equals %{equal.name}, but stands for another part of the training step")
            continue
        first.primal = first.primal or node.primal
        first.marks = first.marks or node.marks
        merged.setdefault(first, []).append(node)
        graph.substitute(node, first)
        result.changed += 1
    for first, others in merged.items():
        first.origin = _merged_origin([first, *others], editor)
    return operands.merged


_NEVER = -1
"""In the place of a primitive's number: its nodes never merge."""


class _Operands:
    """What nodes take. Of equal constants, and of references to one function, the first stands for all."""

    def __init__(self, graph: Graph) -> None:
        aliases = [v for v in graph.inputs if isinstance(v.type, TensorType) and v.type.ref]
        self.met: set[Value] = {*graph.inputs, *graph.states.values()}
        self.undated: set[Value] = {*graph.states.values(), *aliases}
        """States and aliases of them: what one holds depends on when it is read."""
        self.merged = 0
        """How many constants another one stands for."""
        self._firsts: dict[Hashable, Value] = {}

    def meet(self, node: Node) -> None:
        """Constants and functions that it is the first to take."""
        for operand in node.operands:
            if operand in self.met:
                continue
            self.met.add(operand)
            if isinstance(operand, Constant):
                first = self._firsts.setdefault((bits(operand.value), operand.type), operand)
                self.merged += first is not operand
            elif isinstance(operand, GraphRef):
                first = self._firsts.setdefault(operand.graph, operand)
            else:
                continue
            if first is not operand:
                operand.replace_uses(first)


def _may_merge(node: Node) -> bool:
    """Whether Loads, or nodes of this primitive that take no token, may merge. The user's own communication primitives
    name a group of ranks (a convolution's ``group`` is a number)."""
    if is_ordering(node) or is_random(node) or is_collective(node):
        return False
    return not isinstance(node.op.attributes.get("group"), str)


def _agree(a: Node, b: Node) -> bool:
    """Whether nothing is lost by one node standing for both."""
    return all(not x or not y or x is y or _bits(x) == _bits(y) for x, y in ((a.primal, b.primal), (a.marks, b.marks)))


def _notes(node: Node) -> Hashable:
    return (_bits(node.primal), _bits(node.marks))


def _bits(notes: Mapping[str, Any]) -> Hashable:
    return frozenset((name, bits(value)) for name, value in notes.items())


def _merged_origin(nodes: Sequence[Node], editor: str) -> Origin:
    sources: list[str] = []
    passes: list[str] = []
    for node in nodes:
        sources.extend(node.origin.sources if node.origin and node.origin.sources else (node.name,))
        passes.extend(node.origin.passes if node.origin else ())
    return Origin(tuple(dict.fromkeys(sources)), (*dict.fromkeys(p for p in passes if p != editor), editor))


def _site(node: Node) -> str:
    return f"{node.home.name}: {site(node)}"
