"""``program.json`` of a program directory: what it says of a program, and the program that it describes."""

from __future__ import annotations

import json
from dataclasses import asdict, fields
from typing import Any

from ...core.errors import FormatError, VerifyError
from ...core.graph import Graph, Origin
from ...core.line_search import Search
from ...core.program import TARGETS, Entry, Program, Schedule, StateVariable
from ...core.report import Miss, PassResult
from ...core.variants import KINDS, Choice
from ...files.checksums import sealed, shown
from ...files.document import Document

FORMAT = 1


def schedule_document(schedule: Schedule) -> dict[str, Any]:
    """A schedule as JSON, in ``program.json`` and in reports."""
    return {
        "cycle": [{"graph": e.graph, "repeat": e.repeat} for e in schedule.cycle],
        "flush": schedule.flush,
        "count": schedule.count,
        "max_skipped": schedule.max_skipped,
        "choice": None if schedule.choice is None else asdict(schedule.choice),
        "search": None if schedule.search is None else asdict(schedule.search),
    }


def describe_program(program: Program, stored: dict[str, int], files: dict[str, str]) -> dict[str, Any]:
    """The content of ``program.json``. ``stored``: the checksum of each state that stands in a file, the others being
    zeros; ``files``: that of each graph's file."""
    return {
        "format": FORMAT,
        "name": program.name,
        "target": program.target,
        "pipeline": program.pipeline,
        "schedule": schedule_document(program.schedule),
        "graphs": {
            name: {
                "file": f"{name}.mindir",
                "checksum": files[f"{name}.mindir"],
                "inputs": [{"name": v.name, "type": str(v.type)} for v in graph.inputs],
                "outputs": list(graph.outputs),
                "states": list(graph.states),
                "origins": _origins(graph),
            }
            for name, graph in program.graphs.items()
        },
        "state": {
            name: {
                "dtype": str(v.dtype),
                "shape": list(v.shape),
                "role": v.role,
                "trainable": v.trainable,
                "weight": v.weight,
                "initial": "file" if name in stored else "zeros",
                "checksum": shown(stored[name]) if name in stored else None,
                "info": v.info,
            }
            for name, v in program.state.items()
        },
        "source": program.source,
        "metadata": program.metadata,
        "reports": [r.to_json() for r in program.reports],
    }


def lay_out(document: dict[str, Any]) -> str:
    """JSON with a line for each member of a section: readable, and three times as fast as indenting it all."""

    def compact(value: Any) -> str:
        return json.dumps(value, ensure_ascii=False, default=str)

    sections = []
    for key, value in document.items():
        if isinstance(value, dict) and value:
            members = ",\n".join(f"  {compact(name)}: {compact(member)}" for name, member in value.items())
            text = f"{{\n{members}\n }}"
        elif isinstance(value, list) and value:
            text = "[\n" + ",\n".join(f"  {compact(member)}" for member in value) + "\n ]"
        else:
            text = compact(value)
        sections.append(f" {compact(key)}: {text}")
    return sealed("{\n" + ",\n".join(sections))


def _origins(graph: Graph) -> dict[str, list[list[Any]]]:
    """By function ("" is the graph itself): position of a node, the nodes it came from, the passes that made it."""
    found = {}
    for name, part in [("", graph), *graph.functions.items()]:
        rows = [
            [i, list(node.origin.sources), list(node.origin.passes)]
            for i, node in enumerate(part)
            if node.origin is not None
        ]
        if rows:
            found[name] = rows
    return found


# -- reading --------------------------------------------------------------------------------------------------------


def build_program(document: Document, graphs: dict[str, Graph], state: dict[str, StateVariable]) -> Program:
    """The program that ``program.json`` describes, of graphs and state that were read."""
    return Program(
        graphs=graphs,
        state=state,
        schedule=_schedule(document["schedule"], graphs, state),
        name=document["name"].text(),
        target=document["target"].one_of(TARGETS),
        metadata=document["metadata"].free(),
        source={key: value.text() for key, value in document["source"].items()},
        pipeline=document["pipeline"].text(),
        reports=[_report(r) for r in document["reports"].list()],
    )


def _schedule(document: Document, graphs: dict[str, Graph], state: dict[str, StateVariable]) -> Schedule:
    known = tuple(graphs)
    cycle = tuple(Entry(e["graph"].one_of(known), e["repeat"].integer(1)) for e in document["cycle"].list())
    if not cycle:
        raise document["cycle"].wrong("at least one entry")
    flush, count, limit = document["flush"], document["count"], document["max_skipped"]
    return Schedule(
        cycle,
        flush=None if flush.value is None else flush.one_of(known),
        count=None if count.value is None else count.one_of(tuple(state)),
        max_skipped=None if limit.value is None else limit.integer(1),
        choice=None if document["choice"].value is None else _choice(document["choice"], known, state),
        search=None if document["search"].value is None else _search(document["search"], known, state),
    )


def _choice(document: Document, graphs: tuple[str, ...], state: dict[str, StateVariable]) -> Choice:
    if document["variants"].integer(2) > len(graphs):
        raise document["variants"].wrong(f"at most {len(graphs)}, the number of graphs")
    given: dict[str, Any] = {
        "variants": document["variants"].integer(2),
        "kind": document["kind"].one_of(KINDS),
        "probability": document["probability"].number(),
        "cycles": document["cycles"].integer(1),
        "seed": document["seed"].integer(0),
        "state": document["state"].one_of(tuple(state)),
        "sequence": tuple(number.integer(0) for number in document["sequence"].list()),
        "repeat": document["repeat"].truth(),
    }
    try:
        return Choice(**given)
    except VerifyError as error:
        raise FormatError(f"{document.place}: {error}") from None


def _search(document: Document, graphs: tuple[str, ...], state: dict[str, StateVariable]) -> Search:
    return Search(
        trial=document["trial"].one_of(graphs),
        judge=document["judge"].one_of(graphs),
        pending=document["pending"].one_of(tuple(state)),
        at_most=document["at_most"].integer(1),
        kept=document["kept"].texts(),
    )


def _report(document: Document) -> PassResult:
    unknown = set(document.object()) - {field.name for field in fields(PassResult)}
    if unknown:
        raise FormatError(f"{document.place}: not the result of a pass (it has no '{min(unknown)}')")
    return PassResult(
        name=document["name"].text(),
        options=document["options"].free(),
        matched=document["matched"].integer(0),
        changed=document["changed"].integer(0),
        misses=[Miss(miss["site"].text(), miss["reason"].text()) for miss in document["misses"].list()],
        statistics=document["statistics"].free(),
        preserves=document["preserves"].truth(),
        seconds=document["seconds"].number(),
        summary=document["summary"].text(),
    )


def restore_origins(graph: Graph, document: Document) -> None:
    """Gives the nodes of a graph the origins that were written; see :func:`_origins`."""
    for name, rows in document.items():
        part = graph if name == "" else graph.functions.get(name)
        if part is None:
            raise FormatError(f"{rows.place}: no function has this name")
        nodes = list(part)
        for row in rows.list():
            entries = row.list()
            if len(entries) != 3 or entries[0].integer(0) >= len(nodes):
                raise row.wrong(f"[position below {len(nodes)}, [sources], [passes]]")
            nodes[entries[0].value].origin = Origin(entries[1].texts(), entries[2].texts())
