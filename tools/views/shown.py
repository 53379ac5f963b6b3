"""The subject of a view: a program, or a piece cut out of it, and the part of every node."""

from __future__ import annotations

from dataclasses import dataclass, field

from ...ir.analysis.training.anatomy import TrainingAnatomy, anatomy
from ...ir.analysis.training.gradient_path import is_fed
from ...ir.analysis.training.network import BACKWARD, FORWARD, OPTIMIZER, OTHER, RECOMPUTED, network_parts, told
from ...ir.core.errors import AnatomyError
from ...ir.core.graph import Graph, Node
from ...ir.core.predicates import is_effect, written_operands
from ...ir.core.program import Program
from ...ir.core.types import is_monad
from ...passes.step.accumulated import adding_nodes
from ..verification.report import Verification
from .session_memory import SessionMemory, session_memory

PARTS = (FORWARD, RECOMPUTED, BACKWARD, OPTIMIZER, OTHER)
"""``recomputed`` are forward nodes that run again in the backward part; ``optimizer`` is the whole update side;
``other`` orders and packages."""


@dataclass(slots=True)
class Shown:
    """``file``: where the program came from. ``anatomies`` by graph: None, with the reason in ``reasons``, where a
    graph is no whole training step. ``cut``: what the user asked to see of it (empty: all). ``verification``: what
    boost-verify found, where that was asked for and is known."""

    program: Program
    file: str
    parts: dict[Node, str] = field(default_factory=dict)
    anatomies: dict[str, TrainingAnatomy | None] = field(default_factory=dict)
    reasons: dict[str, str] = field(default_factory=dict)
    cut: str = ""
    verification: Verification | None = None
    _memory: SessionMemory | None = None

    def memory(self) -> SessionMemory:
        """The estimate; made once."""
        if self._memory is None:
            self._memory = session_memory(self.program, self.parts, self.anatomies)
        return self._memory

    def part(self, node: Node) -> str:
        return told(node, self.parts.get(node, OTHER))


def shown(program: Program, file: str) -> Shown:
    """The program with its anatomy. Linear in nodes."""
    made = Shown(program, file)
    for name, graph in program.graphs.items():
        try:
            found = made.anatomies[name] = anatomy(graph)
            made.parts.update(found.parts)
        except AnatomyError as error:
            made.anatomies[name] = None
            made.reasons[name] = part_of_cycle(program, graph) or str(error)
            made.parts.update(_parts_of_a_piece(graph))
    return made


def part_of_cycle(program: Program, graph: Graph) -> str:
    """The role of a graph in a compiled cycle, and what it leaves to others; empty for other graphs."""
    fed, adding = any(map(is_fed, graph.all_graphs())), bool(adding_nodes(graph))
    if fed and adding:
        return f"graph '{graph.name}' holds a whole window: each call accumulates gradients, and some update weights"
    if fed:
        return f"graph '{graph.name}' updates weights from accumulators: it holds no loss whose gradients they are"
    if not adding:
        return ""
    others = ", ".join(f"'{fed.name}'" for fed in program.graphs.values() if is_fed(fed))
    return f"graph '{graph.name}' accumulates gradients and updates no weight" + (f" (see {others})" * bool(others))


def _parts_of_a_piece(graph: Graph) -> dict[Node, str]:
    """Parts in a graph that is no whole training step: where state is written, what is not of the network updates."""
    parts = network_parts(graph)
    bodies = graph.all_graphs()
    if any(is_effect(node) and written_operands(node) for body in bodies for node in body):
        for body in bodies:
            for node in body:
                if node not in parts and not is_monad(node.type) and node.op.name not in ("Depend", "MakeTuple"):
                    parts[node] = OPTIMIZER
    return parts


def role_in_words(role: str) -> str:
    """A role of the state as the field calls it."""
    return "optimizer state" if role == "slot" else role


def pass_of(node: Node) -> str:
    """The pass that made or last touched a node; empty if it came from the file."""
    return node.origin.passes[-1] if node.origin and node.origin.passes else ""


def makers(shown: Shown) -> list[str]:
    """The passes that made something of what is shown: in the order of the reports, then others that nodes name."""
    named = dict.fromkeys(name for n in shown.program.all_nodes() if n.origin for name in n.origin.passes[-1:])
    order = [r.name for r in shown.program.reports if r.name in named]
    return list(dict.fromkeys([*order, *named]))
