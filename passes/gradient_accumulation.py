"""Gradient accumulation: one optimizer step for the summed gradients of several micro-batches."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from ..ir.analysis.training.anatomy import TrainingAnatomy, anatomy
from ..ir.analysis.training.divisor import find_divisor
from ..ir.analysis.training.gradient_path import gradient_paths
from ..ir.analysis.training.network import network_parts
from ..ir.analysis.training.results import asks_for_overflow, name_results
from ..ir.analysis.training.stages import Point
from ..ir.builders.cast import cast
from ..ir.builders.reduce import scalar_sum
from ..ir.core.attributes import scalar_tensor
from ..ir.core.errors import OptionError, PassError
from ..ir.core.graph import Constant, Graph, Node, Use, Value
from ..ir.core.names import STAGE
from ..ir.core.program import Entry, Program
from ..ir.core.report import PassResult
from ..ir.core.types import TensorType, tensor
from ..ir.core.wording import counted, print_bytes
from ..ir.rewrite.effects.editing import Effects
from ..ir.rewrite.seeds import separate_draws
from ..ir.rewrite.settle_results import settle_results
from ..ir.rewrite.stages import mark, mark_gradient
from .framework.base import Pass
from .framework.options import option
from .step.device_status import clear_behind_reading
from .step.micro_batch_weight import find_weight, weighted_term
from .step.names import EACH, SKIPPED, WEIGHT
from .step.normalisation import declare_divisor, divide, forget_divisor
from .step.split import Crossing, Cut, drop_network, drop_update_side, find_cut, forget_unused, pack, parts_of_clone
from .step.step import the_step
from .step.tally import declare_tally

SCOPE = "gradient-accumulation"
COUNT = "accumulation.count"
NUMBER = tensor("float32")


@dataclass(frozen=True, slots=True)
class Kept:
    """State that carries a crossing value from one graph to another: ``accum.<weight>`` for a gradient."""

    crossing: Crossing
    name: str
    type: TensorType


@dataclass(frozen=True, slots=True)
class Plan:
    """All that is decided about a step before anything is rewritten. ``fixed``: the constants that some updates take
    for a gradient, by weight, and who takes them. ``weight``: the factor of a micro-batch's gradients, if there is one.
    """

    found: TrainingAnatomy
    cut: Cut
    gradients: Sequence[Kept]
    carried: Sequence[Kept]
    fixed: Mapping[str, Point]
    weight: Value | None
    mean: bool
    cycle: tuple[Entry, ...]


class GradientAccumulation(Pass):
    """Adds the gradients of N micro-batches up and updates the weights once, as if the batch were N times as large.

    The pass cuts the step graph where gradients cross from backward to the update side. ``accumulate`` keeps forward
    and backward and adds every gradient to its accumulator (state ``accum.<weight>``). The update side starts from the
    mean of the accumulators and clears them. It keeps everything that it does to a gradient (all-reduce, unscaling,
    clipping, weight decay). So this happens once a cycle, on the mean.

    ``split=apply`` runs ``accumulate`` N times, then the small graph ``apply``. ``split=fused`` runs ``accumulate`` N-1
    times, then ``step``, which adds the last gradients on the fly and updates; ``apply`` remains for a short last
    cycle. The mean divides by the number of micro-batches that were really added (state ``accumulation.count``).

    Preserves training: with N equal micro-batches the weights after a cycle are those of one original step; with
    different ones, those of native accumulation with averaged gradients. BatchNorm statistics advance once a
    micro-batch; step count, learning rate and slots once a cycle. An Ascend chip's overflow flag is read once a cycle
    and cleared behind that, so it tells of all its micro-batches.

    Source: MindSpore's tutorial "Gradient accumulation", which sums without dividing (``reduction=sum``), and
    ``mindspore.boost.GradientAccumulation``, which divides by N.
    """

    name = "gradient-accumulation"
    stage = "accumulate"
    steps: int = option(4, help="micro-batches a cycle", minimum=1)
    reduction: str = option(
        "mean", help="how the gradients of a cycle join for the optimizer", choices=("mean", "sum", "weighted")
    )
    weight: str | None = option(
        None, help="input, output or node whose sum weighs a micro-batch's gradients (reduction=weighted)"
    )
    split: str = option(
        "apply", help="a separate update graph, or one fused with the last micro-batch", choices=("apply", "fused")
    )
    dtype: str = option(
        "float32", help="element type of the accumulators of half-precision gradients", choices=("float32", "same")
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if (self.reduction == "weighted") != (self.weight is not None):
            raise OptionError(f"pass '{self.name}': reduction=weighted and weight=NAME belong together")

    def run(self, program: Program) -> PassResult:
        step = the_step(program, self.name)
        if SKIPPED in program.state and EACH in program.state[SKIPPED].info:
            raise PassError(
                "an earlier overflow-check is to look at each micro-batch (policy=skip-micro or detect=status) and has "
                f"put its check around the whole step: ask for {self.name} before it, or in the same pipeline"
            )
        settle_results(step, network_parts(step))
        clear_behind_reading(step, network_parts(step), scope=SCOPE)
        if asks_for_overflow(step):  # for those who ask the parts of the step for its loss scale
            name_results(program, step)
        plan = self._plan(program, step)
        accumulate(program, plan)
        return self._report(plan, program.graphs)

    # -- what is decided ---------------------------------------------------------------------------------------

    def _plan(self, program: Program, step: Graph) -> Plan:
        found = anatomy(step)
        cut = find_cut(found)
        gradients = self._accumulators(program, cut)
        carried = [Kept(c, f"carry.{c.value.name}", TensorType(c.type.dtype, c.type.shape)) for c in cut.carried]
        for k in carried:
            if not k.type.is_static:
                raise PassError(f"{k.crossing.value!r} has no fixed shape: it cannot be kept for the update graph")
        weight = None if self.weight is None else find_weight(found, self.weight)
        for info in found.weights:
            # A constant is its own mean. Its sum over micro-batches is another constant, unless it is zero.
            if self.reduction == "sum" and not info.gradient and not all(v.is_zero for v in info.fixed):
                raise PassError(
                    f"the gradient of weight '{info.name}' is a constant of the graph, which {self.name} cannot add up "
                    "over micro-batches: use reduction=mean"
                )
        cycle: tuple[Entry, ...] = (Entry("accumulate", self.steps), Entry("apply"))
        if self.split == "fused":
            # A cycle of one micro-batch is one run of ``step``; ``accumulate`` then only serves cycles that are cut
            # short.
            cycle = (Entry("accumulate", self.steps - 1), Entry("step"))[0 if self.steps > 1 else 1 :]
        return Plan(found, cut, gradients, carried, _fixed(found), weight, self.reduction == "mean", cycle)

    def _accumulators(self, program: Program, cut: Cut) -> list[Kept]:
        names = [c.weight + (f"#{c.part}" if c.part else "") for c in cut.gradients]
        # MindSpore calls slots of Adagrad and Adadelta "accum.<weight>" too.
        prefix = "accum."
        while any(prefix + name in program.state for name in names):
            prefix += "gradient."
        return [Kept(c, prefix + name, self._accumulator(c.type)) for c, name in zip(cut.gradients, names, strict=True)]

    def _accumulator(self, gradient: TensorType) -> TensorType:
        if not gradient.is_static:
            raise PassError(f"a gradient of type {gradient} has no fixed shape: it cannot be accumulated")
        return TensorType(gradient.dtype if self.dtype == "same" else gradient.dtype.widened, gradient.shape)

    # -- what is reported --------------------------------------------------------------------------------------

    def _report(self, plan: Plan, graphs: Mapping[str, Graph]) -> PassResult:
        result, found = self.result(), plan.found
        result.matched = len(found.weights)
        result.changed = len({k.crossing.weight for k in plan.gradients})
        trained = {w.name for w in found.weights}
        for name, role in found.roles.items():
            if role == "weight" and name not in trained:
                result.miss(name, "frozen: nothing updates it, so there is no gradient to accumulate")
        for info in found.weights:
            if not info.gradient:
                result.miss(info.name, "the same for every batch: its update takes a constant for a gradient")
        for k in plan.carried:
            users = ", ".join(f"%{user.name}" for user, _ in k.crossing.uses[:3])
            result.miss(k.crossing.value.name, f"the update side (by {users}) sees the last micro-batch's value")
        nbytes = sum(k.type.nbytes for k in plan.gradients)
        result.statistics = {
            "accumulators": len(plan.gradients),
            "accumulator bytes": nbytes,
            "nodes before": len(found.graph),
            **{f"nodes in {name}": len(graph) for name, graph in graphs.items()},
        }
        result.summary = (
            f"{counted(result.changed, 'gradient')} accumulated over {counted(self.steps, 'micro-batch')} "
            f"({print_bytes(nbytes)} of accumulators)"
        )
        return result


def _fixed(found: TrainingAnatomy) -> dict[str, Point]:
    if all(info.gradient for info in found.weights):
        return {}
    starts = {path.weight: path.points[0] for path in gradient_paths(found.graph, found)}
    return {
        weight: start
        for weight, start in starts.items()
        if isinstance(start.values[0], Constant) and start.graph is found.graph
    }


# -- what is rewritten -------------------------------------------------------------------------------------------


def accumulate(program: Program, plan: Plan) -> None:
    """Puts the state, the graphs and the schedule of a cycle in the place of the step."""
    for k in plan.gradients:
        program.add_state(k.name, k.type, "accumulator", weight=k.crossing.weight)
    for k in plan.carried:
        program.add_state(k.name, k.type, "carried")
    program.add_state(COUNT, NUMBER, "counter")
    if plan.weight is not None:
        program.add_state(WEIGHT, NUMBER, "accumulator")
    program.graphs = {"accumulate": _accumulating_graph(plan), "apply": _updating_graph(plan, "apply")}
    if any(entry.graph == "step" for entry in plan.cycle):
        program.graphs["step"] = _updating_graph(plan, "step")
    separate_draws(program)
    program.schedule = replace(program.schedule, cycle=plan.cycle, flush="apply", count=COUNT)


def _accumulating_graph(plan: Plan) -> Graph:
    """Forward and backward; every gradient is added to its accumulator."""
    graph, twin = plan.found.graph.clone("accumulate")
    fx = Effects(graph, listed=plan.found.effects.of_clone(graph, twin))
    drop_update_side(fx, parts_of_clone(plan.found, twin))
    factor = None if plan.weight is None else scalar_sum(graph, twin[plan.weight], scope=SCOPE)
    for k in plan.gradients:
        gradient = twin[k.crossing.value]
        term = _term(graph, k, gradient, factor)
        added = fx.append("AssignAdd", [graph.state(k.name, k.type), term], scope=SCOPE, sources=[gradient])
        mark(added, {STAGE: "accumulate"})
    if factor is not None:
        mark(fx.append("AssignAdd", [graph.state(WEIGHT, NUMBER), factor], scope=SCOPE), {STAGE: "accumulate"})
    for k in plan.carried:
        value = twin[k.crossing.value]
        fx.append("Assign", [graph.state(k.name, k.type), value], scope=SCOPE, sources=[value])
    fx.append("AssignAdd", [graph.state(COUNT, NUMBER), _number(graph, 1.0)], scope=SCOPE)
    fx.commit(pack(graph, [(name, twin[value]) for name, value in plan.cut.outputs.network]))
    forget_unused(graph)
    return graph


def _updating_graph(plan: Plan, name: str) -> Graph:
    """The update side, which takes the accumulated gradients and clears the accumulators. ``apply`` is nothing more;
    ``step`` has forward and backward of the last micro-batch in front."""
    fused = name == "step"
    graph, twin = plan.found.graph.clone(name)
    fx = Effects(graph, listed=plan.found.effects.of_clone(graph, twin))
    numbers = [graph.state(COUNT, NUMBER)]
    factor = None if not fused or plan.weight is None else scalar_sum(graph, twin[plan.weight], scope=SCOPE)
    if not fused:
        drop_network(fx, parts_of_clone(plan.found, twin))
        graph.inputs.clear()
    divisor = _divisor(fx, plan, _number(graph, 1.0) if fused and plan.mean else factor)
    loaded = _feed_gradients(fx, plan, twin, divisor, factor, fused=fused)
    _mark_fixed(graph, plan, twin)
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
    total = declare_tally(_total(fx, WEIGHT, own), WEIGHT)
    # All weights zero: the sum of nothing stays zero.
    some = graph.create("NotEqual", [total, _number(graph, 0.0)], scope=SCOPE)
    return declare_divisor(graph.create("Select", [some, total, _number(graph, 1.0)], scope=SCOPE))


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
        mark_gradient(value, trained[k.crossing.value], k.crossing.part)
        _rewire(k.crossing.uses, twin, value)
    return loaded


def _mark_fixed(graph: Graph, plan: Plan, twin: Mapping[Value, Value]) -> None:
    """A constant gets a node, so that the mark of a gradient can stand there."""
    for weight, start in plan.fixed.items():
        value = graph.create("TensorMove", [twin[start.values[0]]], scope=SCOPE)
        mark_gradient(value, [weight])
        _rewire(start.takers, twin, value)


def _feed_others(fx: Effects, plan: Plan, twin: Mapping[Value, Value]) -> None:
    """The update side takes the values that are carried to it, and waits for nothing of the network."""
    for k in plan.carried:
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
