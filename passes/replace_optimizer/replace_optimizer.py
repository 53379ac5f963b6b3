"""Replace-optimizer: weights are updated by another optimizer than the file's."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from itertools import pairwise
from typing import NamedTuple

from ...ir.analysis.effects.state_access import summarize
from ...ir.analysis.training.anatomy import anatomy
from ...ir.analysis.training.cells import cell_of, within
from ...ir.analysis.training.gradient_path import gradient_paths, is_fed, updating_graphs
from ...ir.analysis.training.optimizers import Handed, Optimizers, reached
from ...ir.analysis.training.origins import passed_on
from ...ir.analysis.training.rates import Updates
from ...ir.analysis.training.results import skips_writes
from ...ir.analysis.training.stages import GradientPath, Point
from ...ir.builders.nodes import Nodes
from ...ir.core.errors import OptionError, PassError
from ...ir.core.graph import Constant, Graph, Input, Node, State, Value, tensor_type
from ...ir.core.names import STAGE
from ...ir.core.op import CALL
from ...ir.core.program import Program, StateVariable
from ...ir.core.report import PassResult
from ...ir.core.sites import site
from ...ir.core.spec import Spec, parse_spec
from ...ir.core.types import TensorType
from ...ir.core.updating import exported
from ...ir.core.wording import counted
from ...ir.rewrite.effects.editing import Effects
from ...ir.rewrite.graft import graft
from ..framework.base import Pass
from ..framework.options import option
from ..step.matching import trained_matching
from ..step.names import SKIPPED, TABLE
from ..step.own_update import lay_open, put_back
from ..step.rates import NAME, Rate, find_rates, set_rates
from ..step.results import named_results, with_results
from ..step.sparse import refuse_sparse
from ..step.split import forget_unused
from ..step.unscaling import HELP, TOLD, check_unscale, remark, unscaled_paths
from .own import BESIDES, find_own

SCOPE = "replace-optimizer"


class ReplaceOptimizer(Pass):
    """Updates weights by another optimizer than the file's, whose state goes.

    ``to`` names an optimizer of ``mindspore.nn`` with its options, as ``boost-compile --optimizer`` does:
    ``adam-weight-decay{lr=0.001,weight_decay=0.01}``. ``lion``, ``muon``, ``schedule-free-adamw`` and, for a CPU,
    ``lamb`` are made of portable primitives here. The optimizer is handed what the file's own was: what stands outside
    of the optimizer's cell (unscaling, clipping, masks, a check for overflows) stays. Weights that the training cell
    updates by itself are left alone. A ``weight_decay`` of the optimizers that are made here is for the weights that
    the file decays, or for all where it decays none.

    ``match`` are globs over the names of weights. Each use of the pass makes one group, and weights that no use names
    keep the file's optimizer. A group whose optimizer has states that are called as others' (``global_step``) gets
    ``optimizer2.`` in front of them.

    Without ``lr`` the new optimizer has the learning rate of the old one. With ``keep_schedule``, a rate that the file
    holds for each update (a list) goes on changing. One that the graph computes (a ``LearningRateSchedule``) is
    refused; give ``keep_schedule=false``, and ask for the pass ``schedule``.

    Changes training: it is that of the same network exported with the other optimizer.

    Source: the optimizers of ``mindspore.nn``; Chen et al., Symbolic Discovery of Optimization Algorithms, 2023 (Lion);
    Jordan et al., Muon, 2024; Defazio et al., The Road Less Scheduled, 2024; You et al., Large Batch Optimization for
    Deep Learning, 2020 (Lamb).
    """

    name = "replace-optimizer"
    preserves = False
    early = True
    to: str = option(help="the optimizer that updates the weights, with its options")
    match: tuple[str, ...] = option(("*",), help="globs over the names of the weights that it updates")
    keep_schedule: bool = option(True, help="a learning rate that changes with the updates goes on changing")
    unscale: str = option(TOLD, help=HELP)

    def __post_init__(self) -> None:
        super().__post_init__()
        check_unscale(self.unscale, self.name)
        parse_spec(self.to, "optimizer")

    def run(self, program: Program) -> PassResult:
        result = self.result()
        graph = _graph(program)
        beside = lay_open(graph, scope=SCOPE)
        remark(result, unscaled_paths(graph, self.unscale))
        weights = self._weights(program, graph, result)
        spec = parse_spec(self.to, "optimizer")
        rate, kept = self._rate(program, graph, weights, spec)
        before = set(program.state)
        decaying = _decaying(program, graph, weights, spec, result)
        for group in _groups(graph, weights):
            _exchange(program, graph, group, spec, rate, decaying)
        gone = sorted(before - set(program.state))
        if kept is not None:
            rates = [r for r in find_rates(program, [graph]) if set(r.weights) & set(weights)]
            set_rates(program, [graph], [(rate, kept) for rate in rates])
        if beside is not None:
            put_back(graph, beside, scope=SCOPE)
        result.matched = result.changed = len(weights)
        slots = sum(v.nbytes for v in program.state.values() if v.weight in set(weights) and v.role == "slot")
        result.statistics = {
            "weights": len(weights), "state removed": ", ".join(gone) or "none", "bytes of slots": slots,
        }  # fmt: skip
        result.summary = f"{counted(len(weights), 'weight')} updated by {spec.name}; {counted(len(gone), 'state')} gone"
        return result

    def _weights(self, program: Program, graph: Graph, result: PassResult) -> list[str]:
        """The weights that match and that an optimizer updates; PassError where there is none."""
        found = anatomy(graph)
        optimizers = Optimizers(found)
        names = trained_matching(program, self.match, [info.name for info in found.weights])
        paths = {path.weight: path for path in gradient_paths(graph, found)}
        refuse_sparse([path for path in paths.values() if path.weight in names], "which another optimizer cannot take")
        chosen, by_itself = [], ""
        for info in found.weights:
            if info.name not in names:
                continue
            handed = optimizers.handed(info)
            if handed is None:
                by_itself = (
                    "its optimizer takes no gradient of this step for it, and goes on updating it"
                    if optimizers.has(info)
                    else f"the training cell updates it by itself (by {site(info.updates[0])}), in no optimizer's cell"
                )
                result.miss(info.name, by_itself)
                continue
            chosen.append(info.name)
            for stage in ("weight-decay", "centralize"):
                if info.name in paths and _inside(paths[info.name], stage, handed):
                    result.miss(info.name, f"its {stage} was part of the optimizer, which is replaced")
        for name in optimizers.without_gradient():
            result.miss(name, "its optimizer takes no gradient of this step for it, and goes on updating it")
        if not chosen:
            raise PassError(
                f"'{min(names)}' has no optimizer: {by_itself}, and what is the optimizer's there and what the training"
                " cell's is not told. Bring the update into an nn.Optimizer that the training cell calls"
            )
        return chosen

    def _rate(
        self, program: Program, graph: Graph, weights: Sequence[str], spec: Spec
    ) -> tuple[float | None, list[float] | None]:
        """The learning rate for an optimizer that is given none, and the rates by which it goes on changing."""
        given = next((spec.options[k] for k in ("lr", NAME) if k in spec.options), None)
        try:
            rates = [r for r in find_rates(program, [graph]) if set(r.weights) & set(weights)]
        except PassError:
            return None, None  # the optimizer says which rate it lacks
        largest = {rate.largest for rate in rates}
        changing = [r for r in rates if r.numbers is None or len(set(r.numbers)) > 1]
        default = rates[0].largest if given is None and len(largest) == 1 else None
        if not changing or not self.keep_schedule:
            return default, None
        if len(rates) > 1:
            raise PassError(
                f"the weights have {counted(len(rates), 'learning rate')} ({_names(rates)}), of which "
                f"'{changing[0].name}' changes with the updates, and one optimizer has one: use the pass once for each "
                "group, or give keep_schedule=false"
            )
        (rate,) = changing
        if rate.numbers is None:
            raise PassError(
                f"the graph computes the learning rate of weight '{next(iter(rate.weights))}' ({rate.name}), which the "
                "new optimizer does not take: give keep_schedule=false, and ask for the pass schedule"
            )
        top = max(rate.numbers)
        largest_now = top if given is None else float(given)
        return default, [v if largest_now == top else largest_now * (v / top) for v in rate.numbers]


def _names(rates: Sequence[Rate]) -> str:
    return ", ".join(f"'{rate.name}'" for rate in rates)


def _graph(program: Program) -> Graph:
    """The step of a program that no pass has cut or made conditional."""
    if TABLE in program.state:
        raise PassError("schedule has set the learning rate of the optimizer that goes: ask for both in one pipeline")
    graphs = updating_graphs(program)
    averaged = any(report.name == "weight-average" for report in program.reports)
    if len(program.graphs) != 1 or is_fed(graphs[0]) or SKIPPED in program.state or averaged:
        raise PassError("the program is no plain training step any more: ask for all passes in one pipeline")
    (graph,) = graphs
    return graph


def _decaying(
    program: Program, graph: Graph, weights: Sequence[str], spec: Spec, result: PassResult
) -> Collection[str]:
    """The weights that an optimizer that stands here decays: those that the file decays, or all where it decays
    none."""
    if find_own(spec.name, program.target) is None or not spec.options.get("weight_decay"):
        return weights
    updates = {info.name: info.updates for info in anatomy(graph).weights}
    asked = Updates(program, graph)
    decaying = [name for name in weights if asked.decays(name, updates[name])]
    if not decaying:
        result.miss("weight_decay", "the file decays none of these weights, so all decay: match says which should")
    for name in weights if decaying else ():
        if name not in decaying:
            result.miss(name, "the file does not decay it, so it does not decay: match it alone if it should")
    return decaying or weights


def _update(
    program: Program,
    spec: Spec,
    weights: Sequence[StateVariable],
    taken: Collection[str],
    rate: float | None,
    decaying: Collection[str],
) -> Program:
    """The optimizer as a program that takes gradients: one of those that stand here, else MindSpore's."""
    if (own := find_own(spec.name, program.target)) is not None:
        return own(spec, weights, taken, rate, decaying)
    try:
        update: Program = exported(spec, weights, taken, rate)
    except OptionError as error:
        if "is called" in str(error):
            error.postscript += f"\n  replace-optimizer has these besides: {', '.join(BESIDES)}"
        raise
    return update


