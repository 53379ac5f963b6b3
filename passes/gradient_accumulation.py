"""Gradient accumulation: one optimizer step for the summed gradients of several micro-batches."""

from __future__ import annotations

from dataclasses import dataclass, replace

from ..ir.analysis.training.anatomy import TrainingAnatomy, anatomy
from ..ir.analysis.training.divisor import find_divisor
from ..ir.analysis.training.gradient_path import gradient_paths
from ..ir.analysis.training.network import network_parts
from ..ir.analysis.training.weights import WeightInfo
from ..ir.builders.cast import cast
from ..ir.core.attributes import TensorValue, scalar_tensor
from ..ir.core.errors import OptionError, PassError
from ..ir.core.graph import Constant, Graph, Node, Value
from ..ir.core.names import GRADIENT, PART, STAGE
from ..ir.core.program import Entry, Program
from ..ir.core.report import PassResult
from ..ir.core.types import TensorType, tensor
from ..ir.core.wording import counted, print_bytes
from ..ir.rewrite.effects.editing import Effects
from ..ir.rewrite.seeds import separate_draws
from ..ir.rewrite.settle_results import settle_results
from ..ir.rewrite.stages import mark
from .framework.base import Pass
from .framework.options import option
from .step.micro_batch_weight import find_weight, scalar_weight
from .step.names import EACH, SKIPPED, WEIGHT
from .step.normalisation import declare_divisor, divide, forget_divisor
from .step.split import Crossing, Cut, drop_network, drop_update_side, find_cut, pack, parts_of_clone
from .step.step import the_step
from .step.tally import declare_tally

SCOPE = "gradient-accumulation"
COUNT = "accumulation.count"


@dataclass(frozen=True, slots=True)
class Kept:
    """State that carries a crossing value from one graph to another: ``accum.<weight>`` for a gradient."""

    crossing: Crossing
    name: str
    type: TensorType


