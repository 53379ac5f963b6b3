"""Which results of a training graph are the loss, the overflow flag and the loss scale, told by what they do."""

from __future__ import annotations

from contextlib import suppress

from ...core.errors import AnatomyError
from ...core.graph import Constant, Graph, GraphRef, Node, State, Value
from ...core.names import LOSS, LOSS_SCALE, OVERFLOW
from ...core.naming import result_names
from ...core.primitives import Family, named
from ...core.program import Program
from ...core.types import DType, ScalarType, TensorType, TupleType, Type, leaves
from ...core.walk import result_value, walk
from ..effects.state_access import Summary, summarize
from .anatomy import TrainingAnatomy, anatomy
from .interpretation import Term
from .network import BACKWARD, FORWARD, OPTIMIZER, mark
from .origins import Origins

_TOLD = (LOSS, OVERFLOW, LOSS_SCALE)
TESTING = named(Family.FINITE, Family.OVERFLOWED, Family.STATUS, Family.DEVICE_STATUS)


def default_names(type_: Type) -> tuple[str, ...]:
    """Names for results of which nothing but the type of the whole is known."""
    kinds = [
        t.dtype if isinstance(t, ScalarType) or (isinstance(t, TensorType) and t.shape == ()) else None
        for _, t in leaves(type_)
    ]
    if len(kinds) == 3 and kinds[1] is DType.BOOL and all(k is not None and k.is_float for k in (kinds[0], kinds[2])):
        return _TOLD
    return result_names(len(kinds))


def names_of_results(graph: Graph, n: int) -> tuple[str, ...]:
    """The names of a graph's ``n`` results. Where it names none, the first is the loss if it takes inputs; none matters
    else, and a graph that computes nothing returns a constant."""
    if not graph.outputs and (not graph.inputs or isinstance(result_value(graph), Constant)):
        return ()
    return graph.outputs if len(graph.outputs) == n else result_names(n)


def name_results(program: Program, graph: Graph) -> None:
    """:func:`name_outputs` of a graph that need not be a whole training graph."""
    if graph.has_result and isinstance(graph.result.type, TupleType):
        with suppress(AnatomyError):
            name_outputs(program, graph, anatomy(graph))


def asks_for_overflow(graph: Graph) -> bool:
    """Whether a training cell tests anything for overflow by itself; then its results may be a flag and a scale."""
    return any(node.op.name in TESTING for node in graph.all_nodes())


def name_outputs(program: Program, graph: Graph, found: TrainingAnatomy) -> None:
    """Names a training graph's results "loss", "overflow" and "loss_scale" where they are; ``found``: its anatomy.

    The others keep a name that a pass gave them, or are called after their places, ``output0`` and so on; those of
    nested tuples are counted each.
    """
    results = Origins(graph, found.parts, found.side.done).results()
    given = graph.outputs if len(graph.outputs) == len(results) else ("",) * len(results)
    flags = _skip_flags(graph) if len(results) > 1 else set()
    names: list[str] = []
    for i, result in enumerate(results):
        value = result.origin
        name = f"output{i}" if given[i] in ("", *_TOLD) else given[i]
        if result.path == found.loss_path:
            name = LOSS
        elif isinstance(value, Value) and value in flags and _asks_for_finite(found, value):
            name = OVERFLOW
        elif result.state is not None and _is_loss_scale(found, result.state):
            name = LOSS_SCALE
            program.state[result.state.name].role = "hyperparameter"
        names.append(f"output{i}" if name in names else name)
    graph.outputs = tuple(names)


def _skip_flags(graph: Graph) -> set[Value]:
    """bools that are True exactly when a Switch takes the branch that writes no state, where the other one does."""
    known = summarize(graph)
    found: set[Value] = set()
    for node in graph:
        means_skip = skips_writes(node, known)
        if means_skip is None:
            continue
        value = node.operand(0)
        while True:
            if means_skip:
                found.add(value)
            if not isinstance(value, Node) or value.op.name not in ("LogicalNot", "Depend", "Reshape"):
                break
            means_skip ^= value.op.name == "LogicalNot"
            value = value.operand(0)
    return found


def skips_writes(switch: Value, known: dict[str, Summary]) -> bool | None:
    """The condition at which a Switch leaves out writes of state; None where its branches do not differ in that, or it
    is no Switch. ``known``: :func:`.state_access.summarize` of the main graph."""
    if not isinstance(switch, Node) or switch.op.name != "Switch" or switch.num_operands != 3:
        return None
    writes = [_writes_state(switch.operand(i), known) for i in (1, 2)]
    return writes[1] if writes[0] != writes[1] else None


def _writes_state(branch: Value, known: dict[str, Summary]) -> bool:
    function = branch.operand(0) if isinstance(branch, Node) and branch.op.name == "Partial" else branch
    if not isinstance(function, GraphRef):
        return False
    return bool(known[function.graph.name].writes)


def _asks_for_finite(found: TrainingAnatomy, flag: Value) -> bool:
    """Whether a test for infinities or NaN is behind the flag."""
    term = found.side.done.terms.get(flag)
    return isinstance(term, Term) and any(t.name in TESTING for t in walk([term], lambda t: t.operands))


def _is_loss_scale(found: TrainingAnatomy, state: State) -> bool:
    """A float of one element that backward (for the seeds) and the update side (to divide) take, but not forward."""
    t = state.type
    trained = {info.name for info in found.weights}
    if not isinstance(t, TensorType) or t.size != 1 or not t.dtype.is_float or state.name in trained:
        return False

    def takers(node: Node) -> list[Node]:
        users = node.users if mark(node) is None else []
        return [user for user in users if user.op.name not in ("UpdateState", "Partial", "call")]

    loads = [u for u, i in state.use_sites() if i == 0 and u.op.name in ("Load", "Depend")]
    # What is not marked but needed by the network merely passes the state on.
    parts = {mark(node) or (found.part(node) == OPTIMIZER and OPTIMIZER) for node in walk(loads, takers)}
    return {BACKWARD, OPTIMIZER} <= parts and FORWARD not in parts
