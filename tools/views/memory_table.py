"""The memory of a session, as a table (``boost-inspect --memory``)."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

from rich.console import Console

from ...ir.core.wording import print_bytes, print_count
from .. import cli
from .shown import role_in_words

CAUSES = {
    "state": "state, one copy",
    "pool": "activations, gradients and other values, at the peak of the graph that needs most",
    "constants": "constants of the graphs",
    "kernels": "what kernels keep for themselves",
    "engine": "code, threads, compiled graphs",
}
Document = dict[str, Any]
COLUMNS, LINES, SCOPES = 64, 6, 8
"""The size of a curve, and how many scopes the table below it names."""
_EIGHTHS = " ▁▂▃▄▅▆▇█"


def print_memory(document: Document, out: Console) -> None:
    rows = cli.table("State", "role", "bytes", numbers=("bytes",))
    for role, count in sorted(document["state"].items(), key=lambda r: -r[1]):
        rows.add_row(role_in_words(role), print_bytes(count))
    out.print(rows)
    rows = cli.table("Graphs, at their peak, inputs included", "graph", "bytes", "at", numbers=("bytes",))
    for name, graph in document["graphs"].items():
        rows.add_row(cli.harmless(name), print_bytes(graph["peak"]), cli.harmless(f"%{graph['at']}"))
    out.print(rows)
    for name, graph in document["graphs"].items():
        _print_curve(name, graph, out)
    rows = cli.table("A session on CPU (estimate)", "what", "bytes", numbers=("bytes",))
    for cause, count in document["session"].items():
        rows.add_row(CAUSES[cause], print_bytes(count))
    rows.add_row("in all", print_bytes(document["total"]))
    out.print(rows)


def _print_curve(name: str, graph: Document, out: Console) -> None:
    """The bytes alive over one run of a graph, and what is alive at the peak."""
    curve = graph["curve"]
    if not curve or not max(curve):
        return
    out.print(f"Values alive while {cli.harmless(name)} runs: {print_bytes(max(curve))} at the peak")
    for line in curve_lines(curve):
        out.print(line, highlight=False)
    rows = cli.table("Alive at the peak", "scope", "bytes", numbers=("bytes",))
    for scope, count in list(graph["alive"].items())[:SCOPES]:
        rows.add_row(cli.harmless(scope), print_bytes(count))
    rest = list(graph["alive"].values())[SCOPES:]
    if rest:
        rows.add_row(f"{len(rest)} more", print_bytes(sum(rest)))
    out.print(rows)
    rows = cli.table("By element type", "type", "bytes at the peak", "FLOPs", numbers=("bytes at the peak", "FLOPs"))
    for name, of_type in graph["types"].items():
        rows.add_row(name, print_bytes(of_type["bytes"]), print_count(of_type["flops"]))
    out.print(rows)


def curve_lines(curve: Sequence[int]) -> list[str]:
    """A curve as text, :data:`LINES` high: in each column the most of the nodes that it stands for."""
    columns = min(COLUMNS, len(curve))
    edges = [i * len(curve) // columns for i in range(columns + 1)]
    heights = [max(curve[a:b]) * LINES * 8 // max(curve) for a, b in pairwise(edges)]
    return [
        "".join(_EIGHTHS[min(max(height - 8 * line, 0), 8)] for height in heights).rstrip()
        for line in reversed(range(LINES))
    ]
