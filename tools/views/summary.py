"""The summary: one document, printed as JSON or as tables."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

from ...ir.analysis.cost.flops import estimated_flops, flops_by_type
from ...ir.analysis.cost.memory import GraphMemory
from ...ir.analysis.training.gradient_path import gradient_paths
from ...ir.analysis.training.stages import GradientPath
from ...ir.core.graph import Node
from ...ir.core.types import readable
from ...ir.core.wording import counted, print_bytes, print_count
from ...passes.step.names import TAG
from .. import cli
from ..compile_report import schedule_json
from ..tables import say
from .shown import Shown, pass_of, role_in_words

if TYPE_CHECKING:
    from rich.console import Console

Document = dict[str, Any]
LISTING = "--format json"


def describe(shown: Shown) -> Document:
    """``--format json``. Sizes in bytes; ``anatomy`` of a graph is None, with the reason, where it has none. ``flops``
    and ``memory`` are estimates (ir/analysis/cost/flops.py, ir/analysis/cost/memory.py); those of the cycle count each
    graph as often as it runs (a function once a graph)."""
    program = shown.program
    weights = [v for v in program.state.values() if v.role == "weight"]
    graphs = {name: describe_graph(shown, name) for name in program.graphs}
    memory = shown.memory()
    return {
        "file": shown.file,
        "name": program.name,
        "target": program.target,
        "source": program.source,
        "metadata": program.metadata,
        "pipeline": program.pipeline,
        "schedule": None if shown.cut else schedule_json(program),
        "parameters": {
            "variables": len(weights),
            "elements": sum(v.type.size for v in weights),
            "trained": sum(v.type.size for v in weights if v.trainable is not False),
        },
        "flops": sum(e.repeat * graphs[e.graph]["flops"] for e in program.schedule.cycle),
        "memory": {"state": memory.state, "peak": memory.peak},
        "graphs": {name: {**graph, "memory": _memory(memory.graphs[name])} for name, graph in graphs.items()},
        "state": [
            {
                "name": v.name,
                "dtype": str(v.dtype),
                "shape": list(v.shape),
                "role": v.role,
                "bytes": v.nbytes,
                "tags": {TAG: v.info[TAG]} if TAG in v.info else {},
            }
            for v in program.state.values()
        ],
        "reports": [r.to_json() for r in program.reports],
    }


def describe_graph(shown: Shown, name: str) -> Document:
    """The part of :func:`describe` about one graph, but for its memory."""
    graph, found = shown.program.graphs[name], shown.anatomies[name]
    stages = {path.weight: _describe_stages(path) for path in gradient_paths(graph, found)} if found else {}
    nodes = list(graph.all_nodes())
    by_part: dict[str, list[Node]] = {}
    for node in nodes:
        by_part.setdefault(shown.part(node), []).append(node)
    inserted = Counter(pass_of(node) for node in nodes)
    del inserted[""]
    return {
        "inputs": [{"name": v.name, "type": str(v.type)} for v in graph.inputs],
        "outputs": list(graph.outputs),
        "result": readable(graph.result.type, 400),
        "nodes": len(nodes),
        "functions": {name: len(function) for name, function in graph.functions.items()},
        "state": list(graph.states),
        "ops": dict(Counter(node.op.name for node in nodes).most_common()),
        "parts": {part: len(members) for part, members in by_part.items()},
        "part_ops": {p: dict(Counter(n.op.name for n in members).most_common()) for p, members in by_part.items()},
        "inserted": dict(inserted.most_common()),
        "flops": estimated_flops(nodes),
        "type_flops": flops_by_type(nodes),
        "part_flops": {part: estimated_flops(members) for part, members in by_part.items()},
        "anatomy": None
        if found is None
        else {
            "loss": None if found.loss is None else found.loss.name,
            "weights": [
                {
                    "name": w.name,
                    "gradient": [v.name for v in w.gradient],
                    "updates": [{"name": n.name, "op": n.op.name} for n in w.updates],
                    "slots": list(w.slots),
                    "stages": stages.get(w.name, []),
                }
                for w in found.weights
            ],
        },
        "anatomy_error": shown.reasons.get(name, ""),
    }


def _memory(memory: GraphMemory) -> Document:
    at = memory.at.name if memory.at else ""
    return {"inputs": memory.inputs, "constants": memory.constants, "peak": memory.peak, "peak_at": at}


def _describe_stages(path: GradientPath) -> list[Document]:
    nodes = ((point.stage, value) for point in path.points for value in point.values if point.stage)
    return [{"kind": kind, "name": v.name, "op": v.op.name} for kind, v in nodes if isinstance(v, Node)]


def print_summary(document: Document, out: Console) -> None:
    def line(label: str, text: Any) -> None:
        if text:
            say(out, f"[bold]{label}[/bold] {cli.escape(str(text))}")

    line("File", document["file"])
    line("Source", " ".join(f"{k}={v}" for k, v in document["source"].items()))
    line("Versions", " ".join(f"{k}={v}" for k, v in document["metadata"].items() if "version" in k))
    line("Target", document["target"])
    line("Pipeline", document["pipeline"])
    schedule = document["schedule"]
    line("Schedule", schedule and schedule["text"])
    weights = document["parameters"]
    parameters = f"{weights['elements']:,} in {counted(weights['variables'], 'weight')}"
    line("Parameters", parameters if weights["variables"] else "")
    of = "" if not schedule else " a window" if schedule["micro_batches"] > 1 else " a step"
    line("FLOPs", f"{print_count(document['flops'])}{of} (estimate)" if document["flops"] else "")
    line("Memory", f"{print_bytes(document['memory']['peak'])} for a session on CPU (estimate; --memory says what for)")
    _print_state(document, out)
    for name, graph in document["graphs"].items():
        out.print()
        line(f"Graph '{name}':", counted(graph["nodes"], "node") + _functions(graph))
        for value in graph["inputs"]:
            line("  in ", f"{value['name']}: {value['type']}")
        line("  out", f"{', '.join(graph['outputs']) or 'result'}: {graph['result']}")
        line("  parts", ", ".join(f"{part} {n}" for part, n in sorted(graph["parts"].items())))
        line("  inserted", ", ".join(f"{name} {n}" for name, n in graph["inserted"].items()))
        ops = [f"{op} {n}" for op, n in graph["ops"].items()]
        line("  ops", ", ".join(cli.folded(ops, 16, LISTING)))
        line("  needs", _costs(graph))
        if graph["anatomy"] is not None:
            line("  trains", f"{counted(len(graph['anatomy']['weights']), 'weight')} (--format anatomy shows how)")
    if document["reports"]:
        columns = ("matched", "changed", "missed")
        shown = cli.table("\nPasses that made it", "pass", *columns, "what", numbers=columns)
        for r in document["reports"]:
            counts = [str(n) for n in (r["matched"], r["changed"], len(r["misses"]))]
            shown.add_row(cli.escape(r["name"]), *counts, cli.escape(r["summary"]))
        out.print(shown)


def _costs(graph: Document) -> str:
    memory = graph["memory"]
    needed = print_bytes(memory["inputs"] + memory["peak"])
    peak = f"{needed} at its peak, at %{memory['peak_at']}" if memory["peak_at"] else ""
    flops = {part: n for part, n in sorted(graph["part_flops"].items()) if n}
    parts = ", ".join(f"{part} {print_count(n)}" for part, n in flops.items())
    return "; ".join(t for t in (f"{print_count(graph['flops'])} FLOPs ({parts})" if parts else "", peak) if t)


def _functions(graph: Document) -> str:
    functions = graph["functions"]
    return f", {sum(functions.values())} of them in {counted(len(functions), 'function')}" if functions else ""


def _tags(variable: Document) -> str:
    return ", ".join(f"{tag}={value}" for tag, value in variable["tags"].items())


def _print_state(document: Document, out: Console) -> None:
    roles: dict[str, list[Document]] = {}
    for variable in document["state"]:
        roles.setdefault(variable["role"], []).append(variable)
    shown = cli.table("\nState", "role", "variables", "elements", "size", numbers=("variables", "elements", "size"))
    for role, variables in roles.items():
        shown.add_row(role_in_words(role), *_sizes(variables))
    if len(roles) > 1:
        shown.add_row("all", *_sizes(document["state"]))
    out.print(shown)
    tagged = [f"{v['name']} {_tags(v)}" for v in document["state"] if v["tags"]]
    if tagged:
        say(out, f"[bold]Tagged[/bold] {cli.escape(', '.join(cli.folded(tagged, 16, LISTING)))}")


def _sizes(variables: list[Document]) -> tuple[str, str, str]:
    from math import prod

    elements = sum(prod(v["shape"]) for v in variables)
    return str(len(variables)), f"{elements:,}", print_bytes(sum(v["bytes"] for v in variables))