def _inside(path: GradientPath, stage: str, handed: Handed) -> list[tuple[Point, Point]]:
    """The points of a stage of a gradient that are in the optimizer, each with the one before."""

    def is_own(value: Value) -> bool:
        return isinstance(value, Node) and STAGE not in value.marks and within(cell_of(value), handed.cell)

    start = next((i for i, at in enumerate(path.points) if {*at.values} & {*handed.values}), len(path.points))
    points = pairwise(path.points[start:]) if handed.cell else ()
    return [(before, at) for before, at in points if at.stage == stage and any(map(is_own, at.values))]


def _given(handed: Handed, path: GradientPath | None, weight: StateVariable, n: Nodes) -> Value:
    """What the new optimizer is handed: what the old one was, without the loss scale that this one divides by. Several
    summands meet in an AddN, as MindSpore's autodiff leaves them: where the new optimizer adds a decay, MindSpore makes
    one AddN of both, which rounds as that of an export."""
    for value in handed.values:
        inside = (
            value not in n.graph.inputs if isinstance(value, Input) else getattr(value, "graph", None) is not n.graph
        )
        if inside and not isinstance(value, Constant):
            raise PassError(
                f"the gradient of weight '{handed.weight}' is treated inside a function, behind a condition of the "
                "file: export nn.TrainOneStepCell, and let loss-scale and overflow-check do that"
            )
        if tensor_type(value).shape != weight.shape:
            raise PassError(
                f"the gradient {value.name} of weight '{handed.weight}' has another shape than the weight: "
                "export an optimizer of mindspore.nn"
            )
    value, *others = handed.values
    if others:
        parts = [n.op("MakeTuple", *handed.values)]
        value = n.graph.create("AddN", parts, scope=SCOPE, sources=handed.values)
    for before, point in _inside(path, "unscale", handed) if path else ():
        (factor,) = point.values
        assert isinstance(factor, Node)
        operands = [value if o in before.values else o for o in factor.operands]
        type_ = TensorType(tensor_type(value).dtype, weight.shape)
        value = n.graph.create(factor.op, operands, type_, scope=SCOPE, sources=[factor])
    return n.cast(value, weight.dtype)


