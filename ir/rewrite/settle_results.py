"""Results taken out of the functions that pass them on: a graph returns its values side by side."""

from __future__ import annotations

from collections.abc import Mapping

from ..analysis.training.origins import Computed, Origin, Origins
from ..core.graph import Constant, Graph, Input, Node, Value
from ..core.op import CALL
from ..core.types import TupleType
from ..core.walk import carried_operands, result_value, walk, without_order
from .effects.editing import Effects


def settle_results(graph: Graph, parts: Mapping[Node, str]) -> bool:
    """Makes a graph return its values side by side, each from where the main graph has it. What functions only pass on,
    or compute from forward values, is taken out of them. Returns whether anything changed.

    The values, and their order, are the same; those of nested tuples stand side by side. Names of outputs are kept if
    there is one for each value.
    """
    origins = Origins(graph, parts)
    found = origins.results()
    result = result_value(graph)
    packed = isinstance(graph.result.type, TupleType)
    fx: Effects | None = None
    made: dict[Origin, Value] = {}
    values: list[Value] = []
    changed = packed and not (isinstance(result, Node) and result.op.name == "MakeTuple")
    for at in found:
        own = element(graph, result, at.path)
        origin = at.origin
        if isinstance(origin, Computed) and origins.is_forward(origin) and _is_behind_call(own):
            fx = Effects(graph) if fx is None else fx
            own = _build(graph, fx, origin, made)
            changed = True
        elif isinstance(origin, (Node, Input)) and origin is not own:
            own = origin
            changed = True
        changed |= len(at.path) > 1
        values.append(own)
    if not changed:
        return False
    if len(graph.outputs) != len(values):
        graph.outputs = ()
    fx = Effects(graph) if fx is None else fx
    fx.commit(graph.create("MakeTuple", values) if packed else values[0])
    return True


def _is_behind_call(value: Value) -> bool:
    """Whether a value is computed from what functions return. Another stays what it is: it may read what an effect has
    left (a status of the device), of which its origin does not know."""
    return any(isinstance(v, Node) and v.op is CALL for v in walk([value], carried_operands))


def element(graph: Graph, value: Value, path: tuple[int, ...]) -> Value:
    """The value to which indices lead in a tuple of the graph: an operand of what packed it, else taken out of it."""
    for i in path:
        bare = without_order(value)
        if isinstance(bare, Node) and bare.op.name == "MakeTuple":
            value = bare.operand(i)
        else:
            value = graph.create("TupleGetItem", [value, graph.constant(i)], sources=[value])
    return value


def _build(graph: Graph, fx: Effects, origin: Computed, made: dict[Origin, Value]) -> Value:
    """The nodes of ``origin`` in the main graph; ``made``: those that are there already."""
    stack: list[Origin] = [origin]
    while stack:
        here = stack[-1]
        if here in made:
            stack.pop()
            continue
        if isinstance(here, Computed) and here.node.op.name != "Load":
            missing = [o for o in here.operands if o not in made]
            if missing:
                stack.extend(missing)
                continue
            operands = [made[o] for o in here.operands]
            node = here.node
            made[here] = graph.create(node.op, operands, node.type, scope=node.scope, sources=[node])
        elif isinstance(here, Computed):
            (state,) = here.operands
            assert isinstance(state, Value)
            made[here] = fx.load(state, scope=here.node.scope)
        else:
            made[here] = graph.constant(here.value) if isinstance(here, Constant) else here
        stack.pop()
    return made[origin]
