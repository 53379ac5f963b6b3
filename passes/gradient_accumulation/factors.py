"""Factors of gradients that differ from one micro-batch to the next (one divided by what the batch counts) are applied
before anything is added up: the accumulator takes the product.

The factor stands between the backward part and the optimizer: inside the optimizer's cell it would be a part of the
update. For example::

    %g = …                        // backward
    %n = ReduceSum(%counted)
    %h = RealDiv(%g, %n)          // becomes backward: the gradient that is added up is %h
    %new = SGD(%w, %h, …)
"""

from __future__ import annotations

from collections.abc import Collection
from itertools import count

from ...ir.analysis.training.anatomy import TrainingAnatomy
from ...ir.analysis.training.cells import Cells, cell_of, within
from ...ir.analysis.training.gradient_path import PASSING
from ...ir.analysis.training.network import BACKWARD
from ...ir.core.graph import Input, Node, Use, Value
from ...ir.core.names import BACKWARD_ID
from ...ir.core.predicates import is_effect
from ...ir.core.primitives import Family, named
from ...ir.core.types import is_monad
from ...ir.core.walk import carried_operands, walk
from ..step.crossings import update_uses
from ..step.split import NETWORK, step_invariant
from .graphs import SCOPE

_MULTIPLYING, _DIVIDING = named(Family.PRODUCT), named(Family.QUOTIENT)
_PASSING = PASSING | named(Family.RESHAPE)


def apply_factors(found: TrainingAnatomy) -> bool:
    """Makes such factors, and what they are computed from, part of the backward part; says whether there were any."""
    gradients = {gradient: info for info in found.weights for gradient in info.gradient}
    chains = {gradient: chain for gradient in gradients if (chain := _chain(gradient, found))}
    if not chains:
        return False
    invariant, cells = step_invariant(found), Cells(found.parts)
    moved = {v for e in found.effects.writes() if found.parts.get(e.node) not in NETWORK for v in e.writes}
    numbers = count()
    for gradient, chain in chains.items():
        optimizers = {cell for update in gradients[gradient].updates if (cell := cells.optimizer(update)) is not None}
        handed = [use for use in chain if not any(within(cell_of(use[0]), cell) for cell in optimizers)]
        last = max((k for k, use in enumerate(handed) if _of_batch(use, found, invariant, moved)), default=-1)
        for node, _ in handed[: last + 1]:
            node.primal = {**node.primal, BACKWARD_ID: f"{SCOPE}.factor{next(numbers)}"}
    return next(numbers) > 0


def _chain(gradient: Node, found: TrainingAnatomy) -> list[Use]:
    """The nodes that one after the other multiply a gradient, or pass it on, each taken by the next one alone."""
    chain: list[Use] = []
    value = gradient
    while len(uses := update_uses(value, found.parts)) == 1:
        user, i = uses[0]
        name = user.op.name
        linear = name in _MULTIPLYING or (i == 0 and (name in _DIVIDING or name in _PASSING))
        if not linear or user.graph is not found.graph:
            break
        chain.append((user, i))
        value = user
    return chain


def _of_batch(use: Use, found: TrainingAnatomy, invariant: Collection[Node], moved: set[Value]) -> bool:
    """Whether a node multiplies by something of the batch that no gradient is part of. What follows from a state that
    the cell moves (the rate of a plateau rule) is no number of one micro-batch."""
    node, i = use
    parts = found.parts

    def computed(value: Value) -> list[Value]:
        return carried_operands(value) if isinstance(value, Node) and parts.get(value) not in NETWORK else []

    others = [v for k, v in enumerate(node.operands) if k != i and not is_monad(v.type)]
    behind = list(walk(others, computed))
    nodes = [v for v in behind if isinstance(v, Node)]
    if any(parts.get(n) == BACKWARD or is_effect(n) for n in nodes) or not moved.isdisjoint(behind):
        return False
    return any(isinstance(v, Input) for v in behind) or any(
        parts.get(n) in NETWORK and n not in invariant for n in nodes
    )
