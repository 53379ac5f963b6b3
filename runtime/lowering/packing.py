"""On CPU: what passes compute from each small gradient is computed from all of them at once.

A kernel takes 3 µs or more, however small its operands. A finite check, a division by the loss scale and a clip are
five kernels for each gradient. Gradients that take the same way are joined, take it as one tensor, and are taken apart
where it ends. The bits are those of each by itself. Norms stay: they would add in another order.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from ...ir.analysis.effects.tokens import orders_only
from ...ir.builders.packing import join, part
from ...ir.builders.reduce import BIG, all_finite, all_true
from ...ir.core.graph import Graph, Node, Value, rewire, tensor_type
from ...ir.core.inference import infer
from ...ir.core.primitives import CPU
from ...ir.core.types import DType, TensorType
from ...ir.core.walk import walk
from ...ir.core.wording import counted
from .context import Context
from .finite_test import is_finite_test

FEWEST = 3
"""Tensors that are worth being joined."""
_LONGEST = 3
"""Scalings one behind the other that are followed: by the loss scale, by a clip."""
_BY_A_NUMBER = ("Mul", "RealDiv")


def applies(graph: Graph, context: Context) -> bool:
    return context.target == CPU and bool(_packs(graph))


def run(graph: Graph, context: Context) -> str:
    packs = _packs(graph)
    conjunctions = _conjunctions(graph)
    answers: dict[Value, Value] = {}
    for ways in packs:
        _go(graph, join(graph, [way.value for way in ways], scope=""), ways, answers)
    for whole in dict.fromkeys(conjunctions[answer] for answer in answers if isinstance(answer, Node)):
        _ask_once(graph, whole, conjunctions, answers)
    old = {node for ways in packs for way in ways for node in way.nodes()}
    old |= {user for node in old for user in node.users if user.op.name == "ReduceAll"}
    graph.erase_all(node for node in list(graph) if node in old)
    graph.sort()
    return f"{counted(sum(map(len, packs)), 'small tensor')} tested and scaled together"


@dataclass(frozen=True, slots=True)
class _Way:
    """What becomes of a value: tests for infinities and NaN, products with numbers and their ways, and whether anything
    else takes it. Those of one ``kind`` may go together."""

    value: Value
    tests: tuple[Node, ...]
    scaled: tuple[_Way, ...]
    passed_on: bool
    kind: Hashable

    @property
    def measures(self) -> bool:
        return bool(self.tests) or any(way.measures for way in self.scaled)

    def nodes(self) -> Iterable[Node]:
        yield from self.tests
        for way in self.scaled:
            assert isinstance(way.value, Node)
            yield way.value
            yield from way.nodes()


def _packs(graph: Graph) -> list[list[_Way]]:
    """The values that go the same way, in the order of the graph."""
    found: dict[Hashable, list[_Way]] = {}
    behind: set[Value] = set()
    conjunctions = _conjunctions(graph)
    measured = dict.fromkeys(n.operand(0) for n in graph if is_finite_test(n))
    for value in measured:
        start = value
        for _ in range(_LONGEST):
            if not (isinstance(start, Node) and start.op.name in _BY_A_NUMBER and _is_scaling(start)):
                break
            start = start.operand(0)
        if start in behind:
            continue
        behind.add(start)
        if _is_small(start):
            way = _way(start, _LONGEST, conjunctions)
            if way.measures:
                found.setdefault(way.kind, []).append(way)
    return [ways for ways in found.values() if len(ways) >= FEWEST and _may_wait(ways)]


def _is_small(value: Value) -> bool:
    type_ = value.type
    small = isinstance(type_, TensorType) and type_.is_static and type_.dtype is DType.FLOAT32
    return small and 0 < tensor_type(value).size < BIG


def _is_scaling(node: Node) -> bool:
    """Whether a node multiplies its first operand by a number, or divides it."""
    by = node.operand(1).type
    return isinstance(by, TensorType) and by.shape == () and node.type == _plain(node.operand(0))


def _plain(value: Value) -> TensorType | None:
    return TensorType(value.type.dtype, value.type.shape) if isinstance(value.type, TensorType) else None


def _way(value: Value, longest: int, conjunctions: Mapping[Node, Node]) -> _Way:
    tests, scaled, passed_on = [], [], False
    for user, i in value.use_sites():
        if is_finite_test(user):
            tests.append(user)
        elif longest and i == 0 and user.op.name in _BY_A_NUMBER and _is_scaling(user):
            scaled.append(_way(user, longest - 1, conjunctions))
        else:
            passed_on = True
    scalings = tuple(((way.value.op, way.value.operand(1)), way.kind) for way in scaled if isinstance(way.value, Node))
    asked = tuple(conjunctions[answer] for test in tests for answer in test.uses)
    kind = (asked, scalings, passed_on or longest == _LONGEST)
    return _Way(value, tuple(tests), tuple(scaled), passed_on, kind)


def _may_wait(ways: Sequence[_Way]) -> bool:
    """Whether no value is computed from what becomes of another."""
    values = {way.value for way in ways}
    starts = [node for way in ways for node in way.nodes()]
    return not any(node in values for node in walk(starts, lambda node: node.users))


def _go(graph: Graph, joined: Node, ways: Sequence[_Way], answers: dict[Value, Value]) -> None:
    """Lets ``joined`` go the way of each of ``ways``, whose values it holds; in ``answers``, what takes the place of
    the answers of their tests."""
    first = ways[0]
    if first.tests:
        answer = all_finite(graph, [joined], scope=first.tests[0].scope)
        answers.update((old, answer) for way in ways for test in way.tests for old in test.uses)
    for k, scaled in enumerate(first.scaled):
        node = scaled.value
        assert isinstance(node, Node)
        product = graph.create(node.op, [joined, node.operand(1)], tensor_type(joined), scope=node.scope)
        inner = [way.scaled[k] for way in ways]
        _go(graph, product, inner, answers)
        if scaled.passed_on:
            _take_apart(graph, product, inner)


def _conjunctions(graph: Graph) -> dict[Node, Node]:
    """For each scalar answer the conjunction that it is a part of, and nothing else takes: itself where there is
    none."""
    whole: dict[Node, Node] = {}
    for node in reversed(graph):
        if node.op.name in ("ReduceAll", "LogicalAnd"):
            users = list(node.use_sites())
            joins = len(users) == 1 and users[0][0].op.name == "LogicalAnd"
            whole[node] = whole[users[0][0]] if joins else node
    return whole


def _ask_once(graph: Graph, whole: Node, conjunctions: Mapping[Node, Node], answers: Mapping[Value, Value]) -> None:
    """Makes a conjunction of what takes the place of its parts, each once."""

    def joins(node: Node) -> list[Node]:
        return [v for v in node.operands if isinstance(v, Node) and v.op is whole.op and conjunctions[v] is whole]

    inner = dict.fromkeys(walk([whole], joins))
    parts = [v for node in inner for v in node.operands if v not in inner]
    whole.replace_uses(all_true(graph, list(dict.fromkeys(answers.get(v, v) for v in parts)), scope=whole.scope))
    graph.erase_all(inner)


def _take_apart(graph: Graph, joined: Node, ways: Sequence[_Way]) -> None:
    """Who takes one of the values takes its part of ``joined``; who merely waits for it, waits for all of them."""
    begin = 0
    for way in ways:
        type_ = tensor_type(way.value)
        taken = {*way.tests, *(inner.value for inner in way.scaled)}
        uses = [(user, i) for user, i in way.value.use_sites() if user not in taken]
        waiting = {use: None for use in uses if orders_only(*use)}
        for user, i in waiting:
            user.set_operand(i, joined)
            user.type = infer(user.op, user.operands)
        if len(waiting) < len(uses):
            single = part(graph, joined, begin, type_.shape, scope="")
            rewire((use for use in uses if use not in waiting), single)
        begin += type_.size