@dataclass(frozen=True, slots=True)
class Split:
    """What both halves are made from. ``weight``: what the gradients of a micro-batch are multiplied by, if
    anything."""

    found: TrainingAnatomy
    cut: Cut
    gradients: list[Kept]
    carried: list[Kept]
    weight: Value | None


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
    micro-batch; step count, learning rate and slots once a cycle.

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
        result = self.result()
        step = the_step(program, self.name)
        if SKIPPED in program.state and EACH in program.state[SKIPPED].info:
            raise PassError(
                "an earlier overflow-check is to look at each micro-batch (policy=skip-micro or detect=status) and has "
                f"put its check around the whole step: ask for {self.name} before it, or in the same pipeline"
            )
        settle_results(step, network_parts(step))
        found = anatomy(step)
        cut = find_cut(found)
        gradients = self._accumulators(program, cut)
        carried = self._carriers(program, cut)
        program.add_state(COUNT, tensor("float32"), "counter")
        weight = None
        if self.weight is not None:
            weight = find_weight(found, self.weight)
            program.add_state(WEIGHT, tensor("float32"), "accumulator")

        split = Split(found, cut, gradients, carried, weight)
        accumulate = self._accumulate(split)
        apply = self._update(split, fused=False)
        graphs = {"accumulate": accumulate, "apply": apply}
        cycle: tuple[Entry, ...] = (Entry("accumulate", self.steps), Entry("apply"))
        if self.split == "fused":
            graphs["step"] = self._update(split, fused=True)
            # A cycle of one micro-batch is one run of ``step``; ``accumulate`` then only serves cycles that are cut
            # short.
            cycle = (Entry("accumulate", self.steps - 1), Entry("step"))[0 if self.steps > 1 else 1 :]
        program.graphs = graphs
        separate_draws(program)
        program.schedule = replace(program.schedule, cycle=cycle, flush="apply", count=COUNT)

        result.matched = len(found.weights)
        result.changed = len({k.crossing.weight for k in gradients})
        trained = {w.name for w in found.weights}
        for name, role in found.roles.items():
            if role == "weight" and name not in trained:
                result.miss(name, "frozen: nothing updates it, so there is no gradient to accumulate")
        for node in step:
            if "FloatStatus" in node.op.name and node.op.name.startswith("NPU"):
                result.miss(node.name, f"{node.op.name} sees only the last micro-batch's overflow state")
        for info in found.weights:
            if not info.gradient:
                self._check_fixed(info)
                result.miss(info.name, "the same for every batch: its update takes a constant for a gradient")
        for k in carried:
            users = ", ".join(f"%{user.name}" for user, _ in k.crossing.uses[:3])
            result.miss(k.crossing.value.name, f"the update side (by {users}) sees the last micro-batch's value")
        nbytes = sum(k.type.nbytes for k in gradients)
        result.statistics = {
            "accumulators": len(gradients),
            "accumulator bytes": nbytes,
            "nodes before": len(step),
            **{f"nodes in {name}": len(graph) for name, graph in graphs.items()},
        }
        size = f"{print_bytes(nbytes)} of accumulators"
        result.summary = (
            f"{counted(result.changed, 'gradient')} accumulated over {counted(self.steps, 'micro-batch')} ({size})"
        )
        return result

    def _check_fixed(self, info: WeightInfo) -> None:
        """A gradient that is a constant is its own mean; its sum over micro-batches is another constant, unless it
        is zero."""
        if self.reduction == "sum" and not all(_is_zero(value) for value in info.fixed):
            raise PassError(
                f"the gradient of weight '{info.name}' is a constant of the graph, which {self.name} cannot add up "
                "over micro-batches: use reduction=mean"
            )

    # -- state -----------------------------------------------------------------------------------------------

    def _accumulators(self, program: Program, cut: Cut) -> list[Kept]:
        names = [c.weight + (f"#{c.part}" if c.part else "") for c in cut.gradients]
        # MindSpore calls slots of Adagrad and Adadelta "accum.<weight>" too.
        prefix = "accum."
        while any(prefix + name in program.state for name in names):
            prefix += "gradient."
        kept = [
            Kept(c, prefix + name, self._accumulator_type(c.type)) for c, name in zip(cut.gradients, names, strict=True)
        ]
        for k in kept:
            program.add_state(k.name, k.type, "accumulator", weight=k.crossing.weight)
        return kept

    def _accumulator_type(self, gradient: TensorType) -> TensorType:
        if not gradient.is_static:
            raise PassError(f"a gradient of type {gradient} has no fixed shape: it cannot be accumulated")
        return TensorType(gradient.dtype if self.dtype == "same" else gradient.dtype.widened, gradient.shape)

    def _carriers(self, program: Program, cut: Cut) -> list[Kept]:
        """State for other values that the update side takes from the network (the last micro-batch's, as without
        accumulation)."""
        kept = [Kept(c, f"carry.{c.value.name}", TensorType(c.type.dtype, c.type.shape)) for c in cut.carried]
        for k in kept:
            if not k.type.is_static:
                raise PassError(f"{k.crossing.value!r} has no fixed shape: it cannot be kept for the update graph")
        for k in kept:
            program.add_state(k.name, k.type, "carried")
        return kept

    # -- graphs ----------------------------------------------------------------------------------------------

    def _accumulate(self, split: Split) -> Graph:
        graph, twin = split.found.graph.clone("accumulate")
        gradients, carried, weight = split.gradients, split.carried, split.weight
        fx = Effects(graph)
        drop_update_side(fx, parts_of_clone(split.found, twin))
        factor = None if weight is None else scalar_weight(graph, twin[weight], scope=SCOPE)
        for k in gradients:
            value = twin[k.crossing.value]
            term = self._term(graph, k, value, factor)
            added = fx.append("AssignAdd", [graph.state(k.name, k.type), term], scope=SCOPE, sources=[value])
            mark(added, {STAGE: "accumulate"})
        if factor is not None:
            total = graph.state(WEIGHT, tensor("float32"))
            mark(fx.append("AssignAdd", [total, factor], scope=SCOPE), {STAGE: "accumulate"})
        for k in carried:
            value = twin[k.crossing.value]
            fx.append("Assign", [graph.state(k.name, k.type), value], scope=SCOPE, sources=[value])
        one = graph.constant(scalar_tensor("float32", 1.0))
        fx.append("AssignAdd", [graph.state(COUNT, tensor("float32")), one], scope=SCOPE)
        fx.commit(pack(graph, [(name, twin[value]) for name, value in split.cut.outputs.network]))
        _forget_unused(graph)
        return graph

    def _term(self, graph: Graph, k: Kept, gradient: Value, factor: Value | None) -> Value:
        """What a micro-batch adds to an accumulator."""
        term = cast(graph, gradient, k.type.dtype)
        if factor is None:
            return term
        scaled = graph.create(
            "Mul", [term, cast(graph, factor, k.type.dtype, scope=SCOPE)], scope=SCOPE, sources=[gradient]
        )
        # A micro-batch of weight zero has no mean (0/0): it adds nothing.
        zero = graph.constant(scalar_tensor("float32", 0.0))
        counts = graph.create("NotEqual", [factor, zero], scope=SCOPE)
        nothing = graph.create("ZerosLike", [scaled], scope=SCOPE)
        return graph.create("Select", [counts, scaled, nothing], scope=SCOPE, sources=[gradient])

    def _update(self, split: Split, *, fused: bool) -> Graph:
        """The update side fed from the accumulators; ``fused``: with forward and backward of the last micro-batch in
        front."""
        found, cut, weight = split.found, split.cut, split.weight
        graph, twin = found.graph.clone("step" if fused else "apply")
        fx = Effects(graph)
        count = graph.state(COUNT, tensor("float32"))
        factor = scalar_weight(graph, twin[weight], scope=SCOPE) if fused and weight is not None else None
        if not fused:
            drop_network(fx, parts_of_clone(found, twin))
            graph.inputs.clear()
        own_divisor = find_divisor(graph)
        if own_divisor is not None:
            forget_divisor(own_divisor)
        divisor = self._divisor(fx, factor, fused=fused)
        trained: dict[Value, list[str]] = {}
        for info in found.weights:
            for gradient in info.gradient:
                trained.setdefault(gradient, []).append(info.name)
        accumulators = []
        for k in split.gradients:
            own = twin[k.crossing.value]
            accumulator = graph.state(k.name, k.type)
            value: Value = fx.load(accumulator, scope=SCOPE)
            accumulators.append((accumulator, value))
            if fused:
                added = graph.create("Add", [value, self._term(graph, k, own, factor)], scope=SCOPE, sources=[own])
                mark(added, {STAGE: "accumulate"})
                value = added
            if divisor is not None:
                value = divide(graph, value, divisor, scope=SCOPE)
            value = cast(graph, value, k.crossing.type.dtype)
            names = trained[k.crossing.value]
            mark(value, {GRADIENT: names[0] if len(names) == 1 else tuple(names), PART: k.crossing.part})  # type: ignore[arg-type]
            _rewire(k.crossing, twin, value)
        _mark_constants(found, graph, twin)
        if not fused:
            for k in split.carried:
                _rewire(k.crossing, twin, fx.load(graph.state(k.name, k.type), scope=SCOPE))
            for depend in cut.order_only:
                waiting = twin[depend]
                waiting.replace_uses(waiting.operand(0))  # type: ignore[attr-defined]
        for accumulator, loaded in accumulators:
            fx.append("Assign", [accumulator, graph.create("ZerosLike", [loaded], scope=SCOPE)], scope=SCOPE)
        cleared = [count] if weight is None else [count, graph.state(WEIGHT, tensor("float32"))]
        for scalar in cleared:
            fx.append("Assign", [scalar, graph.constant(scalar_tensor("float32", 0.0))], scope=SCOPE)
        if fused:
            fx.commit()
        else:
            fx.commit(pack(graph, [(name, twin[value]) for name, value in cut.outputs.update]))
        _forget_unused(graph)
        return graph

    def _divisor(self, fx: Effects, factor: Value | None, *, fused: bool) -> Node | None:
        """What the sums are divided by; None where they stay sums. ``factor``: the weight of the micro-batch in the
        same graph."""
        graph = fx.graph
        one = graph.constant(scalar_tensor("float32", 1.0))
        if self.reduction == "mean":
            count = self._total(fx, graph.state(COUNT, tensor("float32")), one if fused else None)
            return declare_divisor(declare_tally(count, COUNT), counted=True)
        if self.reduction == "sum":
            return None
        total = declare_tally(self._total(fx, graph.state(WEIGHT, tensor("float32")), factor), WEIGHT)
        # All weights zero: the sum of nothing stays zero.
        some = graph.create("NotEqual", [total, graph.constant(scalar_tensor("float32", 0.0))], scope=SCOPE)
        return declare_divisor(graph.create("Select", [some, total, one], scope=SCOPE))

    @staticmethod
    def _total(fx: Effects, state: Value, own: Value | None) -> Node:
        """A sum over the cycle's micro-batches, ``own`` being that of the one in the same graph."""
        loaded = fx.load(state, scope=SCOPE)
        if own is None:
            return loaded
        added = fx.graph.create("Add", [loaded, own], scope=SCOPE)
        mark(added, {STAGE: "accumulate"})
        return added


