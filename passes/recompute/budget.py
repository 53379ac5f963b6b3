"""The plan that fits into a budget for the least extra operations.

Plans form a ladder. It begins with nothing and goes on with what costs little time, chosen in pieces of several sizes.
Then more and more pieces run again as a whole, those first that save most bytes for an operation. At the end stands
everything, in pieces of several sizes. Each plan is written into a copy of the program and judged by the estimate of a
session's memory. Among those that fit the one with the fewest extra operations is taken; of the ladder's long middle
only the first that fits is looked for, by halving.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from ...ir.analysis.cost.flops import estimated_flops
from ...ir.analysis.cost.footprint import footprint
from ...ir.core.errors import PassError
from ...ir.core.graph import Node
from ...ir.core.program import Program
from ...ir.core.wording import print_bytes
from ...ir.rewrite.cpu.as_run import as_run
from ...ir.rewrite.effects.editing import Effects
from ...ir.rewrite.effects.readiness import by_readiness
from .candidates import Forward, bytes_of, forward_of, is_view, without_writes
from .clones import Copies, run_again
from .plans import Plan, blocks, cheap, kept_bytes, root_blocks

MARGIN = 0.1
"""By how much a session may grow beyond the estimate (docs/memory.md)."""
SIZES = (2, 3, 4, 6, 8, 12, 16, 24, 32)
"""Into how many pieces the forward part is cut."""


@dataclass(frozen=True, slots=True)
class Tried:
    """A plan as it was judged: the estimate for a session in bytes, operations of a cycle beyond those before, and how
    many nodes run again."""

    text: str
    plan: Plan | None
    bytes: int
    extra: float
    copies: int

    def line(self) -> str:
        return f"{self.text:<34} {print_bytes(self.bytes):>10} {100 * self.extra:>+6.0f} %"


def fitting(program: Program, budget: int) -> tuple[Tried, list[Tried]]:
    """The plan that keeps a session of ``program`` below ``budget`` bytes, and all that were tried. PassError with the
    table if none does."""
    trials = _Trials(program)
    limit = int(budget / (1 + MARGIN))
    nothing = trials.judge("nothing", None)
    if nothing.bytes <= limit:
        return nothing, trials.tried
    little = trials.of_little_time()
    trials.first_that_fits(limit, *trials.one_by_one(little))
    trials.of_everything()
    good = [tried for tried in trials.tried if tried.bytes <= limit]
    if not good:
        least = min(trials.tried, key=lambda tried: tried.bytes)
        lines = "\n".join(f"  {tried.line()}" for tried in trials.tried)
        raise PassError(
            f"nothing fits into {print_bytes(budget)}; what was tried, with the estimate for a session and the extra "
            f"operations:\n{lines}\n  The smallest budget that works is {-(-int(least.bytes * (1 + MARGIN)) // 10**6)}"
            " MB. Smaller micro-batches need less."
        )
    return min(good, key=lambda tried: (tried.extra, tried.bytes)), trials.tried


def least(program: Program, *, little: bool = False) -> tuple[Tried, list[Tried]]:
    """The plan with the smallest estimate, all of the forward part running again, or what costs ``little`` time."""
    trials = _Trials(program)
    found = trials.of_little_time() if little else trials.of_everything()
    return found, trials.tried


def write(forward: Forward, plan: Plan) -> Copies:
    """Writes a plan into a graph."""
    graph = forward.graph
    effects = Effects(graph)
    done = run_again(forward, plan(forward), effects)
    if done:
        effects.list = by_readiness(graph, effects.list)
        effects.commit()
    return done


class _Trials:
    def __init__(self, program: Program):
        self.program = program
        self.tried: list[Tried] = []
        self._before = self._flops(program)
        self._prepared = program.copy()
        for graph in self._prepared.graphs.values():
            without_writes(graph)

    def judge(self, text: str, plan: Plan | None) -> Tried:
        """``plan``: None for what is there."""
        program = (self._prepared if plan else self.program).copy()
        copies = 0
        if plan:
            copies = sum(
                len(write(forward_of(graph, program.target), plan).copied) for graph in program.graphs.values()
            )
        extra = self._flops(program) / max(self._before, 1) - 1
        graphs = [as_run(program.graphs[name]) for name in program.schedule.graphs()]
        state = program.state_bytes
        found = Tried(text, plan, footprint(graphs, state, os.cpu_count() or 1).total, extra, copies)
        self.tried.append(found)
        return found

    def of_little_time(self) -> Tried:
        """Tries what costs little time; the best that runs anything again."""
        return self._sizes("what costs little time", cheap)

    def of_everything(self) -> Tried:
        """Tries all of the forward part; the best that runs anything again."""
        return self._sizes("all of it", blocks)

    def _sizes(self, text: str, pieces: Callable[[Forward, int], list[set[Node]]]) -> Tried:
        def of_size(count: int) -> Plan:
            return lambda forward: pieces(forward, kept_bytes(forward) // count)

        found = [self.judge(f"{text}, in {count} pieces", of_size(count)) for count in SIZES]
        return min(found, key=lambda tried: (not tried.copies, tried.bytes, tried.extra))

    def one_by_one(self, little: Tried) -> tuple[int, Callable[[int], Plan]]:
        """How many pieces there are, and the plan that runs so many of them again as a whole, and of the others what
        the plan ``little`` does."""
        graphs, target = self._prepared.graphs.values(), self.program.target
        forward = max((forward_of(graph, target) for graph in graphs), key=kept_bytes)
        count = len(root_blocks(forward))

        def ranked(pieces: Sequence[set[Node]], forward: Forward) -> list[int]:
            def worth(i: int) -> float:
                saved = sum(bytes_of(n) for n in pieces[i] if n in forward.wanted and not is_view(n))
                return -saved / (1 + estimated_flops(pieces[i]))

            return sorted(range(len(pieces)), key=worth)

        def plan(number: int) -> Plan:
            def pieces(forward: Forward) -> list[set[Node]]:
                whole = root_blocks(forward)
                chosen = set(ranked(whole, forward)[:number])
                again = {node for i in chosen for node in whole[i]}
                rest = [piece - again for piece in little.plan(forward)] if little.plan else []
                return [*(whole[i] for i in chosen), *rest]

            return pieces

        return count, plan

    def first_that_fits(self, limit: int, count: int, plan: Callable[[int], Plan]) -> None:
        """Halves the ladder from 1 to ``count`` pieces."""
        low, high = 1, count
        while low < high:
            middle = (low + high) // 2
            if self.judge(f"{middle} of {count} pieces", plan(middle)).bytes <= limit:
                high = middle
            else:
                low = middle + 1
        if count:
            self.judge(f"{low} of {count} pieces", plan(low))

    def _flops(self, program: Program) -> int:
        return sum(
            entry.repeat * estimated_flops(node for body in program.graphs[entry.graph].all_graphs() for node in body)
            for entry in program.schedule.cycle
        )
