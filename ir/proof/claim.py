"""The claim of a proof, in words."""

from __future__ import annotations

from contextlib import suppress

from ..analysis.training.anatomy import anatomy
from ..analysis.training.dependence import dependences
from ..core.errors import AnatomyError
from ..core.graph import Graph
from ..core.program import Program
from ..core.sites import site
from ..core.wording import counted
from .promises import promises_of
from .window import steps_of_one_graph


def claim_of(program: Program) -> str:
    """What is to be proved of a program."""
    n, promises = program.micro_batches(), promises_of(program)
    if n <= 1 and program.schedule.flush is None:
        if promises.over_ranks:
            return (
                "each step updates every state as the original's step does from the "
                f"{promises.over_ranks} of the gradients of all ranks, however many there are, and returns what the "
                "original's does"
            )
        return "each step leaves in every state, and returns, what the original's step does"
    how = {"mean": "mean", "sum": "sum", "weighted": "weighted mean"}[promises.reduction]
    how += f" (beside the weights stands {promises.beside[0]:g})" if promises.beside[0] else ""
    alone = steps_of_one_graph(program)
    micro_batches = counted(n, "micro-batch") if alone else f"any number of micro-batches (here {n})"
    over = ", over all ranks, however many there are," if promises.over_ranks else ""
    return (
        "a window of " + micro_batches + " updates each state as the original's update side does "
        f"from the {how} of its own gradients{over or ','} and each micro-batch moves the network's own state as "
        "the original does"
    )


def of_the_last(graph: Graph) -> str:
    """What updates take of the last micro-batch besides gradients; ``graph``: the original's."""
    with suppress(AnatomyError):
        taken = [
            f"{site(value)} for {', '.join(list(dependence.states)[:3])}{', …' if len(dependence.states) > 3 else ''}"
            for value, dependence in dependences(anatomy(graph)).items()
        ]
        if taken:
            return f"; besides gradients it takes the last micro-batch's value alone: {'; '.join(taken)}"
    return ""
