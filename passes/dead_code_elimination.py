"""Dead code elimination: what no result needs goes."""

from __future__ import annotations

from ..ir.analysis.functions.calls import forget_unreached
from ..ir.core.graph import Graph
from ..ir.core.program import CYCLE_ROLES, Program
from ..ir.core.report import PassResult
from ..ir.core.wording import counted_all
from .framework.base import Pass


class DeadCodeElimination(Pass):
    """Removes nodes, functions and state of the window that no graph's result needs.

    An effect whose token does not reach the return never ran in MindSpore either. Inputs stay, because they are the
    graph's signature. State that the file brought stays, since checkpoints hold it by name.

    Preserves training bit for bit.

    Source: reachability, as in any compiler.
    """

    name = "dead-code-elimination"
    may_match_nothing = True

    def run(self, program: Program) -> PassResult:
        result = self.result()
        nodes = functions = 0
        for graph in program.graphs.values():
            removed_nodes, removed_functions = _clean(graph)
            nodes += removed_nodes
            functions += removed_functions
        state = program.drop_state([n for n, v in program.state.items() if v.role in CYCLE_ROLES - {"loss-scale"}])
        result.matched = result.changed = nodes + functions + len(state)
        result.statistics = {"nodes": nodes, "functions": functions, "state": state}
        names = f" ({', '.join(state[:3])}{', …' if len(state) > 3 else ''})" if state else ""
        removed = counted_all((nodes, "node"), (functions, "function"), (len(state), "state variable"))
        result.summary = f"removed {removed}{names}" if removed else "every node is needed"
        return result


def _clean(main: Graph) -> tuple[int, int]:
    """Cleans a main graph and its functions, and drops the functions that it does not reach then."""
    before = main.total_nodes()
    for body in main.all_graphs():
        _sweep(body)
    dropped = forget_unreached(main)
    return before - main.total_nodes(), len(dropped)


def _sweep(graph: Graph) -> None:
    """One sweep from the back: users come after what they use, so an unused node is dead for good."""
    for node in reversed(graph):
        if not node.uses:
            graph.erase(node)
    graph.forget_unused_states()
