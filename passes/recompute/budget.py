"""The plan that fits into a budget for the least extra time.

A plan says in how many pieces the forward part is cut, and what it may cost to save a byte: a minimum cut of each piece
(:mod:`.choice`) finds what runs again for less. For each number of pieces the lowest price that fits is looked for by
halving, then how many pieces need it, while the others take the price below. Each plan that is tried is written into a
copy of the program and judged by the estimate of a session's memory. Of those that fit the one that takes least time is
taken, by the times of primitives (``ir/analysis/cost/times.py``). What could not be faster than a plan that fits is not
tried.
"""

from __future__ import annotations

import os
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import inf

from ...ir.analysis.cost.footprint import footprint
from ...ir.analysis.cost.times import of_cycle, picoseconds
from ...ir.core.errors import PassError
from ...ir.core.graph import Node
from ...ir.core.program import Program
from ...ir.core.wording import counted, print_budget
from ...ir.rewrite.cpu.as_run import to_run
from ...ir.rewrite.cpu.half_kernels import with_casts
from ...ir.rewrite.effects.editing import Effects
from ...ir.rewrite.effects.readiness import by_readiness
from .candidates import Forward, forward_of, prepare
from .clones import Copies, Region, regions, run_again
from .gradients import Gradients
from .plans import Plan, Priced, blocks, cheap, kept_bytes

MARGIN = 0.05
"""By how much a session may grow beyond the estimate (docs/memory.md)."""
COUNTS = (2, 3, 4, 6, 8, 12, 16, 24, 32)
"""Into how many pieces the forward part is cut. Where everything runs again, it may also be one."""
DROPPED = 0.25
"""How much less time a plan may take than what was chosen for it, without the parts that would save nothing."""
PRICES = (0, *(32 << k for k in range(11)), 1 << 40)
"""Picoseconds that it may cost to save a byte: from nothing to anything. Adding two float32 costs about 90."""


@dataclass(frozen=True, slots=True)
class Tried:
    """A plan as it was judged: the estimate for a session in bytes, the time of a cycle beyond that before as a share
    of it, and how many nodes run again."""

    text: str
    plan: Plan | None
    bytes: int
    extra: float
    copies: int

    def line(self) -> str:
        return f"{self.text:<34} {print_budget(self.bytes):>11} {100 * self.extra:>+6.0f} %"


def fitting(program: Program, budget: int) -> tuple[Tried, list[Tried]]:
    """The plan that keeps a session of ``program`` below ``budget`` bytes, and all that were tried. PassError with the
    table if none does."""
    trials = _Trials(program)
    limit = int(budget / (1 + MARGIN))
    nothing = trials.judge("nothing", None)
    if nothing.bytes <= limit:
        return nothing, trials.tried
    for count in COUNTS:
        trials.lowest_price(limit, count)
    if not any(tried.bytes <= limit for tried in trials.tried):
        trials.of_everything()
    good = [tried for tried in trials.tried if tried.bytes <= limit]
    if not good:
        least = min(trials.tried, key=lambda tried: tried.bytes)
        lines = "\n".join(f"  {tried.line()}" for tried in trials.tried)
        raise PassError(
            f"nothing fits into {print_budget(budget)}; what was tried, with the estimate for a session and the extra "
            f"time:\n{lines}\n  A session may grow {100 * MARGIN:.0f} % beyond the estimate. The smallest budget that "
            f"works is {-(-int(least.bytes * (1 + MARGIN)) // 10**6)} MB. Smaller micro-batches need less."
        )
    return min(good, key=lambda tried: (tried.extra, tried.bytes)), trials.tried


def least(program: Program, *, little: bool = False) -> tuple[Tried, list[Tried]]:
    """The plan with the smallest estimate, all of the forward part running again, or what costs ``little`` time."""
    trials = _Trials(program)
    found = trials.of_little_time() if little else trials.of_everything()
    return found, trials.tried


def write(forward: Forward, plan: Plan) -> Copies:
    """Writes a plan into a graph."""
    done = Copies()
    found = list(regions(forward, Gradients(forward), plan(forward), done))
    done.copied = _written(forward, found)
    return done


def _written(forward: Forward, found: Sequence[Region]) -> dict[Node, Node]:
    """The copies of the nodes of regions, with which the graph is whole again."""
    graph = forward.graph
    effects = Effects(graph)
    copied = run_again(forward, found, effects)
    if copied:
        graph.sort()
        effects.list = by_readiness(graph, effects.list)
        effects.commit()
    return copied


