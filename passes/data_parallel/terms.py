"""The gradients of a graph that are summed over ranks."""

from __future__ import annotations

from collections.abc import Container, Sequence

from ...ir.analysis.training.anatomy import TrainingAnatomy, anatomy
from ...ir.analysis.training.gradient_path import gradient_paths, is_fed
from ...ir.analysis.training.network import BACKWARD
from ...ir.analysis.training.stages import GradientPath
from ...ir.builders.cast import cast
from ...ir.core.errors import PassError
from ...ir.core.graph import Graph, Value, rewire, tensor_type
from ...ir.core.names import LOCAL
from ...ir.core.program import Program
from ...ir.core.sites import site
from ...ir.rewrite.ranks.collectives import SUMMED
from ..step.clip_each_rank import clipped_by_rank
from ..step.crossings import Start, leaving_backward, sums, taken, update_uses
from ..step.exported_reductions import SCOPE
from ..step.sparse import refuse_sparse_weights


def reduced_terms(program: Program, graph: Graph, *, mean: bool) -> tuple[list[Start], list[str]]:
    """The values of a graph to be summed over ranks, and the weights whose gradients are constants. Of what leaves the
    backward part all uses by the update side count: who asks whether it is finite too, so that all ranks hear the
    same."""
    if is_fed(graph):
        starts = sums(graph)
        fixed = [name for start in starts if start.is_constant for name in start.weights]
        terms = [start for start in starts if not start.is_constant]
    else:
        found = anatomy(graph)
        refuse_sparse_weights(found.weights, "and a sparse gradient has rows of its own on every rank")
        fixed = [info.name for info in found.weights if not info.gradient and info.fixed]
        terms = leaving_backward(
            found, ", which not every rank may call: only gradients of the main graph can be reduced"
        )
        _check_crossings(graph, found, {start.value for start in terms})
    if fixed and not mean:
        raise PassError(
            f"the gradient of weight '{fixed[0]}' is a constant of graph '{graph.name}', which "
            "data-parallel cannot sum over ranks: use mean=true"
        )
    for term in terms:
        if not term.divided and (clipped := clipped_by_rank(term.value)) is not None:
            term.value, term.uses = clipped, taken(clipped)  # what each rank makes of its own is summed
        dtype = tensor_type(term.value).dtype
        if dtype not in SUMMED:
            raise PassError(
                f"the gradient of weight '{term.weights[0]}' ({site(term.value)}) is {dtype}, which AllReduce does not "
                "add up: train this weight in float32"
            )
    state = program.state
    shared = [t for t in terms if not all(state[w].info.get(LOCAL) for w in t.weights)]
    return _merged(graph, shared), fixed


def _check_crossings(graph: Graph, found: TrainingAnatomy, gradients: Container[Value]) -> None:
    """Refuses other values of the backward part that the update side takes: they are each rank's own."""
    for node in graph:
        if found.part(node) != BACKWARD or node in gradients:
            continue
        for user, _ in update_uses(node, found.parts):
            raise PassError(
                f"the update side (by {site(user)}) takes {site(node)}, which is not the gradient of a weight and "
                "differs by rank"
            )


def _merged(graph: Graph, terms: Sequence[Start]) -> list[Start]:
    """Weights whose gradient is a sum of several get one term: their sum."""
    of_weight: dict[str, list[Start]] = {}
    for term in terms:
        for name in term.weights:
            of_weight.setdefault(name, []).append(term)
    several = {name: found for name, found in of_weight.items() if len(found) > 1}
    paths = {path.weight: path for path in gradient_paths(graph)} if several else {}
    gone: set[int] = set()
    for name, summands in several.items():
        if any(t.weights != (name,) for t in summands) or not _meets_in_sum(paths.get(name)):
            continue
        first, *others = summands
        for other in others:
            operands = [widened(graph, t.value) for t in (first, other)]
            first.value = graph.create("Add", operands, scope=SCOPE, sources=operands)
            rewire(other.uses, graph.create("ZerosLike", [other.value], scope=SCOPE))
            gone.add(id(other))
    return [term for term in terms if id(term) not in gone]


def _meets_in_sum(path: GradientPath | None) -> bool:
    return path is not None and path.is_sum and not path.points[0].measures


def widened(graph: Graph, value: Value) -> Value:
    """In float32 at least, in which sums over ranks are taken."""
    return cast(graph, value, tensor_type(value).dtype.widened, scope=SCOPE)
