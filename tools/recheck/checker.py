"""Checks a proof again, by other means than the prover's: it gives a number of a prime field to each term.

The certificate says what each micro-batch adds to the program's own states. The checker sees for itself that it does,
puts a random multiple of it there, runs the update, and compares each state and each result with those of the original,
whose gradients are replaced by their means where they leave the backward part. Once for finite gradients, and once for
others. The program's own states follow rules, which the certificate holds as graphs.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace
from fractions import Fraction
from functools import partial
from itertools import product
from typing import Any

from ...ir.analysis.derivative.calls import LinearCall, linear_calls
from ...ir.analysis.effects.races import races
from ...ir.analysis.training.network import network_parts
from ...ir.analysis.training.results import names_of_results
from ...ir.core.errors import Error
from ...ir.core.graph import Graph, Node
from ...ir.core.names import LOSS_SCALE, OVERFLOW, SKIPPED_CYCLES
from ...ir.core.program import Program
from ...ir.core.types import DType, TensorType
from ...ir.symbolic.execution import WORLD, Execution, Outcome, Side
from ...ir.symbolic.micro_batch_weight import WEIGHT, weight_of
from ...ir.symbolic.numbers import Mean, Numbers, Update, Val, flat, number, over_ranks
from ...ir.symbolic.prime_field import Num, exact, inverse, made, plus, random, times
from ...ir.symbolic.terms import AVERAGED, VARIES, Terms
from ...ir.text import parse_graph
from .formula import formula_of


class Wrong(Error):
    """The certificate does not hold for these programs."""


def check(document: Mapping[str, Any], original: Program, program: Program, seed: int) -> None:
    """Checks a certificate; one of a program with variants holds one of each. :class:`Wrong` where it does not hold."""
    for k, part in enumerate(document.get("variants", [document])):
        one = program
        if program.schedule.choice is not None:
            schedule = program.schedule.variant(k)
            one = replace(program, graphs={n: program.graphs[n] for n in schedule.graphs()}, schedule=schedule)
        try:
            Check(part, original, one, seed).check()
        except KeyError as error:
            raise Wrong(f"the certificate names {error}, which these programs do not have") from None


class Check:
    def __init__(self, certificate: Mapping[str, Any], original: Program, program: Program, seed: int):
        self.document, self.original, self.program, self.seed = certificate, original, program, seed
        self.graph: Graph = next(iter(original.graphs.values()))
        own = {name: v for name, v in program.state.items() if name not in original.state}
        free = ("carried", "monitor")
        self.own = [name for name, v in own.items() if v.role not in free or name in certificate["adds"]]
        """The program's own states, but for those that each micro-batch sets anew, and what only measures."""
        self.adds, self.drops = certificate["adds"], certificate["drops"]
        self.kept, self.dropped = (exact(n % 10**9 + 1) for n in random(2, seed, "counts"))
        if certificate["ranks"] is not None and not self.drops:
            self.kept = made(seed, "counts")  # another number on each rank
        if certificate["counted"]:
            self.kept = exact(certificate["counted"][1])
        self.calls: dict[int, LinearCall] = {}
        self.known: dict[Any, Num] = {}
        self.seams: dict[str, Num] = {}
        self.gradients: list[Num] = []
        self.weight: Num | None = None
        """What a micro-batch counts in the mean, where not all count alike."""
        self.now: Num | None = None
        """What the one at hand counts, which may be 0; ``weighs``: its term."""
        self.weighs = -1
        self.fixed: set[Any] = set()
        self.idle: set[Any] = set()
        self.totals: dict[Any, Num] = {}
        """What states hold that add up gradients of the weights alone: the same on all ranks, times these counts."""

    def check(self) -> None:
        self.compare_before()
        parts = network_parts(self.graph)
        self.begin(())
        network = self.run(self.graph, self.start, Side(parts, only=True))
        self.begin({name for name, t in self.start.items() if network.states[name] != t})
        network = self.run(self.graph, self.start, Side(parts, only=True))
        if self.document["weight"] is not None:
            self.weighs = weight_of(self.graph, self.document["weight"], network, self.execution)
            self.weight = self.now = number(self.numbers(None, {}).of(self.weighs))
        mean = self.run(self.graph, self.start, Side(parts, mean=self.crossing))
        applied = self.terms.applied() if self.document["scales"] else {}
        self.calls = {applied[node]: call for node, call in linear_calls(self.graph, parts, applied).items()}
        self.find_gradients(mean)
        batch = self.micro_batch(network) if self.document["averaged"] else None
        for name in self.document["updating"]:
            graph = self.program.graphs[name]
            held = dict(self.start if batch is None or graph.inputs else batch.states)
            held |= {
                n: self.terms.make(("held", n), (), self.terms.shapes[self.start[n]], None, VARIES) for n in self.adds
            }
            found = self.run(graph, held)
            cases = (True, False) if self.document["tested"] else (None,)
            weights = self.weights() if graph.inputs else [self.weight]
            for case, (kept, gone), weight in product(cases, self.ways(), weights):
                self.now = weight
                if not case or kept.exact != 0:  # where none counts, there is something that is not finite
                    given = {held[n]: self.total(n, kept, gone, last=bool(graph.inputs)) for n in self.adds}
                    numbers, moves = self.numbers(case, given), kept.exact != 0
                    if case is False and not self.document["itself"]:  # else the original says what moves
                        moves = False
                    wanted, gives = self.after(numbers, network, mean, case, moves=moves)
                    overflow = gone.exact != 0 or case is False
                    self.compare(graph, numbers, found, wanted, mean if moves else network, gives, overflow)

    def ways(self) -> list[tuple[Num, Num]]:
        """How many micro-batches of a cycle may count, and how many may be dropped."""
        some = [(self.kept, self.dropped), (exact(0), self.dropped)] if self.drops else []
        return [(self.kept, exact(0)), *some]

    def begin(self, moving: Collection[str]) -> None:
        """Symbols for what is not known; ``moving``: the states that the network changes for itself."""
        terms = self.terms = Terms(rounds=self.document["rounds"])
        self.execution = Execution(terms, draws_alike=self.document["alike"], target=self.program.target)
        states = {**self.program.state, **self.original.state}
        self.start = {
            name: terms.make(("state", name), (), terms.type(v.type)[1], None, VARIES if name in moving else 0)
            for name, v in states.items()
        }
        numbers = dict(zip(self.own, random(len(self.own), self.seed, "skipped"), strict=True))
        self.counts = {self.start[n]: exact(c % 99) for n, c in numbers.items() if states[n].role == "counter"}
        self.start[WORLD] = terms.make(("state", WORLD), traits=VARIES)

    def run(self, graph: Graph, held: Mapping[str, int], side: Side | None = None) -> Outcome:
        terms = self.terms
        inputs = [terms.make(("input", i), (), terms.type(v.type)[1], None, VARIES) for i, v in enumerate(graph.inputs)]
        return self.execution.run(graph, held, inputs, side)

    def numbers(
        self, case: bool | None, given: Mapping[int, Val], mean: Mean | None = None, update: Update | None = None
    ) -> Numbers:
        given = {**self.counts, **given}
        if self.now is not None and self.now.exact is not None:
            given[self.weighs] = self.now
        own = (case, len(self.gradients), mean or self.mean, update, self.calls)
        found = Numbers(self.terms, self.seed, given, self.known, *own)
        found.totals = dict(self.totals)
        if self.weight is not None and self.now is not None:
            found.nonzero = {x.pair for x in (self.now, times(self.kept, self.average(self.weight))) if x.exact is None}
        return found

    # -- gradients and their means -----------------------------------------------------------------------------

    def crossing(self, t: int, node: Node) -> int:
        """A gradient that leaves the backward part, as a term."""
        several = self.document["averaged"] or self.document["ranks"] is not None
        varies = several and self.terms.traits[t] & VARIES
        return self.terms.make(("mean",), (t,), self.terms.shapes[t], node, AVERAGED if varies else 0)

    def find_gradients(self, mean: Outcome) -> None:
        numbers = self.numbers(None, {})
        for t, node in mean.seams.items():
            if isinstance(node.type, TensorType) and node.type.dtype.is_float:
                value = self.seams.setdefault(node.name, number(numbers.of(t)))
                if not self.terms.traits[t] & VARIES:
                    self.fixed.add(flat(value))
        self.idle = {flat(self.seams[name]) for name in self.document["idle"] if name in self.seams}
        left = {flat(v): v for v in self.seams.values() if flat(v) not in self.idle and v.exact is None}
        self.gradients = list(left.values())
        scales = [number(numbers.of(self.start[name])) for name in self.document["scales"]]
        for i, seam in enumerate(self.gradients):
            average = self.average(seam if self.weight is None else times(seam, self.weight))
            for value in (average, seam, *(times(seam, scale) for scale in scales)):
                self.known[flat(value)] = replace(value, of=1 << i)
        for scale in scales:  # always finite: no gradient's bit
            self.known[flat(scale)] = replace(scale, of=1 << max(len(self.gradients), 1))

    def mean(self, t: int, value: Num) -> Val:
        """What the update side of the original takes for a gradient."""
        if flat(value) in self.idle:
            return exact(0)
        if flat(value) in self.fixed:
            return value
        total, count, each = value, exact(1), exact(1)
        if self.weight is not None:
            return times(self.average(times(value, self.weight)), inverse(self.average(self.weight)))
        if self.document["averaged"]:
            total, count = times(self.kept, self.average(value)), self.kept
        if self.document["ranks"] is not None:
            total, count, each = (number(over_ranks(x)) for x in (total, count, each))
        count = each if self.document["reduction"] == "sum" else count
        return times(total, inverse(count), exact(1) if self.document["ranks"] != "sum" else each)

    def average(self, value: Num) -> Num:
        """The mean over the micro-batches of one rank."""
        fixed = value.exact is not None or flat(value) in self.fixed
        mean = value if fixed else made("mean", flat(value))
        return self.known.get(flat(mean), mean)

    def total(self, name: str, kept: Num, gone: Num, *, last: bool) -> Num:
        """What a state holds before the update. A graph that takes the ``last`` micro-batch adds that one itself."""
        adds, drops = self.adds[name], self.drops.get(name, ())
        own = self.sum(adds if kept.exact != 0 else drops) if last else exact(0)
        total = self.sum(adds, kept)
        same = self.weight is None and all(seam is None or flat(self.seams[seam]) in self.fixed for seam, *_ in adds)
        if same and kept.exact != 0:
            self.totals[total.pair] = kept
        return plus(total, self.sum(drops, gone), times(own, exact(-1)))

    def sum(self, adds: Any, count: Num | None = None) -> Num:
        """What one micro-batch adds, or so many, by the mean of the gradient."""
        total, numbers = exact(0), self.numbers(None, {})
        for seam, factor, scales in adds:
            weighs = self.weight is not None and WEIGHT in scales
            scales = [s for s in scales if not (weighs and s == WEIGHT)]
            if seam not in (None, *self.seams) or not self.start.keys() >= set(scales):
                raise Wrong(f"the certificate names '{seam}' and {scales}, which are no gradient and no states")
            value = exact(1) if seam is None else self.seams[seam]
            weight = self.now if count is None else self.weight
            value = times(value, weight) if weighs and weight is not None else value
            value = value if count is None else times(count, self.average(value))
            factors = (number(numbers.of(self.start[s])) for s in scales)
            total = plus(total, times(value, exact(Fraction(factor)), *factors))
        return total

    # -- what is compared --------------------------------------------------------------------------------------

    def compare_before(self) -> None:
        """The schedule, the initial state, and the order of effects."""
        cycle, flush = self.program.schedule.cycle, self.program.schedule.flush
        updating, counted = self.document["updating"], self.document["counted"]
        names = {*(entry.graph for entry in cycle), flush or cycle[-1].graph}
        if names - {self.document["accumulating"], *updating} or not (cycle[-1].repeat == 1 or counted):
            raise Wrong("the certificate is about another schedule")
        for name, variable in self.original.state.items():
            data = self.program.state.get(name, variable).data
            if data is not variable.data and not all(map(bytes.__eq__, data.pieces(), variable.data.pieces())):
                raise Wrong(f"state '{name}' begins with another value")
        types = [v.type for v in self.graph.inputs]
        for graph in self.program.graphs.values():
            if graph.inputs and [v.type for v in graph.inputs] != types:
                raise Wrong(f"graph '{graph.name}' takes other inputs than the original")
            for race in races(graph):
                if not (race.view and race.state in self.document["loose"]):
                    raise Wrong(f"two effects race: {race}")

    def micro_batch(self, network: Outcome) -> Outcome:
        """The graph that takes a micro-batch: one that counts, and one that is dropped."""
        graph = self.program.graphs[self.document["accumulating"]]
        count, steps = self.document["counted"] or ("", 2)
        held = {**self.start, **({count: self.terms.make(("held", count), (), ())} if count else {})}
        found = self.run(graph, held)
        for at, gone, weight in product({0, steps - 2}, (True, False) if self.drops else (None,), self.weights()):
            self.now = weight
            numbers = self.numbers(None if gone is None else not gone, {held[count]: exact(at)} if count else {})
            states = {n: numbers.of(network.states[n]) for n in (*self.original.state, WORLD)}
            for name in self.own:
                added = self.sum((self.drops if gone else self.adds).get(name, ()))
                states[name] = plus(number(numbers.of(held[name])), added)
                if name in self.adds and not self.program.state[name].data.is_zero():
                    raise Wrong(f"'{name}' does not begin with 0")
            self.compare(graph, numbers, found, states, network, {}, gone is True, ended=False)
        self.now = self.weight
        return found

    def weights(self) -> list[Num | None]:
        """What a micro-batch may count: one that counts 0 adds nothing."""
        return [self.weight, *([exact(0)] if self.weight is not None else [])]

    def after(
        self, numbers: Numbers, network: Outcome, mean: Outcome, case: bool | None, *, moves: bool
    ) -> tuple[dict[str, Val], dict[str, Val]]:
        """What an update is to leave in all states, and the results that formulas give."""
        stays = {mean.states[n]: numbers.of(network.states[n]) for n in self.document["frozen"]} if moves else {}
        left = self.numbers(case, stays) if stays else numbers  # what takes a frozen weight takes it as it was
        wanted = {n: left.of((mean if moves else network).states[n]) for n in (*self.original.state, WORLD)}
        gives: dict[tuple[str, str], Val] = {}
        if self.document["formula"]:
            start = {n: number(numbers.of(self.start[n])) for n in self.original.state}
            how = (self.mean, self.execution, partial(self.numbers, case))
            changed, gives = formula_of(self.document["formula"], mean, start, *how)
            wanted |= changed if moves else {}
        wanted |= {n: numbers.of(network.states[n]) for n in self.document["frozen"]}
        wanted |= {n: exact(0) if n in self.adds else numbers.of(self.start[n]) for n in self.own}
        wanted |= {name: self.by_rule(numbers, rule, wanted, case) for name, rule in self.document["rules"].items()}
        return wanted, {name: value for (what, name), value in gives.items() if what == "result"}

    def by_rule(self, numbers: Numbers, rule: Any, wanted: Mapping[str, Val], case: bool | None) -> Val:
        """What a state holds by its rule: by what states held before, and by what they hold after the update."""
        takes, after, *texts = rule
        given = [self.terms.make(("after", name)) for name in after]
        numbers.values.update((t, wanted[name]) for t, name in zip(given, after, strict=True))
        graph = parse_graph(texts[case is False], "rule of the certificate")
        return numbers.of(self.execution.run(graph, {}, [*(self.start[name] for name in takes), *given]).result[0])

    def compare(
        self, graph: Graph, numbers: Numbers, found: Outcome, states: Mapping[str, Val], wanted: Outcome,
        more: Mapping[str, Val], overflow: bool, *, ended: bool = True,
    ) -> None:  # fmt: skip
        """States and results of a run. ``more``: results that formulas give. What else passes return says what states
        hold."""
        for name, value in states.items():
            if name in self.program.state or name == WORLD:
                equal(numbers.of(found.states[name]), value, f"'{name}' after graph '{graph.name}'")
        known = dict(zip(names_of_results(self.graph, len(wanted.result)), wanted.result, strict=False))
        names = names_of_results(graph, len(found.result))
        rules = {name: [value] for name, value in more.items()}
        rules[LOSS_SCALE] = [numbers.of(self.start[name]) for name in self.document["scales"]]
        state = self.program.state
        counts = [n for n in self.own if state[n].role == "counter" and state[n].dtype is DType.INT32]
        rules |= {OVERFLOW: [overflow], SKIPPED_CYCLES: [numbers.of(found.states[n]) for n in counts]}
        for name, t in zip(names, found.result, strict=False):
            value = numbers.of(t)
            if name in known:
                if self.terms.heads[known[name]][0] != "left out":
                    equal(value, numbers.of(known[name]), f"result '{name}' of graph '{graph.name}'")
                continue
            allowed = rules.get(name, [])
            if self.document["counted"]:  # a file of one graph does not name what passes return
                allowed = [v for of in rules.values() for v in of] + ([] if ended else [exact(0), False])
            if flat(value) not in map(flat, allowed):
                raise Wrong(f"nothing says why graph '{graph.name}' returns '{name}' as it does")


def equal(found: Val, wanted: Val, what: str) -> None:
    if flat(found) != flat(wanted):
        raise Wrong(f"the certificate does not hold: {what} is not what it should be")
