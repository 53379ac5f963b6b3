"""Seeds: where the derivative of the loss starts, and those of random primitives."""

from __future__ import annotations

from collections.abc import Iterator

from ...ir.analysis.derivative.derivative import CARRIER, COEFFICIENT, TAIL, Derivative
from ...ir.analysis.derivative.linearity import find_seeds
from ...ir.analysis.functions.closures import Closures
from ...ir.analysis.training.network import network_parts
from ...ir.core.errors import AnatomyError
from ...ir.core.predicates import is_random
from ...ir.core.types import is_monad
from ...ir.core.wording import counted
from ...ir.rewrite.seeds import seeds_of
from ...passes.step.crossings import crossings
from .analysed import Analysed, first_line

RANKS = {COEFFICIENT: "is a coefficient", TAIL: "starts the derivative", CARRIER: "carries the derivative"}


def seed_lines(view: Analysed) -> Iterator[str]:
    """Of the loss: what a loss scale multiplies, or why none can. ``view.full`` adds how near each backward value is to
    the derivative."""
    parts = network_parts(view.graph)
    wanted = crossings(view.graph)
    if view.chosen is None:
        yield f"{counted(len({user.operand(i) for user, i in wanted}), 'gradient')}"
    try:
        for seed in find_seeds(view.graph, parts, wanted):
            if view.keeps([seed.value, *(user for user, _ in seed.uses)]):
                yield f"seed {view.name(seed.value)} in {view.uses(seed.uses)}"
    except AnatomyError as error:
        if view.chosen is None:
            yield f"no seed: {first_line(error)}"
    for node in view.nodes():
        if is_random(node):
            seeds = seeds_of(node)
            yield f"random {view.node(node)} seeds {'unknown' if seeds is None else ', '.join(map(str, seeds))}"
    if view.full:
        derivative = Derivative(view.graph, parts, Closures(view.graph))
        for node in view.nodes():
            if not is_monad(node.type) and (rank := RANKS.get(derivative.rank(node))):
                yield f"{view.node(node)} {rank}"
