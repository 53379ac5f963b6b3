"""The memory of a session, as a table (``boost-inspect --memory``)."""

from __future__ import annotations

from typing import Any

from rich.console import Console

from ...ir.core.wording import print_bytes
from .. import cli

CAUSES = {
    "state": "state, one copy",
    "pool": "activations, gradients and other values, at the peak of the graph that needs most",
    "constants": "constants of the graphs",
    "scratch": "what kernels keep for themselves",
    "engine": "code, threads, compiled graphs",
}
Document = dict[str, Any]


def print_memory(document: Document, out: Console) -> None:
    rows = cli.table("State", "role", "bytes", numbers=("bytes",))
    for role, count in sorted(document["state"].items(), key=lambda r: -r[1]):
        rows.add_row(role, print_bytes(count))
    out.print(rows)
    rows = cli.table("Graphs, at their peak, inputs included", "graph", "bytes", "at", numbers=("bytes",))
    for name, graph in document["graphs"].items():
        rows.add_row(cli.harmless(name), print_bytes(graph["peak"]), cli.harmless(f"%{graph['at']}"))
    out.print(rows)
    rows = cli.table("A session on CPU (estimate)", "what", "bytes", numbers=("bytes",))
    for cause, count in document["session"].items():
        rows.add_row(CAUSES[cause], print_bytes(count))
    rows.add_row("in all", print_bytes(document["total"]))
    out.print(rows)
