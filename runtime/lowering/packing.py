"""On CPU: what passes compute from each small gradient is computed from all of them at once.

A kernel takes 3 µs or more, however small its operands. A finite check, a norm, a division by the loss scale and a clip
are seven kernels for each gradient. Gradients that take the same way are joined, take it as one tensor, and are taken
apart where it ends. The bits are those of each by itself, but for a sum of squares, which adds in another order: in a
job of several ranks each is a sum by itself, so that ranks which hold other parts of the gradients add in one order. A
product that nothing measures stays, as it is one kernel for each gradient, as taking apart would be; but not where an
update takes all of them as they are joined (:mod:`.joint_updates`). Gradients of such updates stand side by side.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from ...ir.analysis.effects.tokens import orders_only
from ...ir.builders.packing import join, part, places, without_idle_reshape
from ...ir.builders.reduce import BIG, LONGEST_ROW, all_finite, square_sum
from ...ir.core.attributes import TensorValue
from ...ir.core.data import ZeroData
from ...ir.core.graph import Graph, Node, Value, rewire, tensor_type
from ...ir.core.inference import infer
from ...ir.core.primitives import CPU
from ...ir.core.types import DType, TensorType
from ...ir.core.walk import walk
from ...ir.core.wording import counted
from .arenas import ALIGNED
from .context import Context
from .measures import add_once, ask_once, conjunctions_of, is_finite_test, is_scaling, places_of_sums, square_sum_from
from .update_groups import SMALL, kinds_of_updates

FEWEST = 3
"""Tensors that are worth being joined."""
_SquareSum = Callable[[Node], tuple[Node, ...]]
_LONGEST = 3
"""Scalings one behind the other that are followed: by the loss scale, by a clip."""


def applies(graph: Graph, context: Context) -> bool:
    return context.target == CPU and bool(_packs(graph, context))


def run(graph: Graph, context: Context) -> str:
    packs = _packs(graph, context)
    conjunctions = conjunctions_of(graph)
    answers: dict[Value, Value] = {}
    sums: dict[Value, Value] = {}
    for ways in packs:
        multiple = ALIGNED if any(way.update is not None for way in ways) else 1
        _go(graph, _joined(graph, ways, multiple), multiple, ways, answers, sums)
    for whole in dict.fromkeys(conjunctions[answer] for answer in answers if isinstance(answer, Node)):
        ask_once(graph, whole, conjunctions, answers)
    for whole in dict.fromkeys(total for old in sums for total in old.users):
        add_once(graph, whole, sums)
    old = {node for ways in packs for way in ways for node in way.nodes()}
    old |= {user for node in old for user in node.users if user.op.name == "ReduceAll"}
    graph.erase_all(node for node in list(graph) if node in old)
    graph.sort()
    return f"{counted(sum(map(len, packs)), 'small tensor')} measured and scaled together"


def _sums(context: Context) -> _SquareSum:
    """How sums of squares that may be joined are found."""
    return square_sum_from if context.ranks == 1 else lambda node: ()


def _joined(graph: Graph, ways: Sequence[_Way], multiple: int) -> Value:
    """The values as one, each from such a multiple of elements on; of many elements to add up, with zeros at the end up
    to a whole number of rows."""
    values = [way.value for way in ways]
    _, size = places((tensor_type(value).size for value in values), multiple)
    if size >= BIG and size % LONGEST_ROW and any(True for _ in ways[0].sums()):
        type_ = TensorType(DType.FLOAT32, (-size % LONGEST_ROW,))
        values.append(graph.constant(TensorValue(type_, ZeroData(type_.nbytes))))
    joined = join(graph, values, scope="", multiple=multiple)
    terms = joined.operand(0)
    assert isinstance(terms, Node)
    for value in terms.operands:
        without_idle_reshape(graph, value)
    return joined


@dataclass(frozen=True, slots=True)
class _Way:
    """What becomes of a value: tests for infinities and NaN, sums of its squares (each from its first node to the sum),
    products with numbers and their ways, and whether anything else takes it. Those of one ``kind`` may go together.
    ``update``: what the update at its end has in common with others, which may be made at once."""

    value: Value
    tests: tuple[Node, ...]
    squares: tuple[tuple[Node, ...], ...]
    scaled: tuple[_Way, ...]
    passed_on: bool
    kind: Hashable
    update: Hashable = None

    @property
    def measures(self) -> bool:
        return bool(self.tests or self.squares) or any(way.measures for way in self.scaled)

    def sums(self) -> Iterable[Node]:
        yield from (chain[-1] for chain in self.squares)
        for way in self.scaled:
            yield from way.sums()

    def nodes(self) -> Iterable[Node]:
        yield from self.tests
        for chain in self.squares:
            yield from chain
        for way in self.scaled:
            assert isinstance(way.value, Node)
            yield way.value
            yield from way.nodes()


def _packs(graph: Graph, context: Context) -> list[list[_Way]]:
    """The values that go the same way, in the order of the graph, but that those whose updates may be made at once
    stand together."""
    sum_from, kinds = _sums(context), kinds_of_updates(graph, context)
    found: dict[Hashable, list[_Way]] = {}
    behind: set[Value] = set()
    conjunctions = conjunctions_of(graph)
    measured = dict.fromkeys(n.operand(0) for n in graph if is_finite_test(n) or sum_from(n))
    for value in measured:
        start = value
        for _ in range(_LONGEST):
            if not (isinstance(start, Node) and is_scaling(start)):
                break
            start = start.operand(0)
        if start in behind:
            continue
        behind.add(start)
        if _is_small(start):
            way = _way(start, _LONGEST, conjunctions, sum_from, kinds)
            if way.measures:
                found.setdefault(way.kind, []).append(way)
    added = places_of_sums(graph)
    for ways in found.values():
        order = {update: i for i, update in enumerate(dict.fromkeys(way.update for way in ways))}
        ways.sort(key=lambda w: (order[w.update], min((added.get(node, 0) for node in w.sums()), default=0)))
    return [ways for ways in found.values() if len(ways) >= FEWEST and _may_wait(ways)]


def _is_small(value: Value) -> bool:
    type_ = value.type
    small = isinstance(type_, TensorType) and type_.is_static and type_.dtype is DType.FLOAT32
    return small and 0 < tensor_type(value).size < SMALL


def _way(
    value: Value, longest: int, conjunctions: Mapping[Node, Node], sum_from: _SquareSum, kinds: Mapping[Value, Hashable]
) -> _Way:
    tests, squares, scaled, passed_on, update = [], [], [], False, kinds.get(value)
    for user, i in value.use_sites():
        if is_finite_test(user):
            tests.append(user)
        elif chain := sum_from(user):
            squares.append(chain)
        elif longest and i == 0 and is_scaling(user):
            way = _way(user, longest - 1, conjunctions, sum_from, kinds)
            update = way.update if update is None else update
            alone = longest == _LONGEST and not way.measures and way.update is None
            passed_on |= alone
            scaled += [] if alone else [way]
        else:
            passed_on |= not orders_only(user, i)
    scalings = tuple(((way.value.op, way.value.operand(1)), way.kind) for way in scaled if isinstance(way.value, Node))
    asked = tuple(conjunctions[answer] for test in tests for answer in test.uses)
    totals = tuple(user for chain in squares for user in chain[-1].uses)
    kind = (asked, totals, scalings, passed_on or longest == _LONGEST)
    return _Way(value, tuple(tests), tuple(squares), tuple(scaled), passed_on, kind, update)


def _may_wait(ways: Sequence[_Way]) -> bool:
    """Whether no value is computed from what becomes of another."""
    values = {way.value for way in ways}
    starts = [node for way in ways for node in way.nodes()]
    return not any(node in values for node in walk(starts, lambda node: node.users))


def _go(
    graph: Graph,
    joined: Value,
    multiple: int,
    ways: Sequence[_Way],
    answers: dict[Value, Value],
    sums: dict[Value, Value],
) -> None:
    """Lets ``joined`` go the way of each of ``ways``, whose values it holds; in ``answers`` and ``sums``, what takes
    the place of the answers of their tests, and of their sums of squares."""
    first = ways[0]
    if first.tests:
        answer = all_finite(graph, [joined], scope=first.tests[0].scope)
        answers.update((old, answer) for way in ways for test in way.tests for old in test.uses)
    for k, chain in enumerate(first.squares):
        total = square_sum(graph, joined, scope=chain[-1].scope)
        sums.update((way.squares[k][-1], total) for way in ways)
    for k, scaled in enumerate(first.scaled):
        node = scaled.value
        assert isinstance(node, Node)
        product = graph.create(node.op, [joined, node.operand(1)], tensor_type(joined), scope=node.scope)
        inner = [way.scaled[k] for way in ways]
        _go(graph, product, multiple, inner, answers, sums)
        _take_apart(graph, product, multiple, inner)


def _take_apart(graph: Graph, joined: Value, multiple: int, ways: Sequence[_Way]) -> None:
    """Who takes one of the values takes its part of ``joined``; who merely waits for it, waits for all of them."""
    types = [tensor_type(way.value) for way in ways]
    begins, _ = places((type_.size for type_ in types), multiple)
    for way, type_, begin in zip(ways, types, begins, strict=True):
        taken = {*way.tests, *(chain[0] for chain in way.squares), *(inner.value for inner in way.scaled)}
        uses = [(user, i) for user, i in way.value.use_sites() if user not in taken]
        waiting = {use: None for use in uses if orders_only(*use)}
        for user, i in waiting:
            user.set_operand(i, joined)
            user.type = infer(user.op, user.operands)
        if len(waiting) < len(uses):
            single = without_idle_reshape(graph, part(graph, joined, begin, type_.shape, scope=""))
            rewire((use for use in uses if use not in waiting), single)
