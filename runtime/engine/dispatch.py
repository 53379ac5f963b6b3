"""Which thread runs the kernels of a graph. Imports no MindSpore."""

from __future__ import annotations

import os

from ...ir.analysis.cost.flops import estimated_flops
from ...ir.core.graph import Graph
from ...ir.core.primitives import Family, named

FEW_KERNELS = 100
"""Graphs of at most so many kernels are run in the calling thread, where MindSpore's pool has one thread for actors."""
ONE_ACTOR_THREAD = 12
"""Cores below which it has: 0.18 threads a core, at least one."""
WORTHWHILE = 3e7
"""Floating-point operations (estimated) from which the gain is larger than what the pool costs, 0.1 to 0.3 ms: LeNet-5
gains at a batch of 32 (65 million), and loses a seventh at 8 (16 million)."""
_NO_KERNEL = named(Family.ORDER, Family.TUPLE)


def as_function(graph: Graph, device: str) -> bool:
    """Whether a graph had better be called as a function than be the whole of what MindSpore runs.

    On CPU, small graphs run in the thread that calls them. It takes part in the parallel sections of each kernel and
    then spins, beside as many pool threads as there are cores: on two cores LeNet-5 with a batch of 32 took 8.9 ms a
    step that way and 5.6 ms where only the pool works. A graph that is called as a function, as any with control flow,
    is run by the pool. Tiny graphs lose by it, what they compute is less than the call; of larger ones MindSpore keeps
    the caller out itself.
    """
    if device != "CPU" or (os.cpu_count() or 1) >= ONE_ACTOR_THREAD or graph.functions:
        return False
    kernels = sum(node.op.name not in _NO_KERNEL for node in graph)
    return kernels <= FEW_KERNELS and estimated_flops(graph) >= WORTHWHILE
