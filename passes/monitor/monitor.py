"""Monitor: what becomes of gradients and weights, measured where they are."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ...ir.analysis.training.gradient_path import gradient_paths, updating_graphs
from ...ir.analysis.training.stages import STAGES, GradientPath
from ...ir.core.errors import OptionError, PassError
from ...ir.core.graph import Graph, Node
from ...ir.core.names import EVERY, MONITORED_CYCLES, WATCHED, monitor_of
from ...ir.core.program import Program
from ...ir.core.report import PassResult
from ...ir.core.types import DType, TensorType, tensor
from ...ir.core.wording import counted
from ..framework.base import Pass
from ..framework.options import option
from ..step.matching import updated_weights
from ..step.monitored import drop_monitors
from ..step.names import DROPPED, WEIGHT
from .measures import Plan, accumulators, measure_cycle, measure_micro_batch

WHAT = ("gradient-norm", "weight-norm", "update-ratio", "non-finite", "noise-scale")


class Monitor(Pass):
    """Measures gradients, weights and updates in each window, or in every K-th, by weight.

    The numbers stand in state, ``monitor.…``, one vector of float32 for each kind. No value leaves the device until
    somebody reads it: ``Session.monitors``, or ``boost-run --log``.

    ``gradient-norm``: the norm of the gradient at each stage of its way: ``raw`` as it leaves the network (with
    accumulation the root mean square over the micro-batches), ``accumulate`` the mean of the window, then ``unscale``,
    ``clip``, ``weight-decay``, ``centralize``, and ``update`` as the optimizer sees it. ``weight-norm``: the norm of
    the weight after the update. ``update-ratio``: the norm of the update, divided by the norm before. ``non-finite``:
    how many elements of the gradient are infinite or NaN. ``noise-scale``: the gradient noise scale, which needs
    windows of several micro-batches.

    With ``every=K`` the other windows cost nothing more. In measured ones gradients are kept until the weights are
    updated.

    Preserves training bit for bit.

    Source: McCandlish et al., An Empirical Model of Large-Batch Training, 2018 (noise-scale).
    """

    name = "monitor"
    late = True
    redone = True
    what: tuple[str, ...] = option(WHAT[:4], help="what is measured", choices=WHAT)
    match: tuple[str, ...] = option(("*",), help="globs over the names of weights")
    every: int = option(1, help="measures in every so-many-th window", minimum=1)

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.what:
            raise OptionError(f"pass '{self.name}': what=[] measures nothing; name some of {', '.join(WHAT)}")

    def undo(self, program: Program) -> None:
        drop_monitors(program)

    def run(self, program: Program) -> PassResult:
        result = self.result()
        _refuse(program, self.what)
        updating = updating_graphs(program)
        weights = updated_weights(
            program, updating, self.match, result, still="it has no update to measure", integer="it has no norm"
        )
        paths = {g.name: {path.weight: path for path in gradient_paths(g)} for g in updating} if weights else {}
        plan = self._plan(program, updating, weights, paths, result)
        if weights:
            self._add_states(program, plan)
        for graph in program.graphs.values() if weights else ():
            if graph in updating:
                measure_cycle(program, graph, plan, paths[graph.name])
            elif program.consumes(graph.name) and plan.sums:
                measure_micro_batch(program, graph, plan)
        result.matched = result.changed = len(weights)
        result.statistics = {"weights monitored": len(weights), "numbers": sum(map(len, plan.vectors.values()))}
        often = "each cycle" if self.every == 1 else f"every {counted(self.every, 'cycle')}"
        result.summary = f"{counted(len(weights), 'weight')} measured ({', '.join(self.what)}) {often}"
        return result

    def _plan(
        self,
        program: Program,
        updating: Sequence[Graph],
        weights: Sequence[str],
        paths: Mapping[str, Mapping[str, GradientPath]],
        result: PassResult,
    ) -> Plan:
        """What is measured of which weights. A weight without a gradient that can be measured is a miss."""
        asked = set(self.what)
        of_gradients = asked & {"gradient-norm", "non-finite", "noise-scale"}
        followed = [p for by_weight in paths.values() for name, p in by_weight.items() if name in weights]
        several = {p.weight for p in followed if not p.is_sum}
        hidden = {p.weight for p in followed if not _is_outside(p, updating)} - several
        sparse = {p.weight for p in followed if p.sparse}
        trained = [n for n in weights if n not in several | hidden | sparse and any(p.weight == n for p in followed)]
        for name in weights if of_gradients else ():
            if name in several:
                result.miss(
                    name,
                    "several gradients update it, in turn or joined by the cell: none is measured",
                )
            elif name in sparse:
                result.miss(name, "its gradient is sparse: the norm of rows is not that of the gradient")
            elif name in hidden:
                result.miss(name, "its gradient is computed inside a function: it is not measured")
            elif name not in trained:
                result.miss(name, "no gradient in its shape leads to its update: none is measured")
        held = accumulators(program, updating) if program.schedule.count is not None else {}
        summed = {name: held[name] for name in trained if name in held}
        vectors: dict[str, Sequence[str]] = {}
        if "gradient-norm" in asked and trained:
            if summed and WEIGHT not in program.state:
                vectors["gradient-norm.raw"] = list(summed)
            elif summed:
                why = "not of the micro-batches' own gradients (stage raw): these weigh by what each counts"
                result.miss("gradient-norm", why)
            vectors |= {f"gradient-norm.{stage}": trained for stage in _stages(program, updating, followed)}
        vectors |= {what: weights for what in ("weight-norm", "update-ratio") if what in asked}
        if "non-finite" in asked and trained:
            vectors["non-finite"] = trained
        if "noise-scale" in asked and summed:
            vectors |= {f"noise-scale.{part}": list(summed) for part in ("parts", "mean")}
        over_the_cycle = "noise-scale.parts" in vectors or "gradient-norm.raw" in vectors
        return Plan(vectors, summed if over_the_cycle else {}, self.every)

    @staticmethod
    def _add_states(program: Program, plan: Plan) -> None:
        cycles = program.add_state(MONITORED_CYCLES, tensor("int32"), "monitor")
        cycles.info[EVERY] = plan.every
        for what, names in plan.vectors.items():
            vector = program.add_state(monitor_of(what), TensorType(DType.FLOAT32, (len(names),)), "monitor")
            vector.info[WATCHED] = list(names)
        if plan.sums:
            program.add_state(monitor_of("sums"), TensorType(DType.FLOAT32, (len(plan.sums),)), "monitor")
            program.add_state(monitor_of("micro-batches"), tensor("float32"), "monitor")


def _refuse(program: Program, what: Sequence[str]) -> None:
    """PassError for programs that cannot be measured in this way, each with a remedy."""
    if "noise-scale" not in what:
        return
    remedy = "leave noise-scale out of what=[…]"
    if program.micro_batches() < 2:
        raise PassError(
            "noise-scale compares the gradients of the micro-batches of a window, and a window has one: add "
            f"gradient-accumulation{{steps=N}} with N of 2 or more, or {remedy}"
        )
    if WEIGHT in program.state:
        raise PassError(
            "noise-scale is of micro-batches that weigh the same, and these weigh by what each counts, as the loss is "
            f"divided by it (reduction=weighted, or auto): {remedy}"
        )
    if DROPPED in program.state:
        raise PassError(
            "noise-scale needs the gradients of all micro-batches, and overflow-check{policy=skip-micro} or "
            f"{{detect=status}} drops some: use policy=skip-cycle, or {remedy}"
        )


def _is_outside(path: GradientPath, updating: Sequence[Graph]) -> bool:
    """Whether a gradient starts in a main graph, where it can be measured."""
    return all(not isinstance(value, Node) or value.graph in updating for value in path.points[0].values)


def _stages(program: Program, updating: Sequence[Graph], paths: Sequence[GradientPath]) -> list[str]:
    """The stages at which gradients are measured: where they start, those that the main graphs have, and the last."""
    met = {point.stage for path in paths for point in path.points if point.graph in updating}
    start = "raw" if program.schedule.count is None else "accumulate"
    between = [stage for stage in STAGES if stage in met - {"", "accumulate", "update"}]
    return [start, *between, "update"]