def _is_zero(value: Value) -> bool:
    return isinstance(value, Constant) and isinstance(value.value, TensorValue) and not any(value.value.data.view())


def _mark_constants(found: TrainingAnatomy, graph: Graph, twin: dict[Value, Value]) -> None:
    """A constant is its own mean. It gets a node, so that the mark of a gradient can stand there."""
    if all(info.gradient for info in found.weights):
        return
    for path in gradient_paths(found.graph, found):
        start = path.points[0]
        if isinstance(start.values[0], Constant) and start.graph is found.graph:
            value = graph.create("TensorMove", [twin[start.values[0]]], scope=SCOPE)
            mark(value, {GRADIENT: path.weight})
            for user, i in start.takers:
                twin[user].set_operand(i, value)  # type: ignore[attr-defined]


def _rewire(crossing: Crossing, twin: dict[Value, Value], value: Value) -> None:
    for user, i in crossing.uses:
        twin[user].set_operand(i, value)  # type: ignore[attr-defined]


def _forget_unused(graph: Graph) -> None:
    """Drops references to state that this graph no longer uses, and functions that it no longer calls."""
    from ..ir.analysis.functions.calls import reachable_functions

    for name in [n for n, value in graph.states.items() if not value.uses]:
        del graph.states[name]
    reached = reachable_functions(graph)
    for name in [n for n in graph.functions if n not in reached]:
        del graph.functions[name]