class _Trials:
    def __init__(self, program: Program):
        self.program = program
        self.tried: list[Tried] = []
        self._before = max(of_cycle(program), 1)
        self._repeats: Counter[str] = Counter()
        for entry in program.schedule.cycle:
            self._repeats[entry.graph] += entry.repeat
        self._prepared = program.copy()
        for graph in self._prepared.graphs.values():
            prepare(graph)
        self._forwards = {name: forward_of(g, program.target) for name, g in self._prepared.graphs.items()}
        self._gradients = {name: Gradients(forward) for name, forward in self._forwards.items()}
        self._prices = Priced(self._forwards)
        self._bytes: dict[object, int] = {}

    def judge(self, text: str, plan: Plan | None) -> Tried:
        """``plan``: None for what is there. Plans that write the same are estimated once."""
        found: dict[str, list[Region]] = {}
        if plan is not None:
            for name, forward in self._forwards.items():
                found[name] = list(regions(forward, self._gradients[name], plan(forward), Copies()))
        copied = {name: [node for region in of_graph for node in region.needed] for name, of_graph in found.items()}
        extra = sum(self._repeats[name] * picoseconds(nodes, self.program.target) for name, nodes in copied.items())
        written = tuple((*region.needed,) for of_graph in found.values() for region in of_graph) if plan else None
        if written not in self._bytes:
            self._bytes[written] = self._estimate(found if plan else None)
        tried = Tried(text, plan, self._bytes[written], extra / self._before, sum(map(len, copied.values())))
        self.tried.append(tried)
        return tried

    def _estimate(self, found: Mapping[str, Sequence[Region]] | None) -> int:
        """Bytes of a session in which regions of each graph run again; None for the program as it is."""
        program = (self.program if found is None else self._prepared).copy()
        for name, regions_ in (found or {}).items():
            forward, graph = self._forwards[name], program.graphs[name]
            of = dict(zip(forward.graph.all_nodes(), graph.all_nodes(), strict=True))
            _written(forward.of_copy(graph, of), [region.of_copy(of) for region in regions_])
        for name in program.schedule.graphs():
            to_run(program.graphs[name])
        graphs = [with_casts(program.graphs[name]) for name in program.schedule.graphs()]
        return footprint(graphs, program.state_bytes, os.cpu_count() or 1).total

    def of_little_time(self) -> Tried:
        """Tries what costs little time; the best that runs anything again."""
        return self._sizes("what costs little time", cheap)

    def of_everything(self) -> Tried:
        """Tries all of the forward part; the best that runs anything again."""
        return self._sizes("all of it", blocks)

    def _sizes(self, text: str, pieces: Callable[[Forward, int], list[set[Node]]]) -> Tried:
        def of_size(count: int) -> Plan:
            return lambda forward: pieces(forward, kept_bytes(forward) // count)

        found = [self.judge(f"{text}, in {counted(count, 'piece')}", of_size(count)) for count in (1, *COUNTS)]
        return min(found, key=lambda tried: (not tried.copies, tried.bytes, tried.extra))

    def lowest_price(self, limit: int, count: int) -> None:
        """Tries prices for a number of pieces, by halving, and how many pieces need the lowest that fits. Begins with
        the highest that could take less time than what fits already."""
        last = len(PRICES) - 1
        number = max(self._prices.number(count), 1)
        steps = range(last * number + 1)
        best = min((tried.extra for tried in self.tried if tried.bytes <= limit), default=inf) * (1 + DROPPED)

        def fits(step: int) -> bool:
            return self._priced(count, *divmod(step, number)).bytes <= limit

        slower = bisect_left(steps, True, key=lambda step: self._extra(count, *divmod(step, number)) >= best)
        fastest = slower - 1
        for_all = fastest - fastest % number
        if not slower:
            return
        if fits(for_all):
            bisect_left(steps, True, hi=for_all, key=fits)
        elif for_all < fastest and fits(fastest):
            bisect_left(steps, True, lo=for_all + 1, hi=fastest, key=fits)

    def _priced(self, count: int, price: int, first: int) -> Tried:
        """A plan by the places of its price among all; the ``first`` pieces have the price above."""
        of_all, higher = _prices(price)
        text = f"{count} pieces, {_price(of_all)} a byte" + (
            f", {_price(higher)} in the first {first}" if first else ""
        )
        return self.judge(text, self._prices.plan(count, of_all, higher, first))

    def _extra(self, count: int, price: int, first: int) -> float:
        """The time of such a plan beyond that of a cycle, as a share of it, if each of its pieces saves memory."""
        times = self._prices.times(count, *_prices(price), first)
        return sum(self._repeats[name] * time for name, time in times.items()) / self._before


def _prices(place: int) -> tuple[int, int]:
    """A price by its place among all, and the one above."""
    return PRICES[place], PRICES[min(place + 1, len(PRICES) - 1)]


def _price(picoseconds: int) -> str:
    return "any time" if picoseconds == PRICES[-1] else f"{picoseconds / 1000:g} ns"
