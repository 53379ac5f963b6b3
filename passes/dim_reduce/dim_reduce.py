"""Dimension reduction training: a quasi-Newton line search in a subspace of the weights, in place of the optimizer."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

from ...ir.analysis.training.gradient_path import gradient_paths, is_fed, updating_graphs
from ...ir.analysis.training.network import network_parts
from ...ir.analysis.training.origins import passed_on
from ...ir.analysis.training.stages import STAGES, GradientPath
from ...ir.builders.reduce import scalar_sum
from ...ir.core.attributes import scalar_tensor
from ...ir.core.errors import PassError
from ...ir.core.graph import Constant, Graph, Node, State, Value, tensor_type
from ...ir.core.line_search import Search
from ...ir.core.names import average_of
from ...ir.core.program import Program
from ...ir.core.report import PassResult
from ...ir.core.sites import site
from ...ir.core.types import TensorType, tensor
from ...ir.core.wording import counted
from ...ir.rewrite.effects.editing import Effects
from ...ir.rewrite.stages import mark_gradient, summed
from ..framework.base import Pass
from ..framework.options import option
from ..step.accumulated import added_terms
from ..step.exported_reductions import reduces_gradients
from ..step.micro_batch_weight import weighted_term
from ..step.names import COUNTED, SKIPPED, TABLE, WEIGHT
from ..step.results import named_results, with_results
from ..step.sparse import refuse_sparse
from ..step.split import forget_unused
from ..step.tally import cycle_total, declare_tally
from ..step.update_side import update_effects
from .subspace import LOSS, PENDING, PREFIX, SCOPE, SHADOW, TRIAL_LOSS, Subspace, begin_search, declare, judge
from .trial import Trial, loss_of, make_trial, return_draws


class DimReduce(Pass):
    """Replaces the optimizer by a quasi-Newton line search in the subspace of a principal component analysis.

    The gradient is projected on the rows of ``basis``, a BFGS matrix of their number makes a direction of it, and its
    length shrinks by ``rho`` until the loss falls by ``sigma`` of the decrease that the gradient promises. The part of
    the gradient outside of the subspace moves the weights by momentum (``gamma``, ``alpha``). Formulas:
    passes/dim_reduce/subspace.py.

    The optimizer of the file goes, with its state, learning rate, weight decay and centralization. A window with a
    gradient that is not finite changes nothing. After the updating graph of a window, ``trial`` (the forward part
    alone, at other weights) runs for each micro-batch. Then ``judge`` runs, and both repeat until one trial is
    accepted.

    Changes training.

    Source: ``mindspore.boost.DimReduce``.
    """

    name = "dim-reduce"
    preserves = False
    late = True
    basis: str = option(help="a .npy or .safetensors file with orthonormal rows, or a directory of checkpoints")
    n_components: int = option(32, help="rows of the basis that are used", minimum=1)
    rho: float = option(0.55, help="factor on the step's length from trial to trial", minimum=0.01, maximum=0.99)
    gamma: float = option(0.9, help="momentum of the gradient outside of the subspace", minimum=0, maximum=1)
    alpha: float = option(0.001, help="learning rate of that momentum", minimum=0)
    sigma: float = option(0.4, help="share of the promised decrease that a trial must reach", minimum=0, maximum=1)
    max_trials: int = option(10, help="trials a window; 2 as upstream", minimum=1)
    max_skipped: int = option(50, help="windows in a row that are not finite and end training; 0: never", minimum=0)

    def needs(self, program: Program) -> Sequence[str]:
        # Where the file reduces gradients over ranks, losses have to be reduced too.
        return ["data-parallel"] if program.schedule.search is None and reduces_gradients(program) else []

    def run(self, program: Program) -> PassResult:
        _refuse(program)
        used = program.used_state()
        updating = updating_graphs(program)
        paths = {graph.name: _paths(graph) for graph in updating}
        trained = {p.weight for found in paths.values() for p in found}
        trained.update(n for n, v in program.state.items() if v.role == "weight" and v.trainable)
        weights = {n: TensorType(v.dtype, v.shape) for n, v in program.state.items() if n in trained}
        feeding = [program.graphs[n] for n in program.schedule.graphs() if program.graphs[n].inputs]
        _refuse_changes(program, feeding, updating, trained)
        weighted = WEIGHT in program.state
        if weighted and program.state[WEIGHT].info:
            raise PassError("dim-reduce needs a loss that is divided by a count alone, with no number beside it")
        share = _weight_of(feeding[0]) if weighted else None
        trial = make_trial(feeding[0], trained, [] if share is None else [share])
        from .basis import read_basis  # numpy comes with it

        basis = read_basis(self.basis, {n: t.shape for n, t in weights.items()}, self.n_components)

        space = Subspace(self.n_components, weights, self.rho, self.gamma, self.alpha, self.sigma, self.max_trials)
        declare(program, space, basis)
        _declare_sums(program, trial, weights)
        for graph in feeding:
            return_draws(graph, trial.kept)
            if graph not in updating:
                _add_loss(graph, weighted)
        for graph in updating:
            _begin(program, graph, paths[graph.name], space, weighted)
        _add_trial_loss(trial, share)
        program.graphs["trial"] = trial.graph
        program.graphs["judge"] = judge(space)
        program.schedule = replace(
            program.schedule,
            max_skipped=self.max_skipped or None,
            search=Search("trial", "judge", PENDING, self.max_trials, tuple(trial.kept)),
        )
        gone = program.drop_state(sorted(used))
        return self._report(paths[updating[0].name], weights, trial, gone)

    def _report(
        self, paths: Sequence[GradientPath], weights: Mapping[str, TensorType], trial: Trial, gone: Sequence[str]
    ) -> PassResult:
        result = self.result()
        result.matched = result.changed = len(weights)
        for path in paths:
            for stage in ("weight-decay", "centralize"):
                if path.has(stage):
                    result.miss(path.weight, f"its {stage} was part of the optimizer, which is replaced")
        size = sum(type_.size for type_ in weights.values())
        result.statistics = {
            "weights": len(weights),
            "elements": size,
            "basis bytes": 4 * self.n_components * size,
            "nodes in trial": len(trial.graph),
            "random draws kept": len(trial.kept),
            "state removed": ", ".join(gone) or "none",
        }
        result.summary = (
            f"line search among {self.n_components} directions of {counted(len(weights), 'weight')} "
            f"({counted(size, 'element')}), at most {counted(self.max_trials, 'trial')} a cycle; the optimizer is "
            f"gone, and {counted(len(gone), 'state')} of it"
        )
        return result


def _declare_sums(program: Program, trial: Trial, weights: Mapping[str, TensorType]) -> None:
    """The states of a cycle's sum of losses, and of what trials start from."""
    if program.schedule.count is not None:
        program.add_state(LOSS, tensor("float32"), "accumulator")
    for name, state in trial.shadows.items():
        program.add_state(name, TensorType(tensor_type(state).dtype, tensor_type(state).shape), "carried")
    for name, type_ in weights.items():  # the loss may not depend on all of them
        if SHADOW + name not in program.state:
            program.add_state(SHADOW + name, type_, "carried", weight=name)


