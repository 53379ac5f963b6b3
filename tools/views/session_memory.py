"""The memory of a session of a program: the one estimate that summary, report and ``--memory`` show."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ...ir.analysis.cost.memory import UPDATE_VALUE, GraphMemory, graph_memory, value_kinds
from ...ir.analysis.training.anatomy import TrainingAnatomy
from ...ir.core.graph import Graph, Node
from ...ir.core.program import Program

if TYPE_CHECKING:
    from ...runtime.engine.footprint import Footprint


@dataclass(frozen=True, slots=True)
class SessionMemory:
    """``state``: bytes by role. ``run``: the graphs as a session runs them, whose order is the one that counts.
    ``graphs``: what each needs besides. ``session``: all of it together, by cause."""

    state: dict[str, int]
    run: Mapping[str, Graph]
    graphs: dict[str, GraphMemory]
    session: Footprint

    @property
    def peak(self) -> int:
        """Bytes that a process of the session grows by."""
        return self.session.total

    def to_json(self) -> dict[str, Any]:
        """``boost-inspect --memory --format json``; ``at``: the node where a graph needs most."""
        from dataclasses import asdict

        graphs = {name: {"peak": at_peak(m), "at": m.at.name if m.at else ""} for name, m in self.graphs.items()}
        return {"state": self.state, "graphs": graphs, "session": asdict(self.session), "total": self.peak}


def at_peak(memory: GraphMemory) -> int:
    """Bytes of a graph's inputs and of what it has computed, where that is most; state and constants apart."""
    return memory.inputs + memory.peak


def session_memory(
    program: Program, parts: Mapping[Node, str], anatomies: Mapping[str, TrainingAnatomy | None]
) -> SessionMemory:
    """``parts`` and ``anatomies``: those of :class:`.shown.Shown`. Linear in nodes."""
    from ...runtime.engine.footprint import as_run, footprint

    state: dict[str, int] = {}
    for variable in program.state.values():
        state[variable.role] = state.get(variable.role, 0) + variable.nbytes
    run = {name: as_run(program, name) for name in program.graphs}
    graphs = {}
    for name, graph in run.items():
        # As it runs, a graph is a copy: nodes are known by their names.
        bodies = program.graphs[name].all_graphs()
        kinds = value_kinds(program.graphs[name], parts, anatomies[name])
        known = {(body.name, node.name): kinds[node] for body in bodies for node in body if node in kinds}
        graphs[name] = graph_memory(
            graph,
            {node: known.get((body.name, node.name), UPDATE_VALUE) for body in graph.all_graphs() for node in body},
        )
    return SessionMemory(state, run, graphs, footprint(program, graphs=run))
