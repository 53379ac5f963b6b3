"""Effect-chain minimisation: orders only effects that touch the same state."""

from __future__ import annotations

from ..ir.effects import Effects, summarize
from ..ir.program import Program
from ..ir.report import PassResult
from .base import Pass


class EffectChainMinimization(Pass):
    """Rebuilds the effect tokens from what every effect reads and writes.

    An exported graph chains all its updates one after the other and lists plain values that only ordered its buffers.
    Afterwards effects that touch different state share one token and may run in any order or at once; dead reads, chain
    links and packaging nodes are gone. The dependences that remain are those of the state itself (write after write,
    write after all readers, read after write), so training is preserved bit for bit.
    """

    name = "effect-chain-minimization"
    may_match_nothing = True

    def run(self, program: Program) -> PassResult:
        result = self.result()
        links_before = links_after = removed = 0
        for main in program.graphs.values():
            known = summarize(main)
            for graph in main.all_graphs():
                links_before += _links(graph)
                removed += Effects(graph, known).commit()
                links_after += _links(graph)
        result.matched = links_before
        result.changed = max(0, links_before - links_after)
        result.statistics = {"links before": links_before, "links after": links_after, "nodes removed": removed}
        result.summary = f"{links_before} token links to {links_after}, {removed} nodes removed"
        return result


def _links(graph: object) -> int:
    return sum(node.op.name == "UpdateState" for node in graph)  # type: ignore[attr-defined]
