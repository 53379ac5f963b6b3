"""The report: one HTML file with everything in it, styles, scripts and data, that loads nothing from anywhere.

Names come from files and may hold anything: the template escapes them, the data stands in scripts that are no code,
and a content security policy lets no script run but the page's own, known by their hashes.
"""

from __future__ import annotations

import hashlib
import json
from base64 import b64encode
from functools import cache
from importlib.metadata import version
from typing import Any

from ...ir.analysis.compare.diff import diff
from ...ir.analysis.compare.diff_text import SIGNS, Lines, heading, made_by, sections
from ...ir.analysis.compare.difference import GraphDiff, ProgramDiff
from ...ir.core.program import Program
from ...ir.core.wording import agreed, counted, print_bytes, print_count
from ...passes.framework.options import print_value
from .. import cli
from ..verification.report import numbers_of
from .memory_plot import memory_plot
from .page_file import page_file
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
    return str(
        environment()
        .get_template("report.html")
        .render(
            version=version("boost-compile"),
            document=document,
            view=view,
            colours=colours,
            passes=_passes(document["reports"], colours),
            roles=_roles(document["state"]),
            runs=_runs(view.program, document),
            original=name,
            difference=_difference(found) if found is not None else None,
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
    )


@cache
def environment() -> Any:
    """The renderer of the templates in ``page/``: names are escaped and harmless."""
    import jinja2

    environment = jinja2.Environment(
        loader=jinja2.FunctionLoader(page_file), autoescape=True, trim_blocks=True, lstrip_blocks=True,
        undefined=jinja2.StrictUndefined, finalize=_harmless,
    )  # fmt: skip
    environment.filters.update(
        bytes=print_bytes, count=print_count, counted=counted, agreed=agreed, made_by=made_by, numbers=numbers_of
    )
    return environment


def _harmless(value: Any) -> Any:
    """Names in the page's text; what is markup or a script already stays as it is, to the character."""
    return cli.harmless(value) if type(value) is str else value


def policy_of(scripts: list[str]) -> str:
    """A content security policy by which nothing runs but these scripts, and nothing is loaded."""
    hashes = (b64encode(hashlib.sha256(script.encode()).digest()).decode() for script in scripts)
    allowed = " ".join(f"'sha256-{h}'" for h in hashes)
    return f"default-src 'none'; style-src 'unsafe-inline'; script-src {allowed}; base-uri 'none'; form-action 'none'"


def embedded(document: Any) -> str:
    """JSON that can stand inside a script element, whatever its strings hold."""
    text = cli.harmless(json.dumps(document, ensure_ascii=False, separators=(",", ":")))
    for character in "<>&\u2028\u2029":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return text


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


def _roles(state: list[Document]) -> list[Document]:
    roles: dict[str, Document] = {}
    for variable in state:
        row = roles.setdefault(variable["role"], {"role": variable["role"], "variables": 0, "bytes": 0})
        row["variables"] += 1
        row["bytes"] += variable["bytes"]
    return list(roles.values())


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


def _difference(found: ProgramDiff) -> Document:
    line_of = Lines()
    left = ROWS
    graphs = []
    for graph in found.graphs:
        if graph:
            made, left = _graph_difference(graph, line_of, left)
            graphs.append(made)
    state = [{"kind": s.kind, "name": s.name, "details": [str(d) for d in s.details]} for s in found.state]
    details = [(title, [str(d) for d in part]) for title, part in _parts(found) if part]
    return {"graphs": graphs, "state": state, "details": details, "equal": not found}


def _parts(found: ProgramDiff) -> list[tuple[str, list[Any]]]:
    return [("Graphs", found.split), ("Schedule", found.schedule), ("Program", found.program)]


def _graph_difference(graph: GraphDiff, line_of: Lines, left: int) -> tuple[Document, int]:
    by: dict[str, list[Document]] = {}
    for section in sections(graph):
        lines = []
        for node in section.nodes[: max(left, 0)]:
            details = [str(d) for d in node.details[:6]]
            lines.append({"kind": node.kind, "sign": SIGNS[node.kind], "text": line_of(node.node), "details": details})
        left -= len(lines)
        hidden = len(section.nodes) - len(lines)
        by.setdefault(section.by, []).append({"scope": section.scope, "lines": lines, "hidden": hidden})
    return {"heading": heading(graph), "interface": [str(d) for d in graph.interface], "by": by}, left
