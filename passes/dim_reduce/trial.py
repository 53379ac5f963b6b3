"""The loss of a micro-batch at other weights: the forward part of a training graph, sliced out of it."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass

from ...ir.analysis.effects.state_access import states_behind
from ...ir.analysis.functions.calls import bindings
from ...ir.analysis.training.network import network_parts
from ...ir.analysis.training.origins import passed_on
from ...ir.builders.reduce import scalar_sum
from ...ir.core.errors import PassError
from ...ir.core.graph import Constant, Graph, Input, Node, State, Value, tensor_type
from ...ir.core.names import LOSS
from ...ir.core.op import CALL
from ...ir.core.predicates import is_effect, is_random, rests, written_operands
from ...ir.core.primitives import facts
from ...ir.core.sites import site
from ...ir.core.types import TensorType, TupleType
from ...ir.core.walk import carried_operands, walk
from ...ir.rewrite.effects.editing import Effects
from ..step.results import named_results, with_results
from .subspace import SCOPE, SHADOW


@dataclass(slots=True)
class Trial:
    """``graph`` computes ``loss``, a scalar float32, from the inputs of a micro-batch, and after them what its random
    nodes drew when the gradients were taken: ``kept`` maps the names of these outputs to the nodes that give them.
    ``shadows`` are the states of the training graph that it uses copies of, by the names of the copies."""

    graph: Graph
    loss: Value
    twin: Mapping[Value, Value]
    kept: dict[str, str]
    shadows: dict[str, State]


def loss_of(graph: Graph) -> Value:
    """The loss that a graph returns, as its forward part computes it."""
    value = dict(named_results(graph)).get(LOSS)
    image = None if value is None else passed_on(graph, network_parts(graph), [value])[0]
    if image is None:
        raise PassError(
            f"graph '{graph.name}' does not return its loss, and a line search asks for the loss: return it from the "
            "training cell, computed before the optimizer runs"
        )
    return image


def make_trial(source: Graph, weights: Collection[str], also: Sequence[Value]) -> Trial:
    """Slices the loss of ``source`` out of a copy of it, and the values ``also``.

    The copy reads the states ``weights`` from ``SHADOW`` + name, and writes nothing else either: what the forward part
    writes is left out, or goes to a copy where a primitive cannot do without (the statistics of a BatchNorm). Random
    nodes do not draw again. The graph has no result yet. PassError where the loss depends on state that the forward
    part itself changes, or what is drawn depends on the weights.
    """
    graph, twin = source.clone("trial")
    loss = twin[loss_of(source)]
    roots = [loss, *(twin[value] for value in also)]
    needed = _needed(roots)
    written = _refuse_changing_state(graph, needed)
    kept = _take_draws(graph, needed, weights)
    fx = Effects(graph)
    needed = _needed(roots)
    fx.drop([e for e in fx.list if not e.passive and e.node not in needed])
    result = scalar_sum(graph, loss, scope=SCOPE)
    graph.outputs = (LOSS,)
    fx.commit(result if len(roots) == 1 else graph.create("MakeTuple", [result, *roots[1:]]))
    shadows: dict[str, State] = {}
    for state in list(graph.states.values()):
        if not state.uses:
            del graph.states[state.name]
        elif state.name in weights or state.name in written:
            copy = graph.state(SHADOW + state.name, TensorType(tensor_type(state).dtype, tensor_type(state).shape))
            state.replace_uses(copy)
            del graph.states[state.name]
            shadows[copy.name] = state
    return Trial(graph, result, twin, kept, shadows)


def return_draws(graph: Graph, kept: Mapping[str, str]) -> None:
    """Makes a graph return what its random nodes drew, for a trial."""
    if kept:
        nodes = {node.name: node for node in graph}
        outputs = [(name, nodes[node]) for name, node in kept.items()]
        Effects(graph).commit(with_results(graph, outputs))


def _needed(roots: Sequence[Value]) -> set[Node]:
    """Nodes of the main graph that the roots are computed from; tokens are no need."""
    return {value for value in walk(roots, carried_operands) if isinstance(value, Node)}


def _refuse_changing_state(graph: Graph, needed: Collection[Node]) -> set[str]:
    """Names of the states that nodes of the slice write, all of them statistics."""
    bound, parts = bindings(graph), network_parts(graph)
    writers: dict[str, list[Node]] = {}
    for node in graph.all_nodes():
        if node in parts and node.op is not CALL and is_effect(node):
            for state in (state for k in _written(node) for state in states_behind(node.operand(k), bound)):
                writers.setdefault(state.name, []).append(node)
    reading = [*needed, *(n for f in graph.functions.values() for n in f)]
    touched: dict[str, Node] = {}
    for node in reading:
        # What a normalisation learns in training, its other results do not depend on.
        own = _written(node) if facts(node.op).statistics and is_effect(node) else ()
        if node.op is CALL or node.op.name in ("Partial", "Switch", "UpdateState"):
            continue
        for i, operand in enumerate(node.operands):
            if i not in own and isinstance(operand, (State, Input)):
                touched.update((state.name, node) for state in states_behind(operand, bound))
    for name, nodes in writers.items():
        if name in touched:
            raise PassError(
                f"the loss depends (by {site(touched[name])}) on state '{name}', which the forward part itself "
                "changes (by "
                f"{site(nodes[0])}): taken again at other weights it would see another value"
            )
    return set(writers)


def _written(node: Node) -> tuple[int, ...]:
    """Operands that a node writes; none of a BatchNorm that takes its statistics as they are."""
    return () if rests(node) else written_operands(node)


def _take_draws(graph: Graph, needed: Collection[Node], weights: Collection[str]) -> dict[str, str]:
    """Replaces what random nodes draw by further inputs of the graph."""
    for function in graph.functions.values():
        drawing = next((n for n in function if is_random(n)), None)
        if drawing is not None:
            raise PassError(
                f"{site(drawing)} draws at random inside function '{function.name}', where a trial cannot be given "
                "what "
                "was drawn: move it out of the branch or loop"
            )
    prefix = f"{SHADOW}random."
    kept: dict[str, str] = {}
    for node in [n for n in graph if n in needed and is_random(n)]:
        if node.op.name == "Dropout":
            mask = _mask(node)
            drawn = graph.add_input(f"{prefix}{len(kept)}", mask.type)
            kept[drawn.name] = mask.name
            with graph.inserting_before(node):
                output = graph.create(
                    "DropoutGrad", [node.operand(0), drawn], node.type.elements[0],  # type: ignore[attr-defined]
                    attributes={"keep_prob": _rate(node)}, scope=SCOPE, sources=[node],
                )  # fmt: skip
            _replace_items(node, (output, drawn))
        elif _depends_on(node, weights):
            raise PassError(
                f"{site(node)} draws numbers that depend on the weights: a trial at other weights cannot take the "
                "same draw"
            )
        else:
            drawn = graph.add_input(f"{prefix}{len(kept)}", node.type)
            kept[drawn.name] = node.name
            node.replace_uses(drawn)
    return kept


def _mask(dropout: Node) -> Node:
    for user in dropout.uses:
        if user.op.name == "TupleGetItem" and isinstance(user.operand(1), Constant) and user.operand(1).value == 1:  # type: ignore[attr-defined]
            return user
    raise PassError(f"nothing takes the mask of {site(dropout)}, so its gradient is not computed: leave it out")


def _rate(dropout: Node) -> float:
    """The share that a Dropout keeps, an attribute or an operand."""
    given = dropout.op.attributes.get("keep_prob")
    if given is None and dropout.num_operands > 1 and isinstance(dropout.operand(1), Constant):
        given = dropout.operand(1).value  # type: ignore[attr-defined]
    if not isinstance(given, float):
        raise PassError(f"{site(dropout)} does not say which share it keeps")
    return given


def _replace_items(node: Node, items: Sequence[Value]) -> None:
    for user in list(node.uses):
        index = user.operand(1) if user.op.name == "TupleGetItem" else None
        if isinstance(index, Constant) and isinstance(index.value, int):
            user.replace_uses(items[index.value])
        elif isinstance(node.type, TupleType) and user.op.name not in ("UpdateState", "Depend"):
            raise PassError(f"{site(user)} takes the whole result of {site(node)}, not its output or its mask")


def _depends_on(node: Node, weights: Collection[str]) -> bool:
    values: Iterator[Value] = walk([node], carried_operands)
    return any(isinstance(value, State) and value.name in weights for value in values)
