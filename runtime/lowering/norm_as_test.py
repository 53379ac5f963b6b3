"""On CPU: big gradients whose norm is taken are tested by it: a sum of squares is finite only if all of them are.

The sum is taken of gradients as they come, before they are unscaled by a power of two, and divided by the square of the
scale. So one pass over a gradient takes the place of three. Where the sum is not finite, a gradient need not be: behind
a Switch they are unscaled, tested and added up as they were. The sum keeps its bits, but where squares under 2**-126
are added.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ...ir.analysis.effects.tokens import orders_only
from ...ir.builders.branch import plain
from ...ir.builders.nodes import Nodes
from ...ir.builders.reduce import BIG, all_finite
from ...ir.core.attributes import scalar_tensor
from ...ir.core.graph import Graph, Node, Value, tensor_type
from ...ir.core.inference import infer
from ...ir.core.op import CALL
from ...ir.core.primitives import CPU
from ...ir.core.types import DType, TensorType
from ...ir.core.wording import counted
from .context import Context
from .measures import (
    add_once,
    ask_once,
    conjunctions_of,
    is_finite_test,
    is_scaling,
    places_of_sums,
    reads_state,
    square_sum_from,
)
from .reciprocal import is_reciprocal
from .self_products import added_squares

_STATE, _ELEMENT = 9.0, 0.0005
"""Microseconds of a state in a graph that a Switch divides, of an element that is unscaled and tested by itself."""


def applies(graph: Graph, context: Context) -> bool:
    return context.target == CPU and bool(_groups(graph))


def run(graph: Graph, context: Context) -> str:
    tested = 0
    for group in _groups(graph):
        _measure(graph, group, context)
        tested += len(group)
    graph.sort()
    return f"{counted(tested, 'big gradient')} tested by the sum of their squares"


@dataclass(frozen=True, slots=True)
class _Measured:
    """``value``, which ``test`` tests and whose squares ``chain`` adds up."""

    value: Value
    test: Node
    chain: tuple[Node, ...]

    @property
    def raw(self) -> tuple[Value, Value | None]:
        """The gradient before it is multiplied by a power of two, and that number; none where it is not, or where a
        token waits for who reads the gradient, an accumulator."""
        value = self.value
        if not (isinstance(value, Node) and value.op.name == "Mul" and is_scaling(value)):
            return value, None
        if not is_reciprocal(value.operand(1)) or reads_state(value.operand(0)):
            return value, None
        return value.operand(0), value.operand(1)

    @property
    def answer(self) -> Node:
        return next(iter(self.test.uses))


def _groups(graph: Graph) -> list[list[_Measured]]:
    """Those whose answers are joined, and whose sums are added up."""
    wholes = conjunctions_of(graph)
    groups: dict[object, list[_Measured]] = {}
    for test in graph:
        if not is_finite_test(test) or len(test.uses) != 1 or tensor_type(test.operand(0)).size < BIG:
            continue
        chains = [chain for user in test.operand(0).uses if (chain := square_sum_from(user))]
        if len(chains) == 1:
            found = _Measured(test.operand(0), test, chains[0])
            terms = next(iter(found.chain[-1].uses))
            groups.setdefault((wholes[found.answer], terms, found.raw[1]), []).append(found)
    places = places_of_sums(graph)
    for group in groups.values():
        group.sort(key=lambda m: places[m.chain[-1]])
    return [group for group in groups.values() if _pays(graph, group)]


def _pays(graph: Graph, group: Sequence[_Measured]) -> bool:
    """Whether the Switch takes less time than what it saves: MindSpore runs what stands in front of it and behind it as
    two graphs, and hands all states to both."""
    saved = sum(tensor_type(m.value).size for m in group) * _ELEMENT
    return saved > len(graph.states) * _STATE


def _measure(graph: Graph, group: Sequence[_Measured], context: Context) -> None:
    wholes = conjunctions_of(graph)
    raw, by = [m.raw[0] for m in group], group[0].raw[1]
    scope = group[0].chain[-1].scope
    n = Nodes(graph, scope)
    total = _squares(graph, raw, context, scope)
    finite = n.op("IsFinite", total)
    unscaled = total if by is None else n.op("Mul", n.op("Mul", total, by), by)
    sure, exact = _sure(graph), _exact(graph, raw, by, context, scope)
    given = [*raw, *([] if by is None else [by])]
    branches = [n.op("Partial", graph.reference(sure), unscaled), n.op("Partial", graph.reference(exact), *given)]
    closure = n.op("Switch", finite, *branches)
    call = graph.create(CALL, [closure], plain(exact.result.type), scope=scope, name=graph.fresh_name("measured"))
    squares, answer = (graph.create("TupleGetItem", [call, graph.constant(i)], scope=scope) for i in (0, 1))
    add_once(graph, next(iter(group[0].chain[-1].uses)), {m.chain[-1]: squares for m in group})
    ask_once(graph, wholes[group[0].answer], wholes, {m.answer: answer for m in group})
    old = {node for m in group for node in (*m.chain, m.test, *m.test.uses)}
    graph.erase_all(node for node in list(graph) if node in old)
    for m in group:
        if m.value is not m.raw[0]:
            _forget(graph, m.value, answer)


def _squares(graph: Graph, values: Sequence[Value], context: Context, scope: str) -> Value:
    terms = [added_squares(graph, value, context, scope=scope) for value in values]
    return terms[0] if len(terms) == 1 else graph.create("AddN", [graph.create("MakeTuple", terms)], scope=scope)


def _sure(graph: Graph) -> Graph:
    """A function that passes a sum on, whose terms are all finite."""
    function = graph.add_function("finite")
    total = function.add_input("total", TensorType(DType.FLOAT32, ()))
    function.result = function.create("MakeTuple", [total, function.constant(scalar_tensor("bool", True))])
    return function


def _exact(graph: Graph, raw: Sequence[Value], by: Value | None, context: Context, scope: str) -> Graph:
    """A function that unscales gradients, adds up their squares and tests all their elements."""
    function = graph.add_function("measured")
    values: list[Value] = [function.add_input(v.name, TensorType(DType.FLOAT32, tensor_type(v).shape)) for v in raw]
    if by is not None:
        number = function.add_input("by", TensorType(DType.FLOAT32, ()))
        values = [function.create("Mul", [value, number], scope=scope) for value in values]
    both = [_squares(function, values, context, scope), all_finite(function, values, scope=scope)]
    function.result = function.create("MakeTuple", both)
    return function


def _forget(graph: Graph, value: Value, answer: Value) -> None:
    """A product that nothing computes with any more goes: who waits for it, waits for the answer."""
    uses = list(value.use_sites())
    if isinstance(value, Node) and all(orders_only(*use) for use in uses):
        for user, i in uses:
            user.set_operand(i, answer)
            user.type = infer(user.op, user.operands)
        graph.erase(value)