def _add_trial_loss(trial: Trial, share: Value | None) -> None:
    """``share``: the weight of a micro-batch, in the graph that the trial was made of."""
    fx = Effects(trial.graph)
    term = trial.loss
    if share is not None:
        term = weighted_term(trial.graph, term, trial.twin[share], scope=SCOPE)
    fx.append("AssignAdd", [trial.graph.state(TRIAL_LOSS, tensor("float32")), term], scope=SCOPE)
    fx.commit(trial.loss)


def _refuse(program: Program) -> None:
    """Refuses what a line search cannot work with, each with a remedy."""
    if program.schedule.choice is not None:
        raise PassError("gradient-freeze and dim-reduce exclude each other: the basis has a place for every weight")
    if any(average_of(name) in program.state for name in program.state):
        raise PassError("the program averages its weights, and the line search moves them after that: leave one out")
    if SKIPPED in program.state:
        raise PassError(
            "dim-reduce finds gradients that are not finite by itself (their projection shows them) and skips their "
            "cycle: leave overflow-check out, and use loss-scale{mode=static} where a dynamic one brought it along"
        )
    if TABLE in program.state:
        raise PassError("dim-reduce takes the optimizer out, and its learning rate with it: leave schedule out")
    clash = next((n for n in program.state if n.startswith(PREFIX)), None)
    if clash is not None:
        raise PassError(f"a state of the program is called '{clash}', as dim-reduce calls its own: rename it")


def _refuse_changes(
    program: Program, feeding: Sequence[Graph], updating: Sequence[Graph], trained: Collection[str]
) -> None:
    """State that the update side changes stays as it is from now on: none that the network reads, but weights."""
    read: dict[str, Node] = {}
    for graph in feeding:
        parts = network_parts(graph)
        read.update((v.name, n) for n in graph if n in parts for v in n.operands if isinstance(v, State))
    roles = {name: variable.role for name, variable in program.state.items()}
    for graph in updating:
        for effect in update_effects(Effects(graph), roles):
            for state in effect.writes:
                if state.name in read and state.name not in trained:
                    raise PassError(
                        f"the network reads state '{state.name}' (by {site(read[state.name])}), which the update side "
                        "changes (a dynamic loss scale?) and which would stay as it is: export nn.TrainOneStepCell, "
                        "and let loss-scale{mode=static} scale"
                    )


