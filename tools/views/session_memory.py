"""The memory of a session of a program: the one estimate that summary, report and ``--memory`` show."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ...ir.analysis.cost.flops import computes_in, flops_by_type
from ...ir.analysis.cost.memory import UPDATE_VALUE, GraphMemory, alive_at, graph_memory, value_kinds
from ...ir.analysis.training.anatomy import TrainingAnatomy
from ...ir.core.graph import Graph, Node
from ...ir.core.program import Program
from ...ir.core.types import TensorType

if TYPE_CHECKING:
    from ...ir.analysis.cost.footprint import Footprint


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
        """``boost-inspect --memory --format json``. Of each graph: ``at``, the node where it needs most; ``alive``, the
        bytes that are in memory there, by the scope that computed them; ``types``, by element type those bytes and the
        operations of the graph; ``curve``, the bytes alive at each node."""
        from dataclasses import asdict

        graphs = {
            name: {
                "peak": at_peak(memory),
                "at": memory.at.name if memory.at else "",
                "alive": _alive(self.run[name], memory.at),
                "types": _by_type(self.run[name], memory.at),
                "curve": [memory.inputs + sum(now) for now in zip(*memory.timeline.values(), strict=True)],
            }
            for name, memory in self.graphs.items()
        }
        return {"state": self.state, "graphs": graphs, "session": asdict(self.session), "total": self.peak}


def at_peak(memory: GraphMemory) -> int:
    """Bytes of a graph's inputs and of what it has computed, where that is most; state and constants apart."""
    return memory.inputs + memory.peak


def _alive(graph: Graph, peak: Node | None) -> dict[str, int]:
    """Bytes by scope, most first, of what is in memory while ``peak`` runs."""
    found: dict[str, int] = {}
    at = next((position for position, node in enumerate(graph) if node is peak), 0)
    for node, size in alive_at(graph, at):
        scope = node.scope.rpartition("/")[0] or node.scope
        found[scope] = found.get(scope, 0) + size
    return dict(sorted(found.items(), key=lambda entry: -entry[1]))


def _by_type(graph: Graph, peak: Node | None) -> dict[str, dict[str, int]]:
    """By element type, most bytes first: what is in memory while ``peak`` runs (a tuple counts as what it is computed
    in), and the estimated operations of the whole graph."""
    alive: dict[str, int] = {}
    at = next((position for position, node in enumerate(graph) if node is peak), 0)
    for node, size in alive_at(graph, at):
        name = str(node.type.dtype) if isinstance(node.type, TensorType) else computes_in(node)
        alive[name] = alive.get(name, 0) + size
    work = flops_by_type(graph.all_nodes())
    names = sorted({*alive, *work}, key=lambda name: -alive.get(name, 0))
    return {name: {"bytes": alive.get(name, 0), "flops": work.get(name, 0)} for name in names}


def session_memory(
    program: Program, parts: Mapping[Node, str], anatomies: Mapping[str, TrainingAnatomy | None]
) -> SessionMemory:
    """``parts`` and ``anatomies``: those of :class:`.shown.Shown`. Linear in nodes."""
    from ...ir.rewrite.cpu.as_run import as_run
    from ...runtime.engine.footprint import footprint

    state: dict[str, int] = {}
    for variable in program.state.values():
        state[variable.role] = state.get(variable.role, 0) + variable.nbytes
    run = {name: as_run(graph) for name, graph in program.graphs.items()}
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
