"""A graph as its peers are given it: this file runs in their environment, which does not have this project.

``inputs`` counts the values that come from outside (inputs, state, constants); ``nodes`` are (operation, scope,
operands by number, inputs first). The last node is the result. Every operation is pure and has one result: what orders
effects is operands, as in MindIR.
"""

from __future__ import annotations

import gc
import json
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from time import thread_time
from typing import Any

REPETITIONS = 3
Step = tuple[str, Callable[[], Any], Callable[[Any], object]]
"""Name, what makes its argument (not measured), what is measured."""


@dataclass
class PeerGraph:
    inputs: int
    nodes: list[tuple[str, str, list[int]]]


def run(package: str, steps: Callable[[PeerGraph, str], Sequence[Step]]) -> None:
    """Measures the steps on the graph of the command line, after a small one that warms everything up; prints, for the
    process that asked, processor time by step."""
    path, scratch = sys.argv[1:]
    document = json.loads(Path(path).read_text(encoding="utf-8"))
    graph = PeerGraph(document["inputs"], document["nodes"])
    gc.disable()
    for _, prepare, act in steps(PeerGraph(graph.inputs, graph.nodes[:500]), scratch):
        act(prepare())
    planned = steps(graph, scratch)
    seconds: dict[str, list[float]] = {name: [] for name, _, _ in planned}
    for _ in range(REPETITIONS if len(graph.nodes) < 50_000 else 1):
        for name, prepare, act in planned:
            argument = prepare()
            gc.collect()
            start = thread_time()
            result = act(argument)
            seconds[name].append(thread_time() - start)
            del argument, result
    json.dump({"version": version(package), "seconds": seconds}, sys.stdout)
