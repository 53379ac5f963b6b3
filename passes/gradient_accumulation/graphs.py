"""The graphs of a cycle: one that accumulates gradients, one that updates by them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from ...ir.analysis.training.divisor import find_divisor
from ...ir.analysis.training.gradient_path import told_by_marks
from ...ir.builders.cast import cast
from ...ir.builders.reduce import scalar_sum
from ...ir.core.attributes import scalar_tensor
from ...ir.core.graph import Constant, Graph, Node, Use, Value
from ...ir.core.names import STAGE
from ...ir.core.program import Program
from ...ir.core.types import tensor
from ...ir.rewrite.effects.editing import Effects
from ...ir.rewrite.seeds import separate_draws
from ...ir.rewrite.stages import mark, mark_gradient
from ..step.micro_batch_weight import weighted_term
from ..step.names import WEIGHT
from ..step.normalisation import declare_divisor, divide, forget_divisor
from ..step.split import clone_update_side, drop_update_side, forget_unused, pack
from ..step.tally import declare_tally
from .plan import Kept, Plan

SCOPE = "gradient-accumulation"
COUNT = "accumulation.count"
NUMBER = tensor("float32")


def accumulate(program: Program, plan: Plan) -> None:
    """Puts the state, the graphs and the schedule of a cycle in the place of the step."""
    for k in plan.gradients:
        program.add_state(k.name, k.type, "accumulator", weight=k.crossing.weight)
    for k in plan.carried:
        program.add_state(k.name, k.type, "accumulator" if k.mean else "carried")
    program.add_state(COUNT, NUMBER, "counter")
    if plan.weight is not None:
        program.add_state(WEIGHT, NUMBER, "accumulator").info |= plan.beside._asdict() if any(plan.beside) else {}
    updating = {name: _updating_graph(plan, name) for name in ("apply", "step") if name == "apply" or plan.fused}
    program.graphs = {"accumulate": _accumulating_graph(plan), **updating}  # it changes the step, so it comes last
    separate_draws(program)
    program.schedule = replace(program.schedule, cycle=plan.cycle, flush="apply", count=COUNT)


def _accumulating_graph(plan: Plan) -> Graph:
    """What the step becomes: forward and backward, and every gradient is added to its accumulator."""
    graph = plan.found.graph
    graph.name = "accumulate"
    fx = Effects(graph, listed=plan.found.effects)
    drop_update_side(fx, plan.found.parts)
    weight = None if plan.weight is None else scalar_sum(graph, plan.weight, scope=SCOPE)
    factor = None if weight is None else _beside(graph, plan, weight)
    for k in plan.gradients:
        gradient = k.crossing.value
        term = _term(graph, k, gradient, factor)
        added = fx.append("AssignAdd", [graph.state(k.name, k.type), term], scope=SCOPE, sources=[gradient])
        mark(added, {STAGE: "accumulate"})
    if weight is not None:
        mark(fx.append("AssignAdd", [graph.state(WEIGHT, NUMBER), weight], scope=SCOPE), {STAGE: "accumulate"})
    for k in plan.carried:
        value = k.crossing.value
        if k.mean:
            term = cast(graph, value, k.type.dtype, scope=SCOPE)
            mark(fx.append("AssignAdd", [graph.state(k.name, k.type), term], scope=SCOPE), {STAGE: "accumulate"})
        else:
            fx.append("Assign", [graph.state(k.name, k.type), value], scope=SCOPE, sources=[value])
    fx.append("AssignAdd", [graph.state(COUNT, NUMBER), _number(graph, 1.0)], scope=SCOPE)
    fx.commit(pack(graph, plan.cut.outputs.network))
    forget_unused(graph)
    return graph


def _updating_graph(plan: Plan, name: str) -> Graph:
    """The update side, which takes the accumulated gradients and clears the accumulators. ``apply`` is nothing more;
    ``step`` has forward and backward of the last micro-batch in front."""
    fused = name == "step"
    graph, twin = plan.found.graph.clone(name) if fused else clone_update_side(plan.found, plan.cut, name)
    fx = Effects(graph, listed=plan.found.effects.of_clone(graph, twin))
    numbers = [graph.state(COUNT, NUMBER)]
    weight = None if not fused or plan.weight is None else scalar_sum(graph, twin[plan.weight], scope=SCOPE)
    factor = None if weight is None else _beside(graph, plan, weight)
    divisor = _divisor(fx, plan, _number(graph, 1.0) if fused and plan.mean else weight)
    loaded = _feed_gradients(fx, plan, twin, divisor, factor, fused=fused)
    _mark_fixed(graph, plan, twin)
    _feed_means(fx, plan, twin, fused=fused)
    if not fused:
        _feed_others(fx, plan, twin)
    for state, value in loaded.items():
        fx.append("Assign", [state, graph.create("ZerosLike", [value], scope=SCOPE)], scope=SCOPE)
    if plan.weight is not None:
        numbers.append(graph.state(WEIGHT, NUMBER))
    for number in numbers:
        fx.append("Assign", [number, _number(graph, 0.0)], scope=SCOPE)
    fx.commit(None if fused else pack(graph, [(name, twin[value]) for name, value in plan.cut.outputs.update]))
    forget_unused(graph)
    return graph


def _divisor(fx: Effects, plan: Plan, own: Value | None) -> Node | None:
    """The divisor of the sums; None where they stay sums. ``own``: what the micro-batch in the same graph counts, one
    or its weight."""
    graph = fx.graph
    before = find_divisor(graph)
    if before is not None:
        forget_divisor(before)
    if plan.mean:
        return declare_divisor(declare_tally(_total(fx, COUNT, own), COUNT), counted=True)
    if plan.weight is None:
        return None
    total = _beside(graph, plan, declare_tally(_total(fx, WEIGHT, own), WEIGHT))
    # All weights zero: the sum of nothing stays zero.
    some = graph.create("NotEqual", [total, _number(graph, 0.0)], scope=SCOPE)
    return declare_divisor(graph.create("Select", [some, total, _number(graph, 1.0)], scope=SCOPE))


def _beside(graph: Graph, plan: Plan, weight: Value) -> Value:
    """What a loss is divided by that counts so much."""
    numbers = zip(("Add", "Maximum"), plan.beside, strict=True)
    for name, number in numbers:
        weight = graph.create(name, [weight, _number(graph, number)], scope=SCOPE) if number else weight
    return weight


def _total(fx: Effects, state: str, own: Value | None) -> Node:
    """A number that is summed over the cycle's micro-batches; ``own``: that of the one in the same graph."""
    loaded = fx.load(fx.graph.state(state, NUMBER), scope=SCOPE)
    return loaded if own is None else _added(fx.graph, loaded, own)


