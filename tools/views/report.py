"""The report: one HTML file with everything in it, styles, scripts and data, that loads nothing from anywhere."""

from __future__ import annotations

from importlib.metadata import version
from typing import Any

from ...ir.analysis.compare.diff import diff
from ...ir.core.program import Program
from ...passes.framework.options import print_value
from .diff_page import difference_of
from .memory_plot import memory_plot
from .page_file import embedded, page_file, policy_of, rendered
from .palette import pass_colours
from .scenes import scenes
from .shown import Shown, makers, shown
from .summary import describe, describe_graph

ROWS = 400
"""How many rows of a table, and lines of the difference, the page holds; the summary as JSON has all."""
RUNS = 12
_SCRIPTS = ("vendor/dagre.min.js", "vendor/uPlot.iife.min.js", "drawing.js", "memory.js")
_STYLES = ("vendor/uPlot.min.css", "report.css")
Document = dict[str, Any]


def html_of(view: Shown, original: Program | None = None, name: str = "") -> str:
    """The report on a program, compared with ``original`` (from the file ``name``) where that is given."""
    before = shown(original, name) if original is not None else None
    found = diff(original, view.program) if original is not None else None
    scripts = [page_file(script) for script in _SCRIPTS]
    document = describe(view)
    colours = pass_colours(makers(view))
    drawn, memory = scenes(view, before, found), memory_plot(view)
    trained = document["graphs"]
    if before is not None:
        trained = {n: describe_graph(before, n) for n in before.program.graphs}
    return rendered(
        "report.html",
        version=version("boost-compile"),
        document=document,
        view=view,
        colours=colours,
        passes=_passes(document["reports"], colours),
        runs=_runs(view.program, document),
        original=name,
        difference=None if found is None else difference_of(found, ROWS),
        counts=found.counts() if found is not None else {},
        scenes=drawn["scenes"],
        memory=memory,
        data={"drawings": embedded(drawn), "memory-data": embedded(memory)},
        styles="\n".join(page_file(style) for style in _STYLES),
        scripts=scripts,
        policy=policy_of(scripts),
        trained=trained,
        verification=view.verification,
        rows=ROWS,
    )


def _passes(reports: list[Document], colours: dict[str, str]) -> list[Document]:
    """Each pass with its share of the time, as percentages of the whole."""
    total = sum(r["seconds"] for r in reports) or 1.0
    start = 0.0
    rows = []
    for report in reports:
        share = 100 * report["seconds"] / total
        options = {name: print_value(value) for name, value in report["options"].items()}
        colour = colours.get(report["name"], "")
        rows.append({**report, "options": options, "start": start, "share": share, "colour": colour})
        start += share
    return rows


def _runs(program: Program, document: Document) -> list[Document]:
    """The boxes of the schedule: one a run, many runs of one graph shortened."""
    runs: list[Document] = []
    batch = 0
    for entry in program.schedule.cycle:
        consumes = bool(program.graphs[entry.graph].inputs)
        updates = "weight" in {program.state[s].role for s in _written(program, entry.graph) if s in program.state}
        hidden = range(RUNS - 2, entry.repeat - 1) if entry.repeat > RUNS else range(0)
        for i in (*range(entry.repeat - len(hidden) - 1), entry.repeat - 1) if hidden else range(entry.repeat):
            if hidden and i == entry.repeat - 1:
                runs.append({"graph": "…", "takes": f"{len(hidden)} more", "updates": False})
            takes = f"micro-batch {batch + i + 1}" if consumes else "no input"
            runs.append({"graph": entry.graph, "takes": takes, "updates": updates})
        batch += entry.repeat * consumes
    return runs


def _written(program: Program, name: str) -> set[str]:
    from ...ir.analysis.effects.state_access import describe as effect_of
    from ...ir.analysis.effects.state_access import summarize
    from ...ir.core.graph import State

    graph = program.graphs[name]
    known = summarize(graph)
    effects = (effect_of(node, known) for node in graph)
    return {v.name for e in effects if e is not None for v in e.writes if isinstance(v, State)}