def _paths(graph: Graph) -> list[GradientPath]:
    """The gradients of a graph; PassError for those that cannot be taken out of it."""
    found = gradient_paths(graph)
    refuse_sparse(found, "which is no direction of the weight")
    limit = STAGES.index("clip")
    for path in found:
        here = path.at("clip", graph)
        for point in path.points:
            if point.stage and STAGES.index(point.stage) <= limit and point.graph not in (graph, None):
                raise PassError(
                    f"the gradient of weight '{path.weight}' passes the stage '{point.stage}' inside a function, "
                    "behind a condition of the file: export nn.TrainOneStepCell, and let loss-scale{mode=static} scale"
                )
        if not path.is_sum:
            raise PassError(f"weight '{path.weight}' is updated from several gradients: export one optimizer")
        for value in here.values:
            if tensor_type(value).shape != tensor_type(graph.state(path.weight)).shape:
                raise PassError(
                    f"the gradient {site(value)} of weight '{path.weight}' has another shape than the weight"
                )
    return found


def _weight_of(graph: Graph) -> Value:
    """The weight of the gradients of a graph's micro-batch (reduction=weighted)."""
    for state, term in added_terms(graph):
        if state == WEIGHT:
            return term
    raise PassError(f"graph '{graph.name}' does not add the weight of its micro-batch up")


def _term(graph: Graph, weighted: bool) -> Value:
    """The summand of a graph's micro-batch in a sum of losses."""
    loss = scalar_sum(graph, loss_of(graph), scope=SCOPE)
    return weighted_term(graph, loss, _weight_of(graph), scope=SCOPE) if weighted else loss


def _add_loss(graph: Graph, weighted: bool) -> None:
    fx = Effects(graph)
    fx.append("AssignAdd", [graph.state(LOSS, tensor("float32")), _term(graph, weighted)], scope=SCOPE)
    fx.commit()


def _begin(program: Program, graph: Graph, paths: Sequence[GradientPath], space: Subspace, weighted: bool) -> None:
    """Replaces the update side of a graph by the beginning of a search."""
    if not is_fed(graph):
        _mark_gradients(graph, paths)
    gradients = {path.weight: summed(path.at("clip", graph), scope=SCOPE) for path in paths}
    images = passed_on(graph, network_parts(graph), [value for _, value in named_results(graph)])
    own = _term(graph, weighted) if program.consumes(graph.name) else None
    fx = Effects(graph)
    fx.drop(update_effects(fx, {name: variable.role for name, variable in program.state.items()}))
    total, share = _sums(fx, program, own, weighted)
    added = begin_search(fx, space, gradients, graph.create("RealDiv", [total, share], scope=SCOPE), share)
    if program.schedule.count is not None:
        zero = graph.constant(scalar_tensor("float32", 0.0))
        fx.append("Assign", [graph.state(LOSS, tensor("float32")), zero], scope=SCOPE)
    # Asked for again: a result that waited for an update (the True of an optimizer) waits for none any more.
    named = [(name, image or value) for (name, value), image in zip(named_results(graph), images, strict=True)]
    fx.commit(with_results(graph, [*named, *added]))
    forget_unused(graph)


def _mark_gradients(graph: Graph, paths: Sequence[GradientPath]) -> None:
    """Gradients are found by what updates the weights, which this graph will not do any more: marks tell where they
    are, at nodes that only pass them on."""
    names: dict[tuple[Value, int], list[str]] = {}
    for path in paths:
        for part, value in enumerate(path.points[0].values):
            if not isinstance(value, Constant):
                names.setdefault((value, part), []).append(path.weight)
    passed: dict[Value, Node] = {}
    for (value, part), weights in names.items():
        type_ = tensor_type(value)
        shape = graph.constant(type_.shape)
        with graph.inserting_after(value):
            passed[value] = graph.create("Reshape", [value, shape], type_, scope=SCOPE, sources=[value])
        mark_gradient(passed[value], weights, part)
    for path in paths:
        point = path.points[0]
        for user, i in (*point.takers, *point.measures):
            new = passed.get(user.operand(i))
            if new is not None:
                user.set_operand(i, new)
        point.values = tuple(passed.get(value, value) for value in point.values)


def _sums(fx: Effects, program: Program, own: Value | None, weighted: bool) -> tuple[Node, Node]:
    """The sum of the losses of the cycle's micro-batches, and what it is divided by, as the gradients are. Each is one
    number of this rank, which data-parallel can sum over ranks."""
    graph = fx.graph
    count = program.schedule.count
    one = graph.constant(scalar_tensor("float32", 1.0))
    if weighted:
        share = cycle_total(fx, WEIGHT, None if own is None else _weight_of(graph), scope=SCOPE)
    elif count is not None and any(COUNTED in node.marks for node in graph):
        share = cycle_total(fx, count, None if own is None else one, scope=SCOPE)
    else:
        share = graph.create("TensorMove", [one], scope=SCOPE)
    if count is None:
        assert own is not None
        losses = graph.create("TensorMove", [own], scope=SCOPE)
    else:
        losses = cycle_total(fx, LOSS, own, scope=SCOPE)
    return declare_tally(losses, "losses"), declare_tally(share, "share")
