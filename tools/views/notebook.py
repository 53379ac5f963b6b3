"""The display of objects in a notebook: a summary, and a drawing that unfolds.

The summary is plain HTML, so it stays where a viewer shows no frames. The drawing is a page of its own in a frame
without rights: it has the scripts of the report, and their policy.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ...ir.analysis.compare.diff_text import made_by
from ...ir.analysis.compare.difference import KINDS, ProgramDiff
from ...ir.core.graph import Graph
from ...ir.core.program import Entry, Program, Schedule
from ...ir.core.types import readable
from ...ir.core.wording import counted, print_bytes
from ..compile_report import describe_schedule
from ..proof.run import Proved
from ..verification.report import Verification
from .page_file import embedded, page_file, policy_of, rendered
from .palette import pass_colours
from .scenes import scenes, whole_step
from .shown import Shown, makers, role_in_words, shown

if TYPE_CHECKING:
    from ...ir.analysis.cost.footprint import Footprint
    from ..budget import Plan

BOXES = 400
"""How many boxes of a drawing can be unfolded: a notebook keeps every picture that it shows."""
MOST = 12
"""Rows of a table at most."""
HEIGHT = 600
"""Pixels of a drawing."""
_SCRIPTS = ("vendor/dagre.min.js", "drawing.js")
Document = dict[str, Any]


@dataclass(frozen=True)
class Table:
    """``numbers``: the columns that stand flush right."""

    heads: Sequence[str]
    rows: Sequence[Sequence[str]]
    numbers: tuple[int, ...] = ()


def notebook_of(thing: object) -> str:
    """A fragment of HTML that shows a program, a graph, a difference, a verification, a proof, or an estimate of
    memory."""
    from ...ir.analysis.cost.footprint import Footprint
    from ..budget import Plan

    if isinstance(thing, Program):
        return _program(thing)
    if isinstance(thing, Graph):
        return _graph(thing)
    if isinstance(thing, ProgramDiff):
        return _difference(thing)
    if isinstance(thing, Verification):
        return _fragment("", [], [], verification=thing)
    if isinstance(thing, Proved):
        return _proof(thing)
    if isinstance(thing, Footprint):
        return _footprint(thing)
    if isinstance(thing, Plan):
        return _plan(thing)
    raise TypeError(f"no view of a {type(thing).__name__}")


def _proof(found: Proved) -> str:
    verdicts = Counter(v.kind for v in found.proof.verdicts)
    rows = [(kind, str(n)) for kind, n in verdicts.items()]
    title, *facts = repr(found).splitlines()
    return _fragment(title, facts, [Table(("verdict", "states and results"), _cut(rows), (1,))])


def _program(program: Program) -> str:
    view = shown(program, program.name)
    weights = [v for v in program.state.values() if v.role == "weight"]
    facts = (
        [f"{counted(sum(v.type.size for v in weights), 'parameter')} in {counted(len(weights), 'weight')}"]
        if weights
        else []
    )
    facts.append(describe_schedule(program))
    facts.append(f"{print_bytes(view.memory().peak)} for a session on CPU (estimate)")
    tables = [_graphs(view)]
    if program.state:
        tables.append(_state(program))
    if program.reports:
        rows = [(r.name, str(r.matched), str(r.changed), str(len(r.misses)), r.summary) for r in program.reports]
        tables.append(Table(("pass", "matched", "changed", "missed", "what"), rows, (1, 2, 3)))
    return _fragment(f"Program {program.name}", facts, tables, _drawing(whole_step(view, BOXES), view))


def _graph(graph: Graph) -> str:
    main = graph.owner or graph
    alone = Program(graphs={main.name: main}, state={}, schedule=Schedule((Entry(main.name),)), name=main.name)
    view = shown(alone, main.name)
    of = "" if graph is main else f" (drawn: graph {main.name}, which it belongs to)"
    kind = "Graph" if graph is main else "Function"
    facts = [repr(graph).partition(": ")[2] + of]
    return _fragment(f"{kind} {graph.name}", facts, [_graphs(view)], _drawing(whole_step(view, BOXES), view))


def _graphs(view: Shown) -> Table:
    rows = []
    for name, graph in view.program.graphs.items():
        parts = Counter(map(view.part, graph.all_nodes()))
        takes = ", ".join(f"{v.name}: {readable(v.type, 30)}" for v in graph.inputs[:4])
        takes += f", … {len(graph.inputs) - 4} more" if len(graph.inputs) > 4 else ""
        counts = ", ".join(f"{part} {n}" for part, n in sorted(parts.items()))
        rows.append(
            (name, f"{graph.total_nodes():,}", counts, takes or "nothing", ", ".join(graph.outputs) or "a result")
        )
    return Table(("graph", "nodes", "of these", "takes", "gives"), _cut(rows), (1,))


def _state(program: Program) -> Table:
    roles: dict[str, list[int]] = {}
    for variable in program.state.values():
        roles.setdefault(variable.role, []).append(variable.nbytes)
    rows = [(role_in_words(role), str(len(sizes)), print_bytes(sum(sizes))) for role, sizes in roles.items()]
    return Table(("state", "variables", "size"), rows, (1, 2))


def _difference(found: ProgramDiff) -> str:
    if not found:
        return _fragment("No difference", [], [])
    counts = found.counts()
    title = ", ".join(f"{counted(counts[kind], 'node')} {kind}" for kind in KINDS)
    facts = [f"{counted(counts['order'], 'node')} in another order of effects"] if counts["order"] else []
    parts = (("Graphs", found.split), ("Schedule", found.schedule), ("Program", found.program))
    facts += [f"{what}: {'; '.join(map(str, details[:6]))}" for what, details in parts if details]
    rows = []
    for by, nodes in found.by_pass().items():
        plain: list[str] = [n.kind for n in nodes if not n.order]
        numbers = [str(plain.count(kind)) for kind in KINDS]
        rows.append((made_by(by or "not recorded"), *numbers, str(len(nodes) - len(plain))))
    tables = [Table(("", *KINDS, "order of effects"), _cut(rows), (1, 2, 3, 4, 5))]
    if found.state:
        kinds = [(s.name, s.kind, "; ".join(map(str, s.details))) for s in found.state]
        tables.append(Table(("state", "", ""), _cut(kinds)))
    drawing = ""
    if found.compared is not None:
        before, after = (shown(program, program.name) for program in found.compared)
        drawing = _drawing(scenes(after, before, found, BOXES), after, marks=True)
    return _fragment(f"Difference: {title}", facts, tables, drawing)


def _footprint(found: Footprint) -> str:
    from .memory_table import CAUSES

    rows = []
    for cause, what in CAUSES.items():
        part = getattr(found, cause)
        bar = "█" * round(30 * part / found.total) if found.total else ""
        rows.append((what, print_bytes(part), bar))
    title = f"{print_bytes(found.total)} for a session on CPU (estimate)"
    return _fragment(title, [], [Table(("what", "bytes", ""), rows, (1,))])


def _plan(plan: Plan) -> str:
    rows = []
    for candidate in plan.candidates:
        needs = candidate.refused or print_bytes(candidate.bytes)
        notes = [*(["recompute"] if candidate.recompute else []), *(["chosen"] if candidate == plan.chosen else [])]
        rows.append((str(candidate.size), str(candidate.steps), needs, ", ".join(notes)))
    title = f"{counted(plan.chosen.steps, 'micro-batch')} of {counted(plan.chosen.size, 'sample')}"
    facts = [f"within {print_bytes(plan.budget)}: {plan.pipeline or 'no pass is needed'}"]
    return _fragment(title, facts, [Table(("micro-batch", "steps", "memory", ""), _cut(rows), (0, 1, 2))])


def _cut(rows: Iterable[Sequence[str]]) -> list[Sequence[str]]:
    held = list(rows)
    more = len(held) - MOST
    return held if more <= 1 else [*held[:MOST], (f"… {more} more", *[""] * (len(held[0]) - 1))]


def _drawing(drawn: Document, view: Shown, *, marks: bool = False) -> str:
    scripts = [page_file(script) for script in _SCRIPTS]
    return rendered(
        "drawing.html",
        title=view.program.name,
        policy=policy_of(scripts),
        styles=page_file("report.css"),
        scripts=scripts,
        scenes=drawn["scenes"],
        colours=pass_colours(makers(view)),
        difference=marks,
        data=embedded(drawn),
    )


def _fragment(
    title: str,
    facts: Sequence[str],
    tables: Sequence[Table],
    drawing: str = "",
    verification: Verification | None = None,
) -> str:
    return rendered(
        "notebook.html",
        title=title,
        facts=facts,
        tables=tables,
        verification=verification,
        height=HEIGHT,
        drawing=_Whole(drawing),
        styles=page_file("notebook.css"),
        document={"pipeline": ""},
        original="",
    )


class _Whole(str):
    """A page that is an attribute of another: it is escaped, but nothing else may change in it."""

    __slots__ = ()
