"""Replace-optimizer: weights are updated by another optimizer than the file's."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from ...ir.analysis.effects.state_access import Effect, states_behind, summarize
from ...ir.analysis.functions.calls import bindings
from ...ir.analysis.training.anatomy import anatomy
from ...ir.analysis.training.gradient_path import PASSING, gradient_paths, is_fed, updating_graphs
from ...ir.analysis.training.network import network_parts, passed_on
from ...ir.analysis.training.own_writes import own_writes
from ...ir.analysis.training.results import skips_writes
from ...ir.analysis.training.stages import STAGES, GradientPath, Point
from ...ir.builders.nodes import Nodes
from ...ir.core.errors import OptionError, PassError
from ...ir.core.graph import Graph, Input, Node, State, Value, tensor_type
from ...ir.core.op import CALL
from ...ir.core.predicates import written_operands
from ...ir.core.primitives import facts
from ...ir.core.program import Program, StateVariable
from ...ir.core.report import PassResult
from ...ir.core.sites import site
from ...ir.core.spec import Spec, parse_spec
from ...ir.core.updating import exported
from ...ir.core.walk import carried_operands, result_value, walk
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
from ..step.update_side import update_effects
from .own import BESIDES, find_own

SCOPE = "replace-optimizer"


class ReplaceOptimizer(Pass):
    """Updates weights by another optimizer than the file's, whose slots go.

    ``to`` names an optimizer of ``mindspore.nn`` with its options, as ``boost-compile --optimizer`` does:
    ``adam-weight-decay{lr=0.001,weight_decay=0.01}``. MindSpore exports it when the program is compiled. ``lion``,
    ``muon``, ``schedule-free-adamw`` and, for a CPU, ``lamb`` are made of portable primitives here. The optimizer takes
    the gradients where the file's own took them: unscaled, checked and clipped as the training cell does that. Where
    the cell skips an update that overflows, it skips that of the new optimizer. Weight decay and centralization were
    part of the optimizer that goes.

    ``match`` are globs over the names of weights. Each use of the pass makes one group, and weights that no use names
    keep the file's optimizer. A group whose optimizer has states that are called as others' (``global_step``) gets
    ``optimizer2.`` in front of them.

    Without ``lr`` the new optimizer has the learning rate of the old one. With ``keep_schedule``, a rate that the file
    holds for each update (a list) goes on changing: as it was, or in proportion where ``lr`` says how large it is at
    most. One that the graph computes (a ``LearningRateSchedule``) is refused; give ``keep_schedule=false``, and ask for
    the pass ``schedule``.

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
        paths = self._paths(program, graph)
        weights = [path.weight for path in paths]
        spec = parse_spec(self.to, "optimizer")
        rate, kept = self._rate(program, graph, weights, spec)
        gone = sorted(set(_exchange(program, graph, paths, spec, rate, beside or ())) - set(program.state))
        if kept is not None:
            rates = [r for r in find_rates(program, [graph]) if set(r.weights) & set(weights)]
            set_rates(program, [graph], [(rate, kept) for rate in rates])
        if beside is not None:
            put_back(graph, beside, scope=SCOPE)
        for path in paths:
            for stage in ("weight-decay", "centralize"):
                if path.has(stage):
                    result.miss(path.weight, f"its {stage} was part of the optimizer, which is replaced")
        result.matched = result.changed = len(weights)
        slots = sum(v.nbytes for v in program.state.values() if v.weight in set(weights) and v.role == "slot")
        result.statistics = {
            "weights": len(weights), "state removed": ", ".join(gone) or "none", "bytes of slots": slots,
        }  # fmt: skip
        result.summary = f"{counted(len(weights), 'weight')} updated by {spec.name}; {counted(len(gone), 'state')} gone"
        return result

    def _paths(self, program: Program, graph: Graph) -> list[GradientPath]:
        """The gradients of the weights that match; PassError for those that cannot be taken on to another optimizer."""
        found = anatomy(graph)
        paths = gradient_paths(graph, found)
        names = trained_matching(program, self.match, [path.weight for path in paths])
        chosen = [path for path in paths if path.weight in names]
        refuse_sparse(chosen, "which another optimizer cannot take")
        _refuse_between(graph, {path.weight: path for path in chosen})
        limit = STAGES.index("clip")
        for path in chosen:
            if any(p.stage and STAGES.index(p.stage) <= limit and p.graph not in (graph, None) for p in path.points):
                raise PassError(
                    f"the gradient of weight '{path.weight}' is treated inside a function, behind a condition of the "
                    "file: export nn.TrainOneStepCell, and let loss-scale and overflow-check do that"
                )
            for value in path.at("clip", graph).values:
                if tensor_type(value).shape != program.state[path.weight].shape:
                    raise PassError(
                        f"the gradient {site(value)} of weight '{path.weight}' has another shape than the weight: "
                        "export an optimizer of mindspore.nn"
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


def _update(
    program: Program, spec: Spec, weights: Sequence[StateVariable], taken: Collection[str], rate: float | None
) -> Program:
    """The optimizer as a program that takes gradients: one of those that stand here, else MindSpore's."""
    if (own := find_own(spec.name, program.target)) is not None:
        return own(spec, weights, taken, rate)
    try:
        update: Program = exported(spec, weights, taken, rate)
    except OptionError as error:
        if "is called" in str(error):
            error.postscript += f"\n  replace-optimizer has these besides: {', '.join(BESIDES)}"
        raise
    return update


@dataclass(slots=True)
class _Old:
    """What goes: ``effects``, and ``states`` that serve nothing but the weights' updates. ``counters``: states that
    serve nothing else either, but that the updates do not read."""

    effects: list[Effect]
    states: set[str]
    counters: set[str]


def _whole(point: Point, n: Nodes) -> Value:
    """A gradient as one value. Several summands meet in an AddN, as MindSpore's autodiff leaves them: where the new
    optimizer adds a decay, MindSpore makes one AddN of both, which rounds as that of an export."""
    if len(point.values) == 1:
        return point.values[0]
    parts = n.op("MakeTuple", *point.values)
    return n.graph.create("AddN", [parts], scope=SCOPE, sources=point.values)


def _old(program: Program, graph: Graph, fx: Effects, weights: Collection[str], beside: Collection[Node]) -> _Old:
    """The updates of these weights, and what only they need. ``beside``: effects that stay in any case. What the cell
    does to weights by itself (it clips them) stays too."""
    own_of_cell = own_writes(graph)
    updating = update_effects(fx, {name: v.role for name, v in program.state.items()})
    updating = [e for e in updating if e.node not in own_of_cell]
    slots = {name for name, v in program.state.items() if v.weight in weights and v.role == "slot"}
    own = set(weights)
    while True:  # a slot that no update reads (an average that the cell keeps by itself) is none of the optimizer's
        gone = [e for e in updating if {s.name for s in e.writes} & own]
        more = _read([e.node for e in gone]) | {s.name for e in gone for s in e.writes}
        if more & slots <= own:
            break
        own |= more & slots
    known = summarize(graph)
    for effect in gone:
        written = {state.name for state in effect.writes}
        if not written <= own | _hyperparameters(program):
            other = sorted(written - own)[0]
            raise PassError(f"{site(effect.node)} updates '{other}' together with the weights: name both in match")
        if effect.node.op is CALL and skips_writes(effect.node.operand(0), known) is not None:
            raise PassError(
                f"the file updates '{sorted(written)[0]}' under a condition of its own (by {site(effect.node)}), which "
                "another optimizer would not know: build the cell with the other optimizer, or export it without the "
                "condition (where that asks for finite gradients, overflow-check does it)"
            )
    nodes = {effect.node for effect in gone}
    rest = [e for e in fx.list if not e.passive and e.node not in nodes]
    served = _read([e.node for e in gone])
    alone = {s.name for e in rest if e.node not in beside for s in e.writes} & _hyperparameters(program)
    while True:  # a state that only writes of itself read
        needed = _read([result_value(graph), *(e.node for e in rest if not {s.name for s in e.writes} <= alone)])
        if not needed & alone:
            break
        alone -= needed
    writers = [e for e in rest if e.writes and {s.name for s in e.writes} <= alone]
    free = (served & _hyperparameters(program)) - needed
    return _Old([*gone, *writers], (own - set(weights)) | free, alone - served)


def _hyperparameters(program: Program) -> set[str]:
    return {name for name, v in program.state.items() if v.role == "hyperparameter"}


def _read(values: Iterable[Value]) -> set[str]:
    """The states that values are computed from."""
    return {v.name for v in walk(values, carried_operands) if isinstance(v, State)}


def _refuse_between(graph: Graph, paths: Mapping[str, GradientPath]) -> None:
    """PassError where something that no stage is (clipping in a function) stands between a gradient and a primitive
    that updates by it: it would be lost."""
    bound = bindings(graph)

    def source(value: Value) -> Sequence[Value]:
        if not isinstance(value, Node):
            return bound.get(value, ()) if isinstance(value, Input) else ()
        if value.op.name in PASSING:
            return value.operands[:1]
        at = facts(value.op).gradient  # LARS scales it: a part of the optimizer
        return () if at is None or written_operands(value) else [value.operand(at)]

    for node in graph.all_nodes():
        at, written = facts(node.op).gradient, written_operands(node)
        if at is None or not written:
            continue
        for state in states_behind(node.operand(written[0]), bound):
            taken = list(walk([node.operand(at)], source))
            if state.name in paths and not set(taken) & set(paths[state.name].points[-1].values):
                between = next((v for v in reversed(taken) if isinstance(v, Node)), node)
                raise PassError(
                    f"{site(between)} stands between the gradient of weight '{state.name}' and its optimizer, and "
                    "would be "
                    "lost: leave it out of the training cell, and let clip-gradients do that"
                )


def _refuse_second_look(graph: Graph, fx: Effects, updates: set[Node]) -> None:
    """PassError where the network reads a weight that one of ``updates`` has written before: a step of two passes."""
    parts = network_parts(graph)
    written: dict[Value, Node] = {}
    for effect in fx.list:
        if effect.node in updates:
            written.update((state, effect.node) for state in effect.writes)
        elif effect.node in parts:
            for state in effect.reads & set(written):
                raise PassError(
                    f"the network reads '{state.name}' (by {site(effect.node)}) after the same step has written it "
                    "(by "
                    f"{site(written[state])}), so what another optimizer would do there is not known: export a "
                    "training "
                    "cell that takes all gradients before it updates"
                )


def _exchange(
    program: Program,
    graph: Graph,
    paths: Sequence[GradientPath],
    spec: Spec,
    rate: float | None,
    beside: Collection[Node],
) -> list[str]:
    """Takes the updates of the weights out, with the state that only they keep, and puts the new ones in their place.
    Effects ``beside`` them stay. Returns the names of the state that went."""
    weights = {path.weight: program.state[path.weight] for path in paths}
    fx, n = Effects(graph), Nodes(graph, SCOPE)
    old = _old(program, graph, fx, set(weights), beside)
    # What nothing takes (the rate of an AdaFactor) gives its name away.
    taken = {name for name, state in graph.states.items() if state.uses} - set(weights) - old.states - old.counters
    used = program.used_state()
    update = _update(program, spec, list(weights.values()), taken, rate)
    (source,) = update.graphs.values()
    gradients = [n.cast(_whole(p.at("clip", graph), n), program.state[p.weight].dtype) for p in paths]
    # A result that waited for an update (the True of an optimizer) waits for none any more.
    images = passed_on(graph, [value for _, value in named_results(graph)])
    kept = old.counters - set(update.state)
    gone = [e for e in old.effects if not (e.writes and {s.name for s in e.writes} <= kept)]
    nodes = {e.node for e in gone}
    _refuse_second_look(graph, fx, nodes)
    first = next(i for i, e in enumerate(fx.list) if e.node in nodes)
    behind = [e.node for e in fx.list[first:] if e.node not in nodes and {s.name for s in e.touched} & set(weights)]
    fx.drop(gone)
    named = [(name, image or value) for (name, value), image in zip(named_results(graph), images, strict=True)]
    fx.commit(graph.create("MakeTuple", [with_results(graph, named), *gradients]))
    forget_unused(graph)
    dropped = program.drop_state(used - set(weights))
    for name in (name for name in update.state if name not in weights):
        variable = update.state[name]
        role = "slot" if variable.weight else "hyperparameter"
        program.state.pop(name, None)
        program.add_state(name, variable.type, role, variable.data, variable.weight).info.update(variable.info)
    fx = Effects(graph)
    held = result_value(graph)
    assert isinstance(held, Node)
    result, *gradients = held.operands
    at = next((i for i, e in enumerate(fx.list) if e.node in behind), len(fx.list))
    graft(fx, source, dict(zip(source.inputs, gradients, strict=True)), at)
    fx.commit(result)
    forget_unused(graph)
    found = anatomy(graph)
    for info in found.weights:
        for slot in info.slots:
            if info.name in weights:
                program.state[slot].role, program.state[slot].weight = "slot", info.name
    return dropped
