"""A window of micro-batches in numbers: what the original computes, the averages of its gradients, and sums of them.

Each state and each input is a random number of a prime field. The gradients of a micro-batch are numbers that follow
from these, and the average of one over the window is another random number. N micro-batches add N times the average to
a sum, by induction. N is a number too, and over ranks another one on each.
"""

from __future__ import annotations

import operator
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from functools import cached_property
from itertools import combinations_with_replacement, product
from math import isfinite
from typing import Any

from ..analysis.derivative.linearity import LinearCall, linear_calls
from ..analysis.training.network import network_parts
from ..core.graph import Graph, Node
from ..core.names import LOCAL
from ..core.predicates import is_random
from ..core.program import Program
from ..core.types import TensorType
from ..core.wording import counted
from ..rewrite.seeds import seeds_of
from ..symbolic.execution import WORLD, Execution, Outcome, Side, Unproved
from ..symbolic.terms import AVERAGED, VARIES, Terms
from .formulas import rounding
from .micro_batch_weight import WEIGHT, weight_of
from .numbers import Mean, Numbers, Shared, Update, Val, flat, number, over_ranks
from .prime_field import ONE, ZERO, Num, exact, inverse, join, made, plus, random, times
from .promises import promises_of

SEED = 0x5EED
Added = tuple[str | None, Fraction, tuple[str, ...]]
"""A summand: a gradient of the original, by its node (None: a number alone), a factor, and loss scales, by state."""


