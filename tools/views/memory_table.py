"""What a session will have in memory, as a table (``boost-inspect --memory``)."""

from __future__ import annotations

from typing import Any

from rich.console import Console

from ...ir.program import Program
from ...ir.wording import print_bytes
from .. import cli

CAUSES = {
    "state": "state, one copy",
    "pool": "activations, gradients and other values, at the peak of the graph that needs most",
    "constants": "constants of the graphs",
    "scratch": "what kernels keep for themselves",
    "engine": "code, threads, compiled graphs",
}
Document = dict[str, Any]


def describe_memory(program: Program) -> Document:
    """Bytes: ``state`` by role, what each graph needs at its peak and where that is, and the footprint by cause."""
    from ...ir.memory import graph_memory
    from ...runtime.footprint import as_run, footprint

    roles: dict[str, int] = {}
    for variable in program.state.values():
        roles[variable.role] = roles.get(variable.role, 0) + variable.nbytes
    graphs = {}
    for name in program.schedule.graphs():
        memory = graph_memory(as_run(program.graphs[name]))
        graphs[name] = {"peak": memory.peak + memory.inputs, "at": memory.at.name if memory.at else ""}
    found = footprint(program)
    return {"state": roles, "graphs": graphs, "session": {c: getattr(found, c) for c in CAUSES}, "total": found.total}


def print_memory(document: Document, out: Console) -> None:
    rows = cli.table("State", "role", "bytes", numbers=("bytes",))
    for role, count in sorted(document["state"].items(), key=lambda r: -r[1]):
        rows.add_row(role, print_bytes(count))
    out.print(rows)
    rows = cli.table("Graphs, at their peak", "graph", "bytes", "at", numbers=("bytes",))
    for name, graph in document["graphs"].items():
        rows.add_row(cli.harmless(name), print_bytes(graph["peak"]), cli.harmless(f"%{graph['at']}"))
    out.print(rows)
    rows = cli.table("A session on CPU (estimate)", "what", "bytes", numbers=("bytes",))
    for cause, count in document["session"].items():
        rows.add_row(CAUSES[cause], print_bytes(count))
    rows.add_row("in all", print_bytes(document["total"]))
    out.print(rows)
