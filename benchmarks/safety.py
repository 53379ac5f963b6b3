"""What checks and limits of gradients cost in a step: a finite test, a loss scale, a clip, and all three together.

The sessions of a network run in one process, in turns, and a ratio is that of medians; nothing accumulates.

    python -m benchmarks.safety [NETWORK ...]
"""

from __future__ import annotations

import statistics
import sys
from collections.abc import Sequence

from boost_compile.runtime.lowering.context import Context
from boost_compile.runtime.lowering.lower import lower

import boost_compile as bc
from benchmarks.sessions import seconds_a_step
from benchmarks.tables import table
from tests.conftest import export_once, zoo_folder
from tests.networks import CASES

NETWORKS = ("lenet_bn", "gpt", "resnet18", "mobilenet_v2")
ALL = "overflow-check,loss-scale,clip-gradients"
PIPELINES = ("overflow-check", "loss-scale", "clip-gradients", ALL)
ROUNDS, STEPS = 11, 6


def _ratios(name: str) -> list[str]:
    """The step of the source in milliseconds, its gradients with their elements, what each pipeline takes by it."""
    source = bc.load(str(export_once(name, zoo_folder())))
    programs = [source, *(bc.compile(source, pipeline) for pipeline in PIPELINES)]
    sessions = [bc.Session(program) for program in programs]
    batches = CASES[name].batches(STEPS)
    times: list[list[float]] = [[] for _ in sessions]
    for session in sessions:
        seconds_a_step(session, batches)  # compiles
    for _ in range(ROUNDS):
        for session, into in zip(sessions, times, strict=True):
            into.append(seconds_a_step(session, batches))
    base, *others = map(statistics.median, times)
    weights = [v for v in source.state.values() if v.trainable]
    size = sum(v.type.size for v in weights)
    nodes = [_nodes(program) for program in (programs[0], programs[-1])]
    return [
        name,
        f"{base * 1e3:.2f} ms",
        f"{len(weights)}, of {size:,} elements",
        *(f"{seconds / base:.2f}" for seconds in others),
        f"{nodes[0]} to {nodes[1]}",
    ]


def _nodes(program: bc.Program) -> int:
    """The nodes of a step as MindSpore gets it."""
    graph = program.graphs[next(iter(program.schedule.graphs()))]
    return lower(graph, Context(program, "cpu")).graph.total_nodes()


def run(networks: Sequence[str] = NETWORKS) -> str:
    head = ["network", "step of the source", "gradients", "overflow-check", "loss-scale", "clip-gradients", "all three"]
    lines = [
        "Time of a step of a compiled program by a step of the source, without accumulation: medians of "
        f"{ROUNDS} turns of {STEPS} steps, all of a network in turns in one process. Batches of 4, so that what is "
        "done for each weight shows. `loss-scale` is dynamic, and brings `overflow-check` along; the clip limits the "
        "norm of all gradients to 1. The last column counts nodes, of the source and of all three, as MindSpore gets "
        "them.",
        "",
        *table([*head, "nodes"], [_ratios(name) for name in networks]),
    ]
    return "\n".join(lines)


if __name__ == "__main__":
    print(run(sys.argv[1:] or NETWORKS))
