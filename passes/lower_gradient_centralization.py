"""Gradient centralization: gradients without their mean, for the weights that are tagged."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from ..ir.analysis.training.gradient_path import gradient_paths, updating_graphs
from ..ir.analysis.training.stages import CENTRALIZE, GradientPath
from ..ir.builders.cast import cast
from ..ir.builders.reduce import reduce_mean
from ..ir.core.errors import PassError
from ..ir.core.graph import Graph, Value, tensor_type
from ..ir.core.program import Program, StateVariable
from ..ir.core.report import PassResult
from ..ir.core.wording import counted
from ..ir.rewrite.effects.editing import Effects
from ..ir.rewrite.stages import put
from .framework.base import Pass
from .step.names import TAG

SCOPE = "gradient-centralization"


class LowerGradientCentralization(Pass):
    """Takes the mean over all axes but the first away from the gradient of every tagged weight.

    Its place is that of MindSpore's optimizers: after clipping and the weight decay that an optimizer adds to its
    gradients, before the update. The pass brings ``tag-gradient-centralization`` along where a program has no tags.

    Changes training.

    Source: Yong et al., Gradient Centralization, 2020; ``nn.Optimizer.gradients_centralization``.
    """

    name = "lower-gradient-centralization"
    at_stage = CENTRALIZE
    preserves = False

    def needs(self, program: Program) -> Sequence[str]:
        tagged = any(TAG in variable.info for variable in program.state.values())
        return [] if tagged else ["tag-gradient-centralization"]

    def run(self, program: Program) -> PassResult:
        result = self.result()
        tags = {name: _axes(variable) for name, variable in program.state.items() if TAG in variable.info}
        missed: dict[str, str] = dict.fromkeys(tags, "nothing updates it from a gradient")
        done: dict[str, None] = {}
        met: set[str] = set()
        for graph in updating_graphs(program):
            chosen: list[GradientPath] = []
            for path in gradient_paths(graph):
                if path.weight not in tags:
                    continue
                reason = _reason_against(path)
                if path.is_sum:
                    met.add(path.weight)
                if reason is None:
                    chosen.append(path)
                else:
                    missed[path.weight] = reason
            effects = [Effects(owner) for owner in dict.fromkeys(p.at(CENTRALIZE).graph for p in chosen) if owner]
            for path in chosen:
                put(path, CENTRALIZE, partial(_centralized, tags[path.weight]))
                done[path.weight] = None
            for fx in effects:
                fx.commit()
        for name, reason in missed.items():
            if name not in done:
                result.miss(name, reason)
        result.matched, result.changed = len(met), len(done)
        result.summary = f"{counted(len(done), 'gradient')} centralized"
        return result


def _axes(variable: StateVariable) -> tuple[int, ...]:
    axes = variable.info[TAG]
    rank = len(variable.shape)
    valid = isinstance(axes, (list, tuple)) and all(type(a) is int and 0 <= a < rank for a in axes)
    if not valid or not axes:
        raise PassError(
            f"the tag '{TAG}' of weight '{variable.name}' is {axes!r}: it must list axes of a tensor that has {rank}"
        )
    return tuple(axes)


def _reason_against(path: GradientPath) -> str | None:
    if path.has(CENTRALIZE):
        return "its gradient is centralized already"
    if path.sparse:
        return "its gradient is sparse: the mean of rows is not that of the gradient"
    if not path.is_sum:
        return "updated from several gradients one after the other, or joined by the cell itself"
    return None


def _centralized(axes: Sequence[int], graph: Graph, gradient: Value) -> Value:
    dtype = tensor_type(gradient).dtype
    x = cast(graph, gradient, dtype.widened, scope=SCOPE)
    mean = reduce_mean(graph, x, axes, keep=True, scope=SCOPE)
    return cast(graph, graph.create("Sub", [x, mean], scope=SCOPE, sources=[gradient]), dtype, scope=SCOPE)
