"""Effect-chain minimisation: rebuilds the tokens from what the effects read and write."""

from __future__ import annotations

from ..ir.analysis.effects.state_access import summarize
from ..ir.core.program import Program
from ..ir.core.report import PassResult
from ..ir.core.wording import counted
from ..ir.rewrite.effects.editing import Effects
from .framework.base import Pass


class EffectChainMinimization(Pass):
    """Rebuilds the effect tokens from what every effect reads and writes.

    An exported graph chains its reads with its updates, and lists plain values that only ordered its buffers.
    Afterwards the updates stand in one sequence and the reads beside it. Dead reads, chain links and packaging nodes
    are gone. The dependences of the state itself remain: write after write, write after all readers, read after write.

    Preserves training bit for bit.

    Source: this project's own; docs/architecture.md gives the rules of the chain.
    """

    name = "effect-chain-minimization"
    may_match_nothing = True

    def run(self, program: Program) -> PassResult:
        result = self.result()
        links_before = links_after = removed = 0
        for main in program.graphs.values():
            known = summarize(main)
            for graph in main.all_graphs():
                rebuilt = Effects(graph, known).recommit()
                links_before += rebuilt.links_before
                links_after += rebuilt.links_after
                removed += rebuilt.removed
        result.matched = links_before
        result.changed = max(0, links_before - links_after)
        result.statistics = {"links before": links_before, "links after": links_after, "nodes removed": removed}
        nodes = f"{counted(abs(removed), 'node')} {'added' if removed < 0 else 'removed'}"
        result.summary = f"{counted(links_before, 'token link')} to {links_after}, {nodes}"
        return result
