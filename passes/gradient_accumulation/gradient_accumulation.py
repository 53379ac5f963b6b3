"""Gradient accumulation: one optimizer step for the summed gradients of several micro-batches."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

from ...ir.analysis.batch.joins import EQUAL, NEVER, Beside, Joining, joining
from ...ir.analysis.training.anatomy import TrainingAnatomy, anatomy
from ...ir.analysis.training.gradient_path import gradient_paths
from ...ir.analysis.training.network import network_parts
from ...ir.analysis.training.results import asks_for_overflow, name_results
from ...ir.core.errors import OptionError, PassError
from ...ir.core.graph import Graph
from ...ir.core.program import Entry, Program
from ...ir.core.report import PassResult
from ...ir.core.sites import site
from ...ir.core.types import TensorType
from ...ir.core.wording import counted, print_bytes
from ...ir.rewrite.settle_results import settle_results
from ..framework.base import Pass
from ..framework.options import option
from ..step.device_status import clear_behind_reading
from ..step.micro_batch_weight import find_weight, refuse_no_count
from ..step.names import EACH, SKIPPED
from ..step.split import Cut, find_cut
from ..step.step import the_step
from .carry import HOW, Carry
from .factors import apply_factors
from .graphs import COUNT, SCOPE, accumulate
from .plan import Kept, Plan, fixed_gradients
from .summands import join_summands
from .window import hold_states


class GradientAccumulation(Pass):
    """Adds the gradients of N micro-batches up and updates the weights once, as if the batch were N times as large.

    ``reduction=auto`` reads from the loss how gradients join: where it adds its samples up, they add up; where it is a
    mean over samples, their mean is taken; where it is divided by what the batch counts (tokens, a mask, weights, what
    ``ignore_index`` leaves), each micro-batch weighs as much as it counts. The report says of which micro-batches a
    window is one step on the joined batch: ``any sizes``, ``equal sizes only``, or ``never``, with the node at which
    samples meet (BatchNorm in training, a contrastive loss); then the mean is taken. The report says what was assumed
    where the file does not tell.

    The graph ``accumulate`` keeps forward and backward and adds every gradient to its accumulator (state
    ``accum.<weight>``). The update side starts from the mean of the accumulators and clears them. Everything that it
    does to a gradient (all-reduce, unscaling, clipping, weight decay) happens once a window, on the mean.

    An update is that of the big batch only if it depends on the batch through averaged gradients alone. A statistic of
    the batch (a queue, a running mean) moves with every micro-batch; where the network reads it before that, it sees it
    as the last update left it (state ``window.<name>``). Anything else that an update takes of the batch (a step by the
    loss, a plateau rule) is an error that names it, until ``carry`` says what it takes: the value of the ``last``
    micro-batch, the ``mean`` of all (state ``carry.<node>``), or that its states move with ``each``. ``carry=last``
    says it for all, ``carry=[loss:mean,rate:last]`` by name.

    ``split=apply`` runs ``accumulate`` N times, then the small graph ``apply``. ``split=fused`` runs ``accumulate`` N-1
    times, then ``step``, which adds the last gradients on the fly and updates; ``apply`` remains for a short last
    window. The mean divides by the number of micro-batches that were really added (state ``accumulation.count``).

    Preserves training: the weights after a window are those of one original step on the joined batch where the report
    says so; else those of native accumulation with averaged gradients. Running statistics advance once a micro-batch;
    step count, learning rate and optimizer state once a window.

    Source: MindSpore's tutorial "Gradient accumulation", which sums without dividing (``reduction=sum``), and
    ``mindspore.boost.GradientAccumulation``, which divides by N.
    """

    name = "gradient-accumulation"
    at_stage = "accumulate"
    steps: int = option(4, help="micro-batches a window", minimum=1)
    reduction: str = option(
        "auto",
        help="how the gradients of a window join for the optimizer; auto: as the loss joins its samples",
        choices=("auto", "mean", "sum", "weighted"),
    )
    weight: str | None = option(
        None, help="input, output or node whose sum weighs a micro-batch's gradients (reduction=weighted)"
    )
    offset: float = option(0.0, help="what the loss adds to that sum before it divides by it", minimum=0.0)
    least: float = option(0.0, help="the least number that the loss divides by", minimum=0.0)
    split: str = option(
        "apply", help="a separate update graph, or one fused with the last micro-batch", choices=("apply", "fused")
    )
    dtype: str = option(
        "float32", help="element type of the accumulators of half-precision gradients", choices=("float32", "same")
    )

    carry: tuple[str, ...] = option(
        (), help="what the update takes of other values of the batch: last, mean or each, of all or as NAME:last"
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        for entry in self.carry:
            if entry.rpartition(":")[2] not in HOW:
                raise OptionError(f"pass '{self.name}': carry={entry} ends with none of {', '.join(HOW)}")
        if (self.reduction == "weighted") != (self.weight is not None):
            raise OptionError(f"pass '{self.name}': reduction=weighted and weight=NAME belong together")
        if (self.offset or self.least) and self.weight is None:
            raise OptionError(f"pass '{self.name}': offset and least belong to reduction=weighted")

    def settled(self, program: Program) -> GradientAccumulation:
        """``auto``, as the loss says it."""
        if self.reduction != "auto" or len(program.graphs) != 1:
            return self
        joins = joining(anatomy(the_step(program, self.name)))
        offset, least = joins.beside
        return dataclasses.replace(self, reduction=joins.reduction, weight=joins.weight, offset=offset, least=least)

    def run(self, program: Program) -> PassResult:
        step = the_step(program, self.name)
        if SKIPPED in program.state and EACH in program.state[SKIPPED].info:
            raise PassError(
                "an earlier overflow-check is to look at each micro-batch (policy=skip-micro or detect=status) and has "
                f"put its check around the whole step: ask for {self.name} before it, or in the same pipeline"
            )
        if self.reduction == "auto":
            return self.settled(program).run(program)
        joins = joining(anatomy(step))
        parts = network_parts(step)
        if settle_results(step, parts):
            parts = network_parts(step)
        if clear_behind_reading(step, parts, scope=SCOPE):
            parts = network_parts(step)
        if asks_for_overflow(step):  # for those who ask the parts of the step for its loss scale
            name_results(program, step)
        found = anatomy(step, parts)
        if join_summands(found):
            found = anatomy(step)
        if apply_factors(found):
            found = anatomy(step)
        if hold_states(program, found):
            found = anatomy(step)
        cut = find_cut(found)
        carry = Carry(found, cut, self.carry or ("last",) * (self.steps == 1))
        if carry.move_each():
            found = anatomy(step)
            cut = find_cut(found)
        plan = self._plan(program, found, cut, carry)
        if plan.weight is not None and self.weight is not None and self.weight != joins.weight:
            refuse_no_count(plan.weight, self.weight)
        before = len(step)
        accumulate(program, plan)
        result = self._report(plan, before, program.graphs)
        self._judge(joins, result)
        return result

    def _judge(self, joins: Joining, result: PassResult) -> None:
        """Whether a cycle is the step on the joined batch, and what of that is assumed."""
        asked = self.reduction
        alike = asked == joins.reduction and (self.offset, self.least) == joins.beside
        alike |= (asked, joins.reduction) == ("weighted", "mean")
        lost = EQUAL if (asked, joins.reduction) == ("mean", "weighted") else NEVER
        sizes = joins.sizes if alike or joins.sizes == NEVER else lost
        result.statistics |= {"big batch": sizes, "joins": str(joins)}
        result.summary += f"; {'not ' * (sizes == NEVER)}one step on the joined batch"
        result.summary += f", {sizes}" if sizes != NEVER else ""
        if joins.sizes == NEVER:
            result.miss(site(joins.node) if joins.node is not None else "loss", str(joins))
        elif sizes != joins.sizes:
            kind = "the big batch with equal sizes only" if lost == EQUAL else "not the big batch"
            result.miss("loss", f"{kind}: reduction={asked} was asked for, and {joins.how}")
        for assumption in joins.assumed:
            result.miss("loss", f"assumed: {assumption}")

    def _plan(self, program: Program, found: TrainingAnatomy, cut: Cut, carry: Carry) -> Plan:
        gradients = self._accumulators(program, cut)
        carried = [carry.kept(c) for c in cut.carried]
        for k in carried:
            if not k.type.is_static:
                raise PassError(f"{site(k.crossing.value)} has no fixed shape: it cannot be kept for the update graph")
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
        paths = {path.weight: path for path in gradient_paths(found.graph, found)}
        fixed = fixed_gradients(found, paths)
        mean = self.reduction == "mean"
        return Plan(found, cut, gradients, carried, paths, fixed, weight, Beside(self.offset, self.least), mean, cycle)

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

    def _report(self, plan: Plan, before: int, graphs: Mapping[str, Graph]) -> PassResult:
        result, found = self.result(), plan.found
        result.matched = len(found.weights)
        result.changed = len({k.crossing.weight for k in plan.gradients})
        trained = {w.name for w in found.weights}
        for name, role in found.roles.items():
            if role == "weight" and name not in trained and name != COUNT:
                result.miss(name, "frozen: nothing updates it, so there is no gradient to accumulate")
        for info in found.weights:
            if not info.gradient:
                result.miss(info.name, "the same for every batch: its update takes a constant for a gradient")
        for k in plan.carried:
            users = ", ".join(site(user) for user, _ in k.crossing.uses[:3])
            which = "mean over the micro-batches" if k.mean else "last micro-batch's value"
            result.miss(k.crossing.value.name, f"the update side (by {users}) sees the {which}")
        nbytes = sum(k.type.nbytes for k in plan.gradients)
        result.statistics = {
            "accumulators": len(plan.gradients),
            "accumulator bytes": nbytes,
            "nodes before": before,
            **{f"nodes in {name}": len(graph) for name, graph in graphs.items()},
        }
        result.summary = (
            f"{counted(result.changed, 'gradient')} accumulated over {counted(self.steps, 'micro-batch')} "
            f"({print_bytes(nbytes)} of accumulators)"
        )
        return result
