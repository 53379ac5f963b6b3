"""The reductions over ranks that a file exported in DATA_PARALLEL mode holds: recognised, and taken out."""

from __future__ import annotations

from dataclasses import dataclass

from ...ir.analysis.training.gradient_path import gradient_paths, updating_graphs
from ...ir.analysis.training.stages import RANK_CLIP, GradientPath
from ...ir.builders.cast import cast
from ...ir.core.attributes import scalar_of, scalar_tensor
from ...ir.core.errors import PassError
from ...ir.core.graph import Constant, Graph, Node, Value, tensor_type
from ...ir.core.names import STAGE
from ...ir.core.predicates import is_float_tensor
from ...ir.core.program import Program
from ...ir.rewrite.effects.editing import Effects
from ...ir.rewrite.ranks.collectives import all_reduce, collectives, group_of, is_world
from .names import TALLY

SCOPE = "data-parallel"
_LINEAR = ("", "accumulate", RANK_CLIP, "all-reduce", "unscale", "centralize")
"""Stages that come to the same before and after a sum over ranks, or that stay in front of it."""
_MOST_RANKS = 2**16


@dataclass(slots=True)
class FileReductions:
    """Reductions that the file held. ``mean``: whether they divided; ``left_alone``: weights that had none;
    ``kept``: factors behind them that may be more than 1/ranks."""

    number: int = 0
    mean: bool = True
    left_alone: tuple[str, ...] = ()
    kept: int = 0


def reduces_gradients(program: Program) -> bool:
    """Whether the file sums gradients over ranks by itself."""
    holding = [g for g in updating_graphs(program) if any(_is_own(node) for node in collectives(g))]
    return any(_is_own(v) for g in holding for path in gradient_paths(g) for p in path.points for v in p.values)


def take_out_reductions(graph: Graph) -> FileReductions:
    """Removes the exporter's reductions of gradients: each an AllReduce, and a multiplication by 1/ranks behind it.

    MindSpore folds that factor with others into one constant, as with the optimizer's own unscaling: a factor that may
    be more than 1/ranks stays and is multiplied by the number of ranks, to be put behind a mean.
    """
    if not any(map(_is_own, collectives(graph))):
        return FileReductions()
    found: dict[Node, GradientPath] = {}
    alone: list[str] = []
    for path in gradient_paths(graph):
        own = [v for p in path.points for v in p.values if isinstance(v, Node) and _is_own(v)]
        found.update(dict.fromkeys(own, path))
        if not own:
            alone.append(path.weight)
    if not found:
        return FileReductions()
    factors = {node: _factor_behind(node) for node in found}
    if len({factor is None for factor in factors.values()}) > 1:
        node = next(n for n, factor in factors.items() if factor is None)
        raise PassError(
            f"graph '{graph.name}' divides some gradients behind their sum over ranks, and that of weight "
            f"'{found[node].weight}' not (%{node.name}): whether it takes sums or means cannot be told"
        )
    mean = None not in factors.values()
    for node, path in found.items():
        _check_movable(graph, path, node, mean)
    updating = {_cell(e.node) for body in graph.all_graphs() for e in Effects(body).writes()}
    kept = 0
    ranks: dict[Graph | None, Node] = {}
    for node, factor in factors.items():
        node.replace_uses(node.operand(0))
        if factor is None:
            continue
        if is_inverse(factor) and _cell(factor) == _cell(node) and _cell(node) not in updating:
            factor.replace_uses(factor.operand(1 if isinstance(factor.operand(0), Constant) else 0))
        else:
            _times_ranks(factor, group_of(node), ranks)
            kept += 1
    for body in graph.all_graphs():
        Effects(body).commit()
    return FileReductions(len(found), mean, tuple(alone), kept)


def _factor_behind(node: Node) -> Node | None:
    """The multiplication by a constant scalar of what a reduction gives."""
    users = [user for user in node.uses if user.op.name != "UpdateState"]
    return users[0] if len(users) == 1 and users[0].op.name == "Mul" and _number(users[0]) is not None else None


def is_inverse(factor: Node) -> bool:
    """Whether a multiplication is one by 1/ranks, for some number of ranks."""
    number = _number(factor)
    if number is None or not 0 < number <= 1:
        return False
    ranks = round(1 / number)
    return ranks <= _MOST_RANKS and abs(number * ranks - 1) < 2**-10


def _times_ranks(factor: Node, group: str, ranks: dict[Graph | None, Node]) -> None:
    """Multiplies the constant of a multiplication by the number of ranks; ``ranks``: those asked for in each graph."""
    graph = factor.home
    if graph not in ranks:
        one = graph.constant(scalar_tensor("float32", 1.0))
        ranks[graph] = all_reduce(graph, one, group, scope=SCOPE)
    at = 0 if isinstance(factor.operand(0), Constant) else 1
    number = cast(graph, ranks[graph], tensor_type(factor.operand(at)).dtype, scope=SCOPE)
    factor.set_operand(at, graph.create("Mul", [factor.operand(at), number], scope=SCOPE))


def _is_own(value: Value) -> bool:
    return isinstance(value, Node) and value.op.name == "AllReduce" and not {STAGE, TALLY} & value.marks.keys()


def _check_movable(graph: Graph, path: GradientPath, own: Node, mean: bool) -> None:
    if not is_world(group_of(own)) or own.attributes.get("op", "sum") != "sum":
        raise PassError(
            f"graph '{graph.name}' reduces the gradient of weight '{path.weight}' in group '{group_of(own)}' by "
            f"'{own.attributes.get('op', 'sum')}' (%{own.name}): only sums over all ranks can be replaced"
        )
    for point in path.points:
        if own in point.values:
            return
        # The decay of a weight is the same on all ranks, and so its own mean.
        if not (point.stage in _LINEAR or (mean and point.stage == "weight-decay")):
            raise PassError(
                f"graph '{graph.name}' sums the gradient of weight '{path.weight}' over ranks after its stage "
                f"'{point.stage}': reduced before it, as data-parallel does, it would be another. Leave data-parallel "
                "out, or export the training cell without it"
            )


def _cell(node: Node) -> str:
    return node.scope.rpartition("/")[0]


def _number(node: Node) -> float | None:
    """The scalar constant that a multiplication takes."""
    found = (scalar_of(value.literal) for value in node.operands[:2] if is_float_tensor(value))
    return next((number for number in found if number is not None), None)
