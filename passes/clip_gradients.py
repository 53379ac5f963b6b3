"""Gradient clipping: the averaged, unscaled gradients are made no longer than a limit."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from ..ir.analysis.effects.effect_list import written_states
from ..ir.analysis.training.gradient_path import updating_graphs
from ..ir.analysis.training.stages import GradientPath, in_order
from ..ir.builders.reduce import square_sum
from ..ir.core.attributes import scalar_tensor
from ..ir.core.errors import PassError, VerifyError
from ..ir.core.graph import Graph, Value, tensor_type
from ..ir.core.names import GRADIENT_NORM
from ..ir.core.program import Program
from ..ir.core.report import PassResult
from ..ir.core.sites import site
from ..ir.core.wording import counted
from ..ir.rewrite.effects.editing import Effects
from ..ir.rewrite.stages import merge, put, summed
from .framework.base import Pass
from .framework.options import option
from .step.clip_each_rank import clip_each_rank
from .step.clipping import SCOPE, between, factor, norm, times
from .step.results import with_results
from .step.sparse import refuse_sparse
from .step.turns import find_turns
from .step.unscaling import HELP, TOLD, check_unscale, remark, unscaled_paths
from .step.update_side import update_effects


class ClipGradients(Pass):
    """Limits the gradients of a window: their norm together, the norm of each, or every element.

    ``by=global-norm`` multiplies all gradients by limit / max(norm, limit), by the norm of all of them as one vector.
    ``by=tensor-norm`` does so for each gradient by its own norm. ``by=value`` puts every element between -limit and
    limit. A gradient within the limit keeps every bit.

    Where optimizers take turns (a GAN), and one takes gradients at weights that another has updated already, the
    gradients of each turn have a norm of their own.

    The pass clips once a window, after averaging and unscaling, before weight decay. Gradients that are not finite have
    no norm: ``overflow-check`` skips their update. Where the file does not tell a factor of the optimizer from
    unscaling, the report says what was assumed; ``unscale`` says it (``unscale=8``, or none).

    With ``each_rank`` a rank clips the mean of its own gradients before ``data-parallel`` sums them, as in MindSpore's
    tutorials.

    Outputs, with ``report_norm``: ``gradient_norm``, the norm of all gradients together before clipping.

    Changes training wherever it clips.

    Source: Pascanu et al., On the difficulty of training recurrent neural networks, 2013;
    ``mindspore.ops.clip_by_global_norm``, which rounds gradients within the limit too.
    """

    name = "clip-gradients"
    at_stage = "clip"
    preserves = False
    by: str = option(
        "global-norm",
        help="limit the norm of all gradients, of each, or every element",
        choices=("global-norm", "tensor-norm", "value"),
    )
    limit: float = option(1.0, help="the largest norm or element", minimum=2.0**-126, maximum=2.0**127)
    report_norm: bool = option(False, help="return the global norm before clipping as 'gradient_norm'")
    each_rank: bool = option(False, help="clip each rank's own gradients, before data-parallel sums them")
    unscale: str = option(TOLD, help=HELP)

    def __post_init__(self) -> None:
        super().__post_init__()
        check_unscale(self.unscale, self.name)

    def run(self, program: Program) -> PassResult:
        result = self.result()
        updating = [(graph, unscaled_paths(graph, self.unscale)) for graph in updating_graphs(program)]
        for graph, paths in updating:
            self._check(graph, paths)
        names: dict[str, None] = {}
        for graph, paths in updating:
            for path in paths:
                if path.weight not in names:
                    names[path.weight] = None
                    self._remark(result, path)
                    remark(result, [path])
            try:
                if self.each_rank:
                    self._clip_own(graph)
                else:
                    self._clip(graph, paths)
            except VerifyError as error:
                raise PassError(
                    "some gradients are computed after others have updated their weights, so no norm of all of them "
                    f"exists before the first update ({error}): use by=tensor-norm or by=value, without report_norm"
                ) from error
        updated = set().union(*(written_states(graph) for graph, _ in updating))
        for name, variable in program.state.items():
            if variable.role == "weight" and variable.trainable and name not in names:
                kept = "its optimizer takes no gradient of this step (one that the cell has kept)"
                none = "the loss does not depend on it"
                result.miss(name, f"{kept if name in updated else none}: no gradient to clip")
        result.matched = result.changed = len(names)
        result.statistics = {"gradients clipped": len(names), "graphs": len(updating)}
        what = {"global-norm": "their norm", "tensor-norm": "the norm of each", "value": "each element"}[self.by]
        where = " on each rank" if self.each_rank else ""
        result.summary = f"{counted(len(names), 'gradient')} clipped{where}: {what} is at most {self.limit:g}"
        return result

    def _check(self, graph: Graph, paths: Sequence[GradientPath]) -> None:
        refuse_sparse(paths, "which has a norm that no sum of its elements gives, as rows may come twice")
        for path in paths:
            if not path.is_sum:
                raise PassError(
                    f"graph '{graph.name}' updates weight '{path.weight}' from several gradients "
                    f"({', '.join(map(site, path.points[-1].values))}) one after the other, or joined by the "
                    "cell itself: which of them to clip cannot be told. Take one gradient of the sum of the losses, or "
                    "clip in the cell what goes into the optimizer (ops.clip_by_global_norm)"
                )
        if not paths or (self.by != "global-norm" and not self.report_norm):
            return
        turns = _turns(graph, paths)
        if len(turns) > 1 and self.report_norm:
            raise PassError(
                f"graph '{graph.name}' updates '{turns[0][0].weight}' and '{turns[1][0].weight}' in turns, and no norm "
                "of all gradients exists before the first update: leave out report_norm"
            )
        for path, first in ((path, turn[0]) for turn in turns for path in turn):
            where, other = _owner(path), _owner(first)
            if where is not other:
                raise PassError(
                    f"graph '{graph.name}' makes the gradients of '{first.weight}' and '{path.weight}' ready in "
                    f"different functions ('{other.name}', '{where.name}'), so they have no common norm: use "
                    "by=tensor-norm or by=value, without report_norm"
                )
            if self.report_norm and where is not graph:
                raise PassError(
                    f"graph '{graph.name}' makes the gradient of '{path.weight}' ready inside function "
                    f"'{where.name}', from where its norm cannot be returned: leave out report_norm"
                )

    @staticmethod
    def _remark(result: PassResult, path: GradientPath) -> None:
        before = path.points[: path.points.index(path.at("clip")) + 1]
        if path.has("clip"):
            result.miss(path.weight, "clipped already: clipped once more, after that")
        if not in_order(before):
            result.miss(path.weight, "unscaled only after weight decay: what is clipped has the decay in it")

    def _clip_own(self, graph: Graph) -> None:
        length = clip_each_rank(graph, self.by, self.limit, self.report_norm)
        if self.report_norm:
            assert length is not None
            Effects(graph).commit(with_results(graph, [(GRADIENT_NORM, length)]))

    def _clip(self, graph: Graph, paths: Sequence[GradientPath]) -> None:
        if not paths:
            return
        effects = [Effects(owner) for owner in dict.fromkeys(_owner(path) for path in paths)]
        factors: list[Value | None] = [None] * len(paths)
        squares: list[Value] = []
        if self.by == "value":
            totals: dict[tuple[Value, ...], Value] = {}
            for path in paths:
                merge(path, "clip", totals, scope=SCOPE)
        if self.by != "value" or self.report_norm:
            squares = _squares(paths)
        results: list[tuple[str, Value]] = []
        if self.by == "global-norm" or self.report_norm:
            for turn in _turns(graph, paths):
                at = [k for k, path in enumerate(paths) if path in turn]
                length = norm(_owner(turn[0]), [squares[k] for k in at])
                if self.report_norm:
                    results.append((GRADIENT_NORM, length))
                if self.by == "global-norm":
                    common = factor(_owner(turn[0]), length, self.limit)
                    factors = [common if k in at else f for k, f in enumerate(factors)]
        if self.by == "tensor-norm":
            owner_of = dict(zip(squares, map(_owner, paths), strict=True))
            own = {s: factor(owner, norm(owner, [s]), self.limit) for s, owner in owner_of.items()}
            factors = [own[s] for s in squares]
        made: dict[Value, Value] = {}
        for path, by in zip(paths, factors, strict=True):
            put(path, "clip", partial(self._limited, made, by))
        for fx in effects:
            fx.commit(with_results(graph, results) if results else None)

    def _limited(self, made: dict[Value, Value], by: Value | None, graph: Graph, value: Value) -> Value:
        """The replacement of ``value``: times ``by``, or its elements limited; ``made`` are those that exist."""
        if value not in made and by is not None:
            made[value] = times(graph, value, by)
        elif value not in made:
            wide = tensor_type(value).dtype.widened
            high, low = (graph.constant(scalar_tensor(wide, bound)) for bound in (self.limit, -self.limit))
            made[value] = between(graph, value, high, low)
        return made[value]


def _turns(graph: Graph, paths: Sequence[GradientPath]) -> list[list[GradientPath]]:
    """The gradients that are clipped together: all, but where the step takes some at weights that it has updated by
    others (a GAN), those of each turn."""
    fx, weights = Effects(graph), {path.weight for path in paths}
    updates = [e for e in update_effects(fx, {}) if any(state.name in weights for state in e.writes)]
    values = dict.fromkeys(v for path in paths for v in path.points[0].values)
    turns = [set(gradients) for _, gradients in find_turns(fx, updates, values)]
    last = [max(k for k, turn in enumerate(turns) if not turn.isdisjoint(path.points[0].values)) for path in paths]
    return [[path for path, k in zip(paths, last, strict=True) if k == n] for n in sorted({*last})]


def _squares(paths: Sequence[GradientPath]) -> list[Value]:
    """The sum of squares of each gradient, float32 scalars; gradients that are the same share one."""
    made: dict[tuple[Value, ...], Value] = {}
    for path in paths:
        point = path.at("clip")
        if point.values not in made:
            made[point.values] = square_sum(_owner(path), summed(point, scope=SCOPE), scope=SCOPE, sources=point.values)
    return [made[path.at("clip").values] for path in paths]


def _owner(path: GradientPath) -> Graph:
    """The graph in which the gradient is clipped."""
    owner = path.at("clip").graph
    assert owner is not None
    return owner
