"""A training cell that scales its loss by itself."""

from __future__ import annotations

from collections.abc import Iterator

from ...ir.analysis.training.anatomy import TrainingAnatomy, anatomy
from ...ir.analysis.training.gradient_path import LEAST_SCALE, gradient_paths
from ...ir.analysis.training.network import BACKWARD, FORWARD
from ...ir.core.attributes import scalar_of
from ...ir.core.errors import Error
from ...ir.core.graph import Node, Value
from ...ir.core.names import LOSS_SCALE
from ...ir.core.primitives import Family, named
from ...ir.core.program import Program
from .finding import Finding

_MULTIPLIES = named(Family.PRODUCT)
_PASSING = ("Depend", "Cast")


def own_loss_scale(program: Program) -> Iterator[Finding]:
    """Of graphs that were not compiled yet: gradients that leave the backward part multiplied, or are divided by the
    training cell or its optimizer before their update."""
    if program.pipeline:
        return
    for name, graph in program.graphs.items():
        try:
            found = anatomy(graph)
            paths = gradient_paths(graph, found)
        except Error:
            continue  # who compiles it is told why
        scale = _seed_factor(found)
        divided = bool(paths) and all(any(p.stage == "unscale" for p in path.points) for path in paths)
        if scale is None and not divided and LOSS_SCALE not in graph.outputs:
            continue
        by = f" by {scale:g}" if scale is not None else ""
        undone = ", and divides gradients again" if divided else ", and nothing divides the gradients again"
        yield Finding(
            "loss scale",
            f"graph '{name}' scales its loss{by} by itself (sens of TrainOneStepCell, or a loss-scale cell){undone}",
            "Export without it, and compile with boost-compile --loss-scale dynamic, which tells overflow and unscales"
            if divided or LOSS_SCALE in graph.outputs
            else "Export without it; it multiplies every step but those of optimizers that normalise gradients",
        )


def _seed_factor(found: TrainingAnatomy) -> float | None:
    """The number that multiplies the derivative of the loss where it enters the backward part, if the forward part does
    not multiply by it."""
    forward = {abs(n) for node in found.graph if found.part(node) == FORWARD for n in map(_number, node.operands) if n}
    factors: set[float] = set()
    for seed in found.seeds:
        users = _users(found, seed)
        if len(users) != 1 or users[0].op.name not in _MULTIPLIES:
            return None
        factors.update(n for n in map(_number, users[0].operands) if n is not None)
    (factor,) = factors if len(factors) == 1 else (None,)
    if factor is None or factor < LEAST_SCALE or factor in forward or 1 / factor in forward:
        return None
    return factor


def _users(found: TrainingAnatomy, node: Node) -> list[Node]:
    """Who computes with it in the backward part, behind what only passes it on."""
    users: list[Node] = []
    for user, i in node.use_sites():
        if found.part(user) != BACKWARD or (user.op.name == "Depend" and i == 1):
            continue
        users += _users(found, user) if user.op.name in _PASSING else [user]
    return users


def _number(value: Value) -> float | None:
    return scalar_of(value.literal)
