"""Weights that are not trained: a graph without their updates, and without the backward part that only these need."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from ...ir.analysis.effects.state_access import states_behind
from ...ir.analysis.functions.calls import bindings
from ...ir.analysis.training.gradient_path import gradient_paths, is_fed, weights_of
from ...ir.analysis.training.network import network_parts
from ...ir.core.errors import PassError
from ...ir.core.graph import Graph, Input, Node, Value
from ...ir.core.op import CALL, MAKE_TUPLE
from ...ir.core.program import Program
from ...ir.core.sites import site
from ...ir.rewrite.effects.editing import Effects
from ...ir.rewrite.removal import Removal
from .accumulated import added_terms, gradients_in
from .split import forget_unused, forget_unused_inputs


def sharing(graphs: Iterable[Graph], frozen: set[str]) -> set[str]:
    """The weights whose gradient is that of one that is trained too (the biases of a recurrent cell)."""
    together = [set(weights_of(node)) for graph in graphs for node in graph]
    return {weight for weights in together if weights - frozen for weight in weights}


def freeze_weights(program: Program, frozen: set[str]) -> int:
    """These weights are not trained any more; the bytes of the state that goes with it."""
    shared = sharing(program.graphs.values(), frozen)
    for name, graph in list(program.graphs.items()):
        program.graphs[name] = frozen_copy(program, graph, name, frozen, shared)
        forget_unused_inputs(program.graphs[name])
        forget_unused(program.graphs[name])
    served = [n for n, v in program.state.items() if v.weight in frozen and v.role in ("slot", "accumulator")]
    size = {name: program.state[name].nbytes for name in served}
    for name in frozen:
        program.state[name].trainable = False
    return sum(size[name] for name in program.drop_state(served))


def frozen_copy(program: Program, source: Graph, name: str, frozen: set[str], shared: set[str]) -> Graph:
    """A copy of a graph that neither updates the frozen weights nor computes their gradients. Sums of a gradient
    that is ``shared`` go on."""
    graph, _ = source.clone(name)
    # Averages go on too: they come closer to a weight that stands still.
    kept = {
        n
        for n, v in program.state.items()
        if n in frozen
        or (v.weight in frozen and v.role != "average" and not (v.role == "accumulator" and v.weight in shared))
    }
    accumulators = {n for n in kept if program.state[n].role == "accumulator"}
    values = _gradients(graph, frozen, accumulators)
    # Updates, and what adds to accumulators and clears them: those stay zero. What a function returns is seen to below.
    bound = bindings(graph)
    for body in (*graph.functions.values(), graph):
        fx = Effects(body)
        idle = [e for e in fx.list if e.writes and all(_is_one_of(value, kept, bound) for value in e.writes)]
        if body is not graph:
            idle = [e for e in idle if e.node.op is not CALL and _only_orders(e.node)]
        if idle:
            fx.drop(idle)
            fx.commit()
    alive = [v for v in values if v.graph is graph]
    if alive:
        removal = Removal(graph, network_parts(graph))
        plan = removal.plan(kept, alive, (), kept=True)
        if plan.obstacle:
            raise PassError(
                f"graph '{source.name}': the gradients of {', '.join(sorted(frozen)[:3])}"
                f"{', …' if len(frozen) > 3 else ''} are needed though nothing updates them: {plan.obstacle}"
            )
        removal.apply(plan, lambda: None)
    for effect in Effects(graph).writes():
        written = sorted(state.name for state in effect.writes if state.name in kept)
        if written:
            raise PassError(
                f"graph '{source.name}': {site(effect.node)} updates '{written[0]}' together with other weights"
            )
    return graph


def _only_orders(node: Node) -> bool:
    """Whether others wait for a node and none computes from it."""
    return all(
        user.op.name == "UpdateState"
        or (user.op.name == "Depend" and i == 1)
        or (user.op.name in MAKE_TUPLE and _only_orders(user))
        for user, i in node.use_sites()
    )


def _is_one_of(value: Value, names: set[str], bound: Mapping[Input, Sequence[Value]]) -> bool:
    """Whether a location is one of these states, at every call; ``bound``: what the inputs of functions stand for."""
    states = states_behind(value, bound)
    return bool(states) and all(state.name in names for state in states)


def _gradients(graph: Graph, frozen: set[str], accumulators: set[str]) -> list[Node]:
    """The values that flow to the updates and accumulators of frozen weights, as they leave the backward part, or
    accumulators."""
    starts: list[Value] = [term for state, term in added_terms(graph) if state in accumulators]
    if not accumulators or is_fed(graph):
        paths = gradient_paths(graph)
        shared = {v for path in paths if path.weight not in frozen for v in path.points[0].values}
        for path in paths:
            if path.weight in frozen:
                starts.extend(v for v in path.points[0].values if v not in shared)
    parts = network_parts(graph)
    return list(dict.fromkeys(node for term in starts for node in gradients_in(term, parts)))
