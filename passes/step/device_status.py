"""The overflow flag of an Ascend chip, as a training cell asks for it, in a cycle of several micro-batches.

The flag stays set until it is cleared. A cell clears it before the backward part and reads it behind, or reads it and
then clears it. Only the second way says of a cycle whether any of its micro-batches overflowed.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from ...ir.analysis.training.network import FORWARD
from ...ir.core.graph import Graph, Node, Value
from ...ir.core.walk import live_nodes, without_order

READ, READ_INTO = "NPUGetFloatStatusV2", "NPUGetFloatStatus"
CLEAR, CLEAR_BY = "NPUClearFloatStatusV2", "NPUClearFloatStatus"
"""What the second generation of MindSpore's cells uses, and what the first does, with memory that NPUAllocFloatStatus
made: there ``Depend(memory, read)`` is the flag."""
ALLOCATE = "NPUAllocFloatStatus"


def clear_behind_reading(main: Graph, parts: Mapping[Node, str], *, scope: str) -> int:
    """Makes every flag be read first and cleared then; returns how many flags are read.

    ``parts``: :func:`.network.network_parts`. What waited for the clearing waits for nothing, and a flag that is read
    waits for no forward part, but still for the gradients that it waited for.
    """
    count = 0
    for graph in main.all_graphs():
        reads = [node for node in graph if node.op.name in (READ, READ_INTO)]
        count += len(reads)
        for node in [node for node in graph if node.op.name in (CLEAR, CLEAR_BY)] if reads else ():
            if not any(read in live_nodes([node]) for read in reads):
                _drop(graph, node)
        for read in reads:
            for depend in list(_waits(read.operand(0))):
                awaited = depend.operand(1)
                if isinstance(awaited, Node) and parts.get(awaited) == FORWARD:
                    depend.replace_uses(depend.operand(0))
            if not any(node.op.name in (CLEAR, CLEAR_BY) and read in live_nodes([node]) for node in graph):
                _clear_behind(graph, read, scope)
    return count


def _waits(status: Value) -> Iterator[Node]:
    while isinstance(status, Node) and status.op.name == "Depend":
        yield status
        status = status.operand(0)


def _drop(graph: Graph, clear: Node) -> None:
    for user in list(clear.users):
        if user.op.name == "Depend" and user.operand(1) is clear:
            graph.substitute(user, user.operand(0))
    if not clear.uses:
        graph.erase(clear)


def _clear_behind(graph: Graph, read: Node, scope: str) -> None:
    """Those who take the flag get it when it was cleared behind their back: it was copied before."""
    if read.op.name == READ:
        flags = [read]
    else:
        flags = [user for user in read.users if user.op.name == "Depend" and user.operand(1) is read]
    uses = [(user, i) for flag in flags for user, i in flag.use_sites()]
    with graph.inserting_after(flags[-1] if flags else read):
        empty, name = without_order(read.operand(0)), CLEAR
        if read.op.name == READ_INTO:  # memory of its own: the flag's may still be read
            empty, name = graph.create(ALLOCATE, [], empty.type, scope=scope, sources=[read]), CLEAR_BY
        ready = graph.create("Depend", [empty, read], scope=scope, sources=[read])
        cleared = graph.create(name, [ready], read.type, scope=scope, sources=[read])
        for flag in flags:
            waiting = graph.create("Depend", [flag, cleared], scope=scope, sources=[flag])
            for user, i in uses:
                if user.operand(i) is flag and user not in (ready, waiting):
                    user.set_operand(i, waiting)
