"""The memory estimate over one cycle, as data for the page's plot."""

from __future__ import annotations

from typing import Any

from ...ir.analysis.cost.memory import GraphMemory
from .palette import MEMORY
from .shown import Shown

POINTS = 700
"""How many points the plot has at most: of the nodes between two points, the one where most is alive."""
_STATE = {"slot": "slots", "accumulator": "accumulators"}
Document = dict[str, Any]


def memory_plot(shown: Shown) -> Document:
    """``at``: positions over all graphs of the cycle; ``series``: bytes by kind, from the bottom up; ``marks``: where a
    graph begins; ``names``: the node at each point; ``peak``: the most, and where."""
    program = shown.program
    graphs = [name for name in program.schedule.graphs() if name in program.graphs]
    found, run = shown.memory().graphs, shown.memory().run
    step = max(1, -(-sum(len(run[name]) for name in graphs) // POINTS))
    at: list[int] = []
    names: list[str] = []
    marks: list[Document] = []
    values: dict[str, list[int]] = {kind: [] for kind in MEMORY}
    offset = 0
    for name in graphs:
        memory, nodes = found[name], list(run[name])
        marks.append({"at": offset, "label": name})
        for position in _points(memory, len(nodes), step):
            at.append(offset + position)
            names.append(f"%{nodes[position].name} = {nodes[position].op.name}")
            for kind, series in values.items():
                series.append(memory.timeline[kind][position] if kind in memory.timeline else 0)
            values["inputs and constants"][-1] = memory.inputs + memory.constants
        offset += len(nodes)
    for variable in program.state.values():
        state = values[_STATE.get(variable.role, "weights and other state")]
        state[:] = [v + variable.nbytes for v in state]
    bands = [
        {"label": kind, "values": series, "colours": MEMORY[kind]} for kind, series in values.items() if any(series)
    ]
    peak = max(((m.total, name, m) for name, m in found.items() if name in graphs), key=lambda p: p[0], default=None)
    where = f"%{peak[2].at.name} ({peak[2].at.op.name}) in {peak[1]}" if peak and peak[2].at else ""
    return {"at": at, "names": names, "marks": marks, "series": bands, "where": where}


def _points(memory: GraphMemory, count: int, step: int) -> list[int]:
    series = list(memory.timeline.values())
    total = [sum(at) for at in zip(*series, strict=True)] if series else []
    return [max(range(i, min(i + step, count)), key=total.__getitem__) for i in range(0, count, step)]
