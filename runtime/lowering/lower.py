"""All lowerings in their order, run on one copy of a graph.

The chain of effects comes first, and what this process is in its job, then random numbers, then what MindSpore's CPU
engine needs or does better, and last what each target needs of any graph.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass

from ...ir.core.errors import VerifyError
from ...ir.core.graph import Graph
from ...ir.rewrite.cpu import broadcasting, host_clearing, transposing
from . import (
    adasum,
    alone,
    anchor,
    chain,
    constant_results,
    cropping,
    draws,
    half_state,
    measures,
    own_constants,
    ownership,
    predication,
    reciprocal,
    seeds,
    weighting,
    world,
)
from .context import Context, Lowering, name_of
from .idle import idle_graph

FOR_ANY_GRAPH: tuple[Lowering, ...] = (cropping, own_constants, anchor, constant_results)
"""Those that an evaluation network needs too."""
LOWERINGS: tuple[Lowering, ...] = (
    chain, ownership, adasum, alone, world,
    draws, seeds, host_clearing,
    reciprocal, weighting, predication, half_state, broadcasting, transposing, measures,
    *FOR_ANY_GRAPH,
)  # fmt: skip
VERIFY = "BOOST_COMPILE_VERIFY_LOWERED"
"""The environment variable that has graphs verified after each lowering; tests set it."""


@dataclass(frozen=True, slots=True)
class Lowered:
    """``graph`` as MindSpore gets it, which is the source graph where nothing applied; ``steps`` are the lowerings that
    applied, each with what it did."""

    graph: Graph
    steps: tuple[tuple[str, str], ...]


def lower(graph: Graph, context: Context, lowerings: Sequence[Lowering] = LOWERINGS) -> Lowered:
    """A graph of ``context.program`` for where it runs. ``graph`` itself is not changed."""
    source, steps = graph, []
    for lowering in lowerings:
        if not lowering.applies(graph, context):
            continue
        if graph is source:
            graph = source.clone()[0]
        done = lowering.run(graph, context)
        if done:
            steps.append((name_of(lowering), done))
        # Behind these kernels write into copies, which the verifier takes for a mistake in any other graph.
        if VERIFY in os.environ and all(name != name_of(half_state) for name, _ in steps):
            _verify(graph, lowering)
    return Lowered(graph, tuple(steps))


def _verify(graph: Graph, lowering: Lowering) -> None:
    from ...ir.verify.verifier import verify

    try:
        verify(graph)
    except VerifyError as error:
        raise VerifyError(f"lowering '{name_of(lowering)}' broke the graph: {error}") from error


def print_lowered(context: Context, annotations: bool = False) -> str:
    """All graphs of the program that run, as MindSpore gets them, each under the list of what was done to it."""
    from ...ir.text import print_graph

    program = context.program
    graphs = {name: program.graphs[name] for name in program.schedule.graphs()}
    idle = {f"{name}, where nothing is measured,": idle_graph(graph, program) for name, graph in graphs.items()}
    parts: list[str] = []
    for name, graph in (graphs | idle).items():
        if graph is None:
            continue
        lowered = lower(graph, context)
        steps = [f"// {step}: {what}" for step, what in lowered.steps] or ["// nothing to lower"]
        text = print_graph(lowered.graph, annotations=annotations, resources=False).rstrip()
        parts.append("\n".join([f"// -----// IR Lowered {name} for {context} //----- //", *steps, text, ""]))
    return "\n".join(parts)