def _added(graph: Graph, total: Value, own: Value, sources: Sequence[Value] = ()) -> Node:
    added = graph.create("Add", [total, own], scope=SCOPE, sources=sources)
    mark(added, {STAGE: "accumulate"})
    return added


def _term(graph: Graph, k: Kept, gradient: Value, factor: Value | None) -> Value:
    """The summand of a micro-batch in an accumulator."""
    term = cast(graph, gradient, k.type.dtype, scope=SCOPE)
    return term if factor is None else weighted_term(graph, term, factor, scope=SCOPE, sources=[gradient])


def _feed_gradients(
    fx: Effects, plan: Plan, twin: Mapping[Value, Value], divisor: Node | None, factor: Value | None, *, fused: bool
) -> dict[Value, Value]:
    """The update side takes the accumulated gradients; returns the accumulators with their values."""
    graph = fx.graph
    trained: dict[Value, list[str]] = {}
    for info in plan.found.weights:
        for gradient in info.gradient:
            trained.setdefault(gradient, []).append(info.name)
    loaded: dict[Value, Value] = {}
    for k in plan.gradients:
        accumulator = graph.state(k.name, k.type)
        value: Value = fx.load(accumulator, scope=SCOPE)
        loaded[accumulator] = value
        if fused:
            own = twin[k.crossing.value]
            value = _added(graph, value, _term(graph, k, own, factor), sources=[own])
        if divisor is not None:
            value = divide(graph, value, divisor, scope=SCOPE)
        value = cast(graph, value, k.crossing.type.dtype, scope=SCOPE)
        weights = trained[k.crossing.value]
        mark_gradient(value, weights, k.crossing.part)
        _mark_optimizer(value, plan, weights)
        _rewire(k.crossing.uses, twin, value)
    return loaded


def _mark_fixed(graph: Graph, plan: Plan, twin: Mapping[Value, Value]) -> None:
    """A constant gets a node, so that the mark of a gradient can stand there."""
    for weight, start in plan.fixed.items():
        value = graph.create("TensorMove", [twin[start.values[0]]], scope=SCOPE)
        mark_gradient(value, [weight])
        _mark_optimizer(value, plan, [weight])
        _rewire(start.takers, twin, value)


def _feed_means(fx: Effects, plan: Plan, twin: Mapping[Value, Value], *, fused: bool) -> None:
    """The update side takes the means of values over the micro-batches, and their sums are cleared."""
    graph = fx.graph
    for k in plan.carried:
        if not k.mean:
            continue
        total = fx.load(graph.state(k.name, k.type), scope=SCOPE)
        value: Value = total
        if fused:
            value = _added(graph, value, cast(graph, twin[k.crossing.value], k.type.dtype, scope=SCOPE))
        number = cast(graph, _total(fx, COUNT, _number(graph, 1.0) if fused else None), k.type.dtype, scope=SCOPE)
        value = graph.create("RealDiv", [value, number], scope=SCOPE, sources=[value])
        _rewire(k.crossing.uses, twin, cast(graph, value, k.crossing.type.dtype, scope=SCOPE))
        zero = graph.create("ZerosLike", [total], scope=SCOPE)
        fx.append("Assign", [graph.state(k.name, k.type), zero], scope=SCOPE)


def _mark_optimizer(value: Value, plan: Plan, weights: Sequence[str]) -> None:
    """The graph holds no network, by which its optimizer could be told."""
    assert isinstance(value, Node)
    for path in (plan.paths[w] for w in weights if w in plan.paths):
        mark(value, told_by_marks(path))


def _feed_others(fx: Effects, plan: Plan, twin: Mapping[Value, Value]) -> None:
    """The update side takes the values that are carried to it, and waits for nothing of the network."""
    for k in plan.carried:
        if k.mean:
            continue
        _rewire(k.crossing.uses, twin, fx.load(fx.graph.state(k.name, k.type), scope=SCOPE))
    for depend in plan.cut.order_only:
        waiting = twin[depend]
        assert isinstance(waiting, Node)
        waiting.replace_uses(waiting.operand(0))


def _rewire(uses: Iterable[Use], twin: Mapping[Value, Value], value: Value) -> None:
    for user, i in uses:
        node = twin[user]
        assert isinstance(node, Node)
        node.set_operand(i, value)


def _number(graph: Graph, value: float) -> Constant:
    return graph.constant(scalar_tensor("float32", value))