class Window:
    """``graph``: the original's, with the ``parts`` that are its network: ``network`` is what it does without its
    update side, ``step`` with averaged gradients. ``alone``: the micro-batches of a window whose one graph counts them
    itself, else 0; ``averaged``: whether a window takes several. ``alike``: the seeds of draws differ between the
    sides, and do not count. ``own``: the program's own states, and ``monitors`` those of them that only measure;
    ``scales``: loss scales. ``start``: the terms of what states hold at first. ``kept`` and ``dropped``: how many
    micro-batches count. ``weight``: what a micro-batch counts, where not all count alike, and ``now`` what the one at
    hand counts. ``cycles``: where the program is a variant of one, the state that counts windows."""

    def __init__(self, original: Program, program: Program, cycles: str = ""):
        self.original, self.program, self.cycles = original, program, cycles
        self.graph: Graph = next(iter(original.graphs.values()))
        self.parts = network_parts(self.graph)
        self.promises = promises_of(program)
        self.alone = steps_of_one_graph(program)
        self.averaged = program.schedule.flush is not None or self.alone > 0
        self.ranks = self.promises.over_ranks
        self.alike = _seeds(original) != _seeds(program)
        own = {name: v for name, v in program.state.items() if name not in original.state}
        self.own = list(own)
        self.monitors = {name for name, v in program.state.items() if v.role == "monitor"}
        self.scales = [n for n, v in own.items() if v.role == "loss-scale" and v.shape == () and not v.data.is_zero()]
        if self.ranks and any(n.op.name == "AllReduce" for n in self.graph.all_nodes()):
            raise Unproved("the original sums over ranks itself: law missing")
        offset, least = self.promises.beside
        self.offset = exact(Fraction(offset))
        if least or (offset and (self.ranks or self.alone)):
            raise Unproved("weights held above a number, or with one beside over ranks or in one graph: law missing")
        self.kept, self.dropped = (exact(n % 10**9 + 1) for n in random(2, SEED, "counts"))
        if self.alone:
            self.kept = exact(self.alone)
        self.known, self.totals = dict[Any, Num](), dict[Any, Num]()
        self.seams, self.gradients, self.factors = dict[str, Num](), dict[str, Num](), dict[str, Num]()
        self.leaving: dict[int, Num] = {}
        self.fixed, self.idle = set[Any](), set[Any]()
        self.calls: dict[int, LinearCall] = {}
        self.weight: Num | None = None
        self.now: Num | None = None
        self.weighs = -1
        self._run_original()

    # -- terms -------------------------------------------------------------------------------------------------

    def _run_original(self) -> None:
        self._begin(())
        network = self.run(self.graph, self.start, Side(self.parts, only=True))
        moving = {name for name, t in self.start.items() if network.states[name] != t}
        local = {n for n, v in self.program.state.items() if self.ranks and v.info.get(LOCAL)}
        self._begin(moving | local)
        self.network = self.run(self.graph, self.start, Side(self.parts, only=True))
        if self.promises.weight is not None:
            self.weighs = weight_of(self.graph, self.promises.weight, self.network, self.execution)
            self.weight = self.now = number(self.numbers().of(self.weighs))
        self.step = self.run(self.graph, self.start, Side(self.parts, mean=self._crossing))
        applied = self.terms.applied() if self.scales else {}
        self.calls = {applied[node]: call for node, call in linear_calls(self.graph, self.parts, applied).items()}

    def _begin(self, moving: Collection[str]) -> None:
        """Symbols for what is not known; ``moving``: the states that differ between micro-batches or ranks."""
        terms = self.terms = Terms(rounds=not rounding.asked(self.program))
        self.shared: Shared | None = None
        self.execution = Execution(terms, draws_alike=self.alike, target=self.program.target)
        states = {**self.program.state, **self.original.state}
        self.start = {
            name: terms.make(("state", name), (), terms.type(v.type)[1], None, VARIES if name in moving else 0)
            for name, v in states.items()
        }
        numbers = dict(zip(self.own, random(len(self.own), SEED, "skipped"), strict=True))
        self.counts = {self.start[n]: exact(c % 99) for n, c in numbers.items() if states[n].role == "counter"}
        self.start[WORLD] = terms.make(("state", WORLD), traits=VARIES)

    def inputs(self, graph: Graph) -> list[int]:
        """A micro-batch, as both sides take it."""
        if not graph.inputs:
            return []
        terms, wanted = self.terms, self.graph.inputs
        if len(graph.inputs) != len(wanted):
            takes = counted(len(graph.inputs), "input")
            raise Unproved(f"graph '{graph.name}' takes {takes}, the original {len(wanted)}")
        for mine, own in zip(wanted, graph.inputs, strict=True):
            if mine.type != own.type:
                raise Unproved(f"input '{own.name}' is {own.type}, in the original {mine.type}")
        return [terms.make(("input", i), (), terms.type(v.type)[1], None, VARIES) for i, v in enumerate(wanted)]

    def run(self, graph: Graph, states: Mapping[str, int], side: Side | None = None) -> Outcome:
        """Runs a graph, on a micro-batch if it takes one."""
        return self.execution.run(graph, states, self.inputs(graph), side)

    def held(self, name: str) -> int:
        """A symbol for what a state holds in the middle of a window."""
        return self.terms.make(("held", name), (), self.terms.shapes[self.start[name]], None, VARIES)

    def _crossing(self, t: int, node: Node) -> int:
        """A gradient that leaves the backward part, as a term."""
        varies = (self.averaged or self.ranks is not None) and self.terms.traits[t] & VARIES
        return self.terms.make(("mean",), (t,), self.terms.shapes[t], node, AVERAGED if varies else 0)

    # -- numbers -----------------------------------------------------------------------------------------------

    def numbers(
        self, case: int | None = None, given: Mapping[int, Val] | None = None, mean: Mean | None = None,
        update: Update | None = None,
    ) -> Numbers:  # fmt: skip
        """Numbers of terms; ``given`` has those of some. See :class:`.Numbers` for the others."""
        given = dict(given or {})
        if (
            self.now is not None and self.now.exact is not None
        ):  # a gradient that the weight is part of stays any number
            given |= {**self.leaving, self.weighs: self.now}
        if self.shared is None:
            given |= self.counts
        how = (case, len(self.gradients), mean or self.mean, update, self.calls, self.shared)
        found = Numbers(self.terms, SEED, given, self.known, *how)
        found.totals = dict(self.totals)
        if self.weight is not None and self.now is not None:
            total = times(self.kept, self.average(self.weight))
            counts = (self.now, total, number(over_ranks(total)))
            found.nonzero = {x.pair for c in counts for x in (c, plus(c, self.offset)) if x.exact is None}
        return found

    def find_gradients(self, idle: Collection[int]) -> None:
        """Gives each gradient its number. ``idle``: gradients that no update takes, in whose place stands 0."""
        numbers, seams = self.numbers(), self.step.seams
        for t, node in seams.items():
            if isinstance(node.type, TensorType) and node.type.dtype.is_float:
                self.leaving[t] = number(numbers.of(t))
                value = self.seams.setdefault(node.name, self.leaving[t])
                if not self.terms.traits[t] & VARIES:
                    self.fixed.add(flat(value))
        self.idle = {flat(self.seams[seams[t].name]) for t in idle if seams[t].name in self.seams}
        left = {flat(v): (name, v) for name, v in self.seams.items() if flat(v) not in self.idle and v.exact is None}
        self.gradients = dict(left.values())
        self.factors = {name: number(numbers.of(self.start[name])) for name in self.scales}
        scales = list(self.factors.values())
        count = max(len(self.gradients), 1)
        for i, seam in enumerate(self.gradients.values()):
            average = self.average(seam if self.weight is None else times(seam, self.weight))
            bits = [(average, 1 << i), *((times(seam, s), 1 << count + i) for s in (ONE, *scales))]
            for value, bit in bits:
                self.known[flat(value)] = replace(value, of=bit | self.known.get(flat(value), ZERO).of)
        # Always finite: no gradient's bit. Where a weight is not, what it multiplies is not either.
        for scale in [*scales, *([self.weight, self.average(self.weight)] if self.weight is not None else [])]:
            self.known[flat(scale)] = replace(scale, of=1 << 2 * count)
        self.shared = Shared(self.terms, [self.weighs])
        self.shared.values |= self.counts

    def mean(self, t: int, value: Num) -> Val:
        """What the update side of the original takes for a gradient."""
        if flat(value) in self.idle:
            return ZERO
        if flat(value) in self.fixed:
            return value
        total, count, each = value, ONE, ONE
        if self.averaged:
            weight = ONE if self.weight is None else self.weight
            total, count = (times(self.kept, self.average(x)) for x in (times(value, weight), weight))
            total = plus(total, times(self.offset, self.kept, self.average(value)))
            count = plus(count, self.offset)
        if self.ranks is not None:
            total, count, each = (number(over_ranks(x)) for x in (total, count, each))
        count = each if self.promises.reduction == "sum" else count
        return times(total, inverse(count), ONE if self.ranks != "sum" else each)

    def average(self, value: Num) -> Num:
        """The mean over the micro-batches of one rank."""
        fixed = value.exact is not None or flat(value) in self.fixed
        mean = value if fixed else made("mean", flat(value))
        return self.known.get(flat(mean), mean)

    # -- sums --------------------------------------------------------------------------------------------------

    def sum(self, adds: Iterable[Added], count: Num | None = None) -> Num:
        """What one micro-batch adds, or so many, by the mean of the gradient."""
        total = ZERO
        for seam, factor, scales in adds:
            value = ONE if seam is None else self.seams[seam]
            weight = self.now if count is None else self.weight
            value = times(value, weight) if weight is not None and WEIGHT in scales else value
            value = value if count is None else times(count, self.average(value))
            factors = (self.factors[s] for s in scales if s != WEIGHT)
            total = plus(total, times(value, ONE if factor == 1 else exact(factor), *factors))
        return total

    def total(self, adds: Iterable[Added], drops: Iterable[Added], kept: Num, gone: Num, last: Num) -> Num:
        """What a state holds before an update: so many times what micro-batches add that count and that are dropped,
        without the ``last`` one, which the graph adds itself."""
        total = self.sum(adds, kept)
        same = self.weight is None and all(seam is None or flat(self.seams[seam]) in self.fixed for seam, *_ in adds)
        if same and kept.exact != 0:
            self.totals[total.pair] = kept
        return join(operator.sub, plus(total, self.sum(drops, gone)), last)

    @cached_property
    def ways(self) -> list[tuple[tuple[str, ...], Fraction]]:
        """What the gradients of a micro-batch may be multiplied with: loss scales, its weight, and the numbers that
        passes were asked for."""
        asked = [x for r in self.program.reports for x in r.options.values() if isinstance(x, (int, float)) and x]
        factors = dict.fromkeys([Fraction(1), *(Fraction(x) for x in asked if isfinite(x))])
        names = [*self.scales, *([WEIGHT] if self.weight is not None else [])]
        chosen = [c for n in range(3) for c in combinations_with_replacement(names, n)]
        return [(c, x) for c in chosen for x in factors]

    def added(self, name: str, value: Num, seams: Sequence[int]) -> list[Added]:
        """What a micro-batch adds to a state, of what its role and its weight claim: one of the ``seams`` of that
        weight, or their sum, or numbers alone. Unproved where it is none."""
        if value.pair == (0, 0):
            return []
        names = list(dict.fromkeys(self.step.seams[t].name for t in seams))
        claims: list[list[str | None]] = [[n] for n in names] or [[None]]
        claims += [[*names]] if len(names) > 1 else []
        for (scales, factor), claim in product(self.ways, claims):
            adds: list[Added] = [(seam, factor, scales) for seam in claim if seam is None or seam in self.seams]
            if self.offset.exact and scales == (WEIGHT,) and any(seam is not None for seam in claim):
                adds += [(seam, factor * self.offset.exact, ()) for seam, *_ in adds]
            if adds and flat(self.sum(adds)) == value.pair:
                return adds
        what = f"the gradient of weight '{self.program.state[name].weight}'" if names else "a number"
        raise Unproved(f"a micro-batch adds something else to '{name}' than {what}, which it is claimed to add up")


def steps_of_one_graph(program: Program) -> int:
    """The micro-batches of a window whose one graph counts them itself; 0 for other programs."""
    (first, *others), flush = program.schedule.cycle, program.schedule.flush
    return first.repeat if not others and flush is None and first.repeat > 1 else 0


def _seeds(program: Program) -> list[tuple[object, ...]]:
    graphs: Iterable[Graph] = program.graphs.values()
    return sorted({(n.op.name, repr(seeds_of(n))) for g in graphs for b in g.all_graphs() for n in b if is_random(n)})