def _groups(graph: Graph, weights: Sequence[str]) -> list[list[str]]:
    """The weights that can be updated together: all, but where the training cell takes a weight between their updates
    (it trains in turns)."""
    plan = _Plan(graph, weights)
    groups: list[list[str]] = []
    front = behind = 0
    for handed in sorted(plan.handed, key=lambda handed: plan.places[handed.weight].first):
        place = plan.places[handed.weight]
        front, behind = max(front, place.front), min(behind, place.behind)
        if front >= behind:
            groups.append([])
            front, behind = place.front, place.behind
        groups[-1].append(handed.weight)
    return groups


class _Place(NamedTuple):
    """Where a weight is updated in the list of effects: its ``first`` update; the last effect that stays and takes the
    weight in ``front`` of the updates, and the first ``behind`` them."""

    first: int
    front: int
    behind: int


class _Plan:
    """What goes with the updates of some weights, and what comes behind."""

    def __init__(self, graph: Graph, weights: Collection[str]):
        found = anatomy(graph)
        optimizers = Optimizers(found)
        self.paths = {path.weight: path for path in gradient_paths(graph, found)}
        self.handed = [
            handed for info in found.weights
            if info.name in weights and (handed := optimizers.handed(info)) is not None
        ]  # fmt: skip
        self.fx = fx = Effects(graph)
        # A result that waited for an update (the True of an optimizer) waits for none any more.
        images = passed_on(graph, found.parts, [value for _, value in named_results(graph)])
        self.results = [(n, image or value) for (n, value), image in zip(named_results(graph), images, strict=True)]
        values = [value for _, value in self.results]
        known = summarize(graph)
        steps = {node for handed in self.handed for node in handed.steps}
        for effect in fx.list:
            if effect.node.op is not CALL or skips_writes(effect.node.operand(0), known) is None:
                continue
            written = {state.name for state in effect.writes} & {*weights}
            if written and not steps.isdisjoint(n for function in reached(effect.node) for n in function):
                raise PassError(
                    f"the file updates '{min(written)}' under a condition of its own (by "
                    f"{site(effect.node)}), which another optimizer would not know: build the cell with the other "
                    "optimizer, or export it without the condition (where that asks for finite gradients, "
                    "overflow-check does it)"
                )
        self.gone, needed = optimizers.leaving(fx.list, self.handed, values)
        self.kept = {value.name for value in needed if isinstance(value, State)}
        self.places = self._places(needed)

    def _places(self, needed: Collection[Value]) -> dict[str, _Place]:
        gone = {e.node for e in self.gone}
        updates: dict[str, list[int]] = {handed.weight: [] for handed in self.handed}
        stays: dict[str, list[int]] = {name: [] for name in updates}
        for i, effect in enumerate(self.fx.list):
            if effect.node in gone or effect.node in needed or not effect.passive:
                for name in updates.keys() & {state.name for state in effect.touched}:
                    (updates if effect.node in gone else stays)[name].append(i)
        return {
            name: _Place(
                at[0],
                max((i for i in stays[name] if i < at[-1]), default=-1),
                min((i for i in stays[name] if i > at[0]), default=len(self.fx.list)),
            )
            for name, at in updates.items()
        }


