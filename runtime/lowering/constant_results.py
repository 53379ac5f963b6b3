"""On each target: a tuple of constants returns behind what must run before, because one of them waits for it.

MindSpore 2.10 drops a Depend on a tuple of constants in a graph that a Cell calls, and in its functions. All that ran
for the Depend alone is gone then, without an error: `AdamWeightDecay` returns a True for each weight, so an update that
returns nothing else would not take place. A Depend on a single constant stays.
"""

from __future__ import annotations

from ...ir.core.graph import Graph, Input, Node, State, Value
from ...ir.core.op import CALL
from ...ir.core.types import TupleType
from ...ir.core.walk import ORDERING, carried_operands, walk, without_order
from ...ir.core.wording import counted
from ...ir.rewrite.settle_results import element
from .context import Context


def applies(graph: Graph, context: Context) -> bool:
    return any(_depends(body) for body in graph.all_graphs())


def run(graph: Graph, context: Context) -> str:
    tied = 0
    for body in graph.all_graphs():
        if depends := _depends(body):
            waits = [v for depend in reversed(depends) for v in depend.operands[1:]]
            body.result = _tied(body, without_order(body.result), waits)
            body.erase_all(node for node in depends if not node.uses)
            tied += 1
    return f"{counted(tied, 'result')} of constants tied to what runs"


def _depends(graph: Graph) -> list[Node]:
    """Those around a result that may be a tuple of constants, from the outside in."""
    value, depends = graph.result, list[Node]()
    if not isinstance(value.type, TupleType):
        return depends
    while isinstance(value, Node) and value.op.name in ORDERING:
        depends.append(value)
        value = value.operand(0)
    return [] if any(isinstance(v, Input | State) for v in walk([value], _known)) else depends


def _known(value: Value) -> list[Value]:
    """A function that is inlined may return a constant, whatever it is given."""
    return [] if isinstance(value, Node) and value.op is CALL else carried_operands(value)


def _tied(graph: Graph, value: Value, waits: list[Value]) -> Value:
    """The value, of which the first number waits."""
    if isinstance(value.type, TupleType) and value.type.elements:
        first, *others = (element(graph, value, (i,)) for i in range(len(value.type.elements)))
        return graph.create("MakeTuple", [_tied(graph, first, waits), *others])
    for wait in waits:
        value = graph.create("Depend", [value, wait])
    return value
