"""The two programs of a proof on one set of terms: what stands for that which is not known, and how graphs are run."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from fractions import Fraction
from functools import cached_property

from ..analysis.derivative.calls import LinearCall, linear_calls
from ..analysis.training.network import network_parts
from ..core.graph import Graph
from ..core.names import LOCAL
from ..core.predicates import is_random
from ..core.program import Program
from ..core.wording import counted
from ..rewrite.seeds import seeds_of
from ..symbolic.execution import WORLD, Execution, Outcome, Side, Unproved
from ..symbolic.terms import AVERAGED, VARIES, Terms
from . import formulas
from .formulas.rules import Rule
from .promises import promises_of
from .rank_sums import Ranks
from .reals import Reals


class Sides:
    """``graph``: the original's, with the ``parts`` that are its network. ``kept`` and ``gone``: how many micro-batches
    of a cycle count, and how many are dropped; ``later``: how many are still to come. ``alone``: the micro-batches of a
    cycle whose one graph counts them itself, 0 for programs of several graphs. ``averaged``: whether a cycle takes
    several. ``alike``: the seeds of draws differ between the sides, and do not count. ``own``: the program's own
    states, and ``monitors`` those of them that only measure; ``lacking`` those of the original that it lost on purpose,
    ``compared`` the others of them; ``moving``: those that the network learns for itself; ``scales``: loss scales;
    ``weight``: what a micro-batch counts in the mean of its cycle, where not all count alike. ``cycles``: where the
    program is a variant of one, the state that counts cycles."""

    def __init__(self, original: Program, program: Program, terms: Terms, cycles: str):
        self.original, self.program, self.terms, self.cycles = original, program, terms, cycles
        self.graph = next(iter(original.graphs.values()))
        self.parts = network_parts(self.graph)
        self.promises = promises_of(program)
        self.alone = steps_of_one_graph(program)
        self.averaged = program.schedule.flush is not None or self.alone > 0
        self.alike = _seeds(original) != _seeds(program)
        self.execution = Execution(terms, draws_alike=self.alike, target=program.target)
        self.kept, self.gone, self.later = (terms.make(("symbol", name), (), ()) for name in "NDm")
        self.lacking = formulas.gone(original, program)
        self.compared = [name for name in original.state if name not in self.lacking]
        self.own = [name for name in program.state if name not in original.state]
        self.monitors = {name for name, variable in program.state.items() if variable.role == "monitor"}
        self.moving = self._moved_by_network()
        self.scales = {
            self.symbol(name)
            for name in self.own
            if (v := program.state[name]).role == "loss-scale" and v.shape == () and not v.data.is_zero()
        }
        self.weight: int | None = None
        self.start = {name: self.symbol(name) for name in program.state}
        self.ranks = self._ranks()

    def _moved_by_network(self) -> set[str]:
        terms = Terms()
        scratch = Execution(terms, draws_alike=self.alike, target=self.program.target)
        states = {name: terms.make(("state", name)) for name in self.original.state}
        inputs = [terms.make(("input", i)) for i in range(len(self.graph.inputs))]
        after = scratch.run(self.graph, states, inputs, Side(self.parts, only=True)).states
        return {name for name, before in states.items() if after[name] != before}

    def _ranks(self) -> Ranks | None:
        if not self.promises.over_ranks:
            return None
        if any(n.op.name == "AllReduce" for n in self.graph.all_nodes()):
            raise Unproved("the original sums over ranks itself: law missing")
        state = self.program.state
        local = [n for n in self.original.state if n in self.moving or (n in state and state[n].info.get(LOCAL))]
        each = [*self.inputs(self.graph), *map(self.symbol, local)]
        return Ranks(self.terms, each, self.kept, self.gone, alike=self.alone > 0)

    def symbol(self, name: str) -> int:
        """What a state holds at first."""
        variable = self.program.state.get(name) or self.original.state[name]
        shape = self.terms.type(variable.type)[1]
        return self.terms.make(("state", name), (), shape, None, VARIES if name in self.moving else 0)

    def world(self) -> int:
        """What was printed and sent at first."""
        return self.terms.make(("state", WORLD), (), None, None, VARIES)

    def inputs(self, graph: Graph) -> list[int]:
        """A micro-batch, as both sides take it."""
        terms = self.terms
        if len(graph.inputs) != len(self.graph.inputs):
            raise Unproved(
                f"graph '{graph.name}' takes {counted(len(graph.inputs), 'input')}, the original "
                f"{len(self.graph.inputs)}"
            )
        for mine, own in zip(self.graph.inputs, graph.inputs, strict=True):
            if mine.type != own.type:
                raise Unproved(f"input '{own.name}' is {own.type}, in the original {mine.type}")
        return [
            terms.make(("input", i), (), terms.type(v.type)[1], None, VARIES) for i, v in enumerate(self.graph.inputs)
        ]

    def run(self, graph: Graph, states: Mapping[str, int]) -> Outcome:
        """Runs a graph of the program, on a micro-batch if it takes one."""
        return self.execution.run(graph, states, self.inputs(graph) if graph.inputs else [])

    def mean(self, t: int) -> int:
        """The mean of a term over the micro-batches of a cycle."""
        return self.terms.make(("mean",), (t,), self.terms.shapes[t], self.terms.nodes[t], AVERAGED)

    def weighted(self, gradient: int) -> int:
        """The mean of a gradient times the weight of its micro-batch."""
        assert self.weight is not None
        factors = tuple(sorted(((gradient, 1), (self.weight, 1))))
        return self.mean(Reals(self.terms).term({factors: Fraction(1)}, self.terms.shapes[gradient]))

    def by_rule(self, rule: Rule, after: Mapping[str, int], *, overflow: bool = False) -> int:
        """What a state holds by its rule. ``after``: what states hold after the update."""
        given = [*(self.start[name] for name in rule.takes), *(after[name] for name in rule.after)]
        return self.execution.run(rule.overflow if overflow else rule.clean, {}, given).result[0]

    @cached_property
    def calls(self) -> dict[int, LinearCall]:
        """Of the functions that the original calls and no run follows, those that are linear. To be asked for when it
        has been run."""
        applied = self.terms.applied() if self.scales else {}
        return {applied[node]: call for node, call in linear_calls(self.graph, self.parts, applied).items()}

    def reals(
        self, opaque: Collection[int], truths: Mapping[int, bool] | None = None, positive: tuple[int, ...] = ()
    ) -> Reals:
        """Normal forms in a case. ``positive``: the numbers of micro-batches that are at least 1."""
        positive = positive or (self.kept, self.later)
        natural: tuple[int, ...] = ()
        if self.ranks is not None:  # what all ranks have counted together
            totals = self.ranks.totals
            natural, positive = positive, (*(totals.get(p, p) for p in positive), self.ranks.ranks)
        state = self.program.state
        natural = (*natural, *(self.start[n] for n in self.own if state[n].role == "counter"))
        nonzero = self.scales if self.weight is None else {*self.scales, self.mean(self.weight)}
        return Reals(
            self.terms, opaque, positive=positive, natural=natural, nonzero=nonzero, scales=self.scales,
            truths=truths, ranks=self.ranks, calls=self.calls,
        )  # fmt: skip


def steps_of_one_graph(program: Program) -> int:
    (first, *others), flush = program.schedule.cycle, program.schedule.flush
    return first.repeat if not others and flush is None and first.repeat > 1 else 0


def _seeds(program: Program) -> list[tuple[object, ...]]:
    graphs: Iterable[Graph] = program.graphs.values()
    return sorted({(n.op.name, repr(seeds_of(n))) for g in graphs for b in g.all_graphs() for n in b if is_random(n)})