def _exchange(
    program: Program,
    graph: Graph,
    weights: Sequence[str],
    spec: Spec,
    rate: float | None,
    decaying: Collection[str],
) -> None:
    """Takes the updates of the weights out, with the state that only they keep, and puts the new ones in their
    place."""
    plan = _Plan(graph, weights)
    front, behind = max(p.front for p in plan.places.values()), min(p.behind for p in plan.places.values())
    if front >= behind:
        raise PassError(
            f"the training cell takes a weight (by {site(plan.fx.list[behind].node)}) while the optimizer updates it, "
            "and what another would do there is not known: leave that out of the training cell"
        )
    following = next((e.node for e in plan.fx.list[behind:]), None)
    fx, n = plan.fx, Nodes(graph, SCOPE)
    variables = [program.state[handed.weight] for handed in plan.handed]
    given = [_given(h, plan.paths.get(h.weight), v, n) for h, v in zip(plan.handed, variables, strict=True)]
    used = program.used_state()
    update = _update(program, spec, variables, plan.kept - set(weights), rate, decaying)
    (source,) = update.graphs.values()
    fx.drop(plan.gone)
    for name in (name for name in update.state if name not in weights):
        variable = update.state[name]
        role = "slot" if variable.weight else "hyperparameter"
        graph.states.pop(name, None)  # one of the old optimizer
        program.state.pop(name, None)
        program.add_state(name, variable.type, role, variable.data, variable.weight).info.update(variable.info)
    at = next((i for i, e in enumerate(fx.list) if e.node is following), len(fx.list))
    graft(fx, source, dict(zip(source.inputs, given, strict=True)), at)
    fx.commit(with_results(graph, plan.results))
    forget_unused(graph)
    program.drop_state(used - set(update.state))
    for info in anatomy(graph).weights:
        for slot in info.slots:
            if info.name in weights:
                program.state[slot].role, program.state[slot].weight = "slot", info.name
