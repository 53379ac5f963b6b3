"""Proves that a program trains as the training graph that it was made from, for all inputs, states and numbers of
micro-batches.

The claim is one of cycles. All but the last micro-batch of a cycle run the network side of the original. The last one
runs the whole original, but its update side takes, for each gradient, the mean over the micro-batches of the cycle. A
cycle of one micro-batch is the original itself. What passes change on purpose is part of the claim
(:mod:`.promises`).

Where a cycle has N micro-batches, N stays a symbol. One run of the graph that takes a micro-batch shows what it adds
to each state; by induction the states hold N times the mean of it when the update begins.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from fractions import Fraction

from ..analysis.training.network import network_parts
from ..core.data import Data
from ..core.graph import Graph, Node
from ..core.names import LOCAL
from ..core.naming import result_names
from ..core.predicates import is_random
from ..core.program import Program
from ..core.types import DType, TensorType
from ..core.wording import counted
from ..rewrite.seeds import seeds_of
from . import anatomy, formulas
from .changed import Changed, changed
from .execution import WORLD, Execution, Outcome, Side, Unproved
from .formulas import freeze, less_bn, loss_scale
from .polynomial import Polynomial, add, times
from .promises import Promises, promises_of
from .races import Race, races
from .ranks import Ranks
from .reals import Reals
from .terms import VARIES, Terms
from .variants import Frozen, idle_gradients, prove_variants, unmoved, without
from .verdict import ORDER, OWN, PURPOSE, REALS, RESULT, SAME, STATE, UNPROVED, Added, Proof, Verdict


def prove(original: Program, program: Program) -> tuple[Proof, Terms]:
    """The verdicts, and the terms that they speak of."""
    terms = Terms()
    if program.schedule.choice is None:
        return _prove(original, program, terms, "")[0], terms
    return prove_variants(original, program, _prove, terms), terms


def _prove(original: Program, program: Program, terms: Terms, cycles: str) -> tuple[Proof, Frozen]:
    prover = _Prover(original, program, terms, cycles)
    try:
        prover.run()
    except Unproved as reason:
        prover.give_up(str(reason))
    return prover.proof, prover.frozen


@dataclass(frozen=True)
class _Tests:
    """``own``: the tests for finite values that only the program makes; ``finite`` and ``spoiled``: what is true where
    all that is tested is finite, and where something is not; ``values``: what each test looks at."""

    own: set[int]
    finite: dict[int, bool]
    spoiled: dict[int, bool]
    values: dict[int, int]


@dataclass(frozen=True)
class _MicroBatch:
    """What a micro-batch adds to each of the program's own states: one that counts, and one that is dropped."""

    kept: dict[str, Polynomial | None]
    dropped: dict[str, Polynomial | None] | None
    tested: _Tests | None
    reals: Reals


@dataclass(frozen=True)
class _Scenario:
    """How a cycle went before its update: the numbers of micro-batches that count (``kept``) and that were dropped
    (``gone``), and what the last one is that the updating graph takes itself: 1 kept, -1 dropped, 0 none.
    ``lost``: some were dropped. ``still``: nothing is to move."""

    where: str
    kept: Mapping[int, int]
    gone: Mapping[int, int] = field(default_factory=dict)
    last: int = 0
    positive: tuple[int, ...] = ()
    truths: Mapping[int, bool] = field(default_factory=dict)
    lost: bool = False
    still: bool = False


@dataclass
class _Expected:
    """What the original says: ``raw`` as it stands, ``network`` without its update side, ``mean`` with averaged
    gradients."""

    raw: Outcome
    network: Outcome
    mean: Outcome
    opaque: set[int] = field(default_factory=set)


@dataclass(frozen=True)
class _Turn:
    """One run of an updating graph, and what it is compared with."""

    graph: Graph
    found: Outcome
    start: Mapping[str, int]
    expected: _Expected
    results: bool = False
    adding: set[str] = field(default_factory=set)
    scenario: _Scenario | None = None


class _Prover:
    def __init__(self, original: Program, program: Program, terms: Terms, cycles: str):
        """``cycles``: where the program is a variant of one, the state that counts cycles."""
        self.original = original
        self.program = program
        self.graph = next(iter(original.graphs.values()))
        self.terms, self.cycles = terms, cycles
        self.frozen = Frozen()
        self.promises: Promises = promises_of(program)
        self.alone = _steps_of_one_graph(program)
        """Micro-batches of a cycle whose one graph counts them itself; 0 for programs of several graphs."""
        self.proof = Proof(self._claim())
        self.alike = self._seeds_differ()
        self.execution = Execution(self.terms, draws_alike=self.alike, target=program.target)
        self.n = self.terms.make(("symbol", "N"), (), ())
        self.dropped = self.terms.make(("symbol", "D"), (), ())
        self.averaged = program.schedule.flush is not None or self.alone > 0
        self.parts = network_parts(self.graph)
        self.changed = Changed()
        self.gone = less_bn.gone(original, program)
        self.compared = [name for name in original.state if name not in self.gone]
        self.moving: set[str] = set()
        self.scaled: set[str] = set()
        self.ranks: Ranks | None = None
        self.later = self.terms.make(("symbol", "m"), (), ())
        self.before: dict[str, int] = {}
        """What states hold before a micro-batch that does not end the cycle, where that is known."""
        self.scales = {
            self._symbol(name)
            for name, v in program.state.items()
            if v.role == "loss-scale" and name not in original.state and v.shape == () and not v.data.is_zero()
        }

    def give_up(self, reason: str) -> None:
        known = {(v.what, v.name) for v in self.proof.verdicts}
        for name in self.original.state:
            if (STATE, name) not in known:
                self.proof.verdicts.append(Verdict(STATE, name, UNPROVED, detail=reason))
        if not self.original.state:
            self.proof.verdicts.append(Verdict(ORDER, "program", UNPROVED, detail=reason))

    def _claim(self) -> str:
        n = self.program.micro_batches()
        if n <= 1 and self.program.schedule.flush is None:
            if self.promises.over_ranks:
                how = self.promises.over_ranks
                return (
                    "each step updates every state as the original's step does from the "
                    f"{how} of the gradients of all ranks, however many there are, and returns what the original's does"
                )
            return "each step leaves in every state, and returns, what the original's step does"
        how = {"mean": "mean", "sum": "sum", "weighted": "weighted mean"}[self.promises.reduction]
        cycle = (
            f"a cycle of {counted(n, 'micro-batch')}"
            if self.alone
            else f"a cycle of any number of micro-batches (here {n})"
        )
        over = ", over all ranks, however many there are," if self.promises.over_ranks else ""
        return cycle + (
            " updates each state as the original's update side does "
            f"from the {how} of its own gradients{over or ','} and each micro-batch moves the network's own state as "
            "the original does"
        )

    # -- the two sides -----------------------------------------------------------------------------------------

    def run(self) -> None:
        self._order()
        if unstated := formulas.missing(self.program):
            raise Unproved(f"pass '{unstated}' changes training on purpose, and no formula says how: law missing")
        self._initial()
        expected = self._expected()
        if self.averaged or self.changed.statement is not None:
            self.proof.trusted.append(anatomy.trusted(self.graph, self.parts))
        schedule = self.program.schedule
        if schedule.search is not None:
            raise Unproved("the program searches along a line: law missing for its trials")
        graphs = self.program.graphs
        taking = [e for e in schedule.cycle if graphs[e.graph].inputs]
        if not taking or len(schedule.cycle) > 2:
            raise Unproved("a schedule of this form has no law")
        if self.alone:
            self._self_contained(graphs[schedule.cycle[0].graph], expected)
            return
        if len(schedule.cycle) == 1 and schedule.flush is None:
            if schedule.cycle[0].repeat != 1:
                raise Unproved("a graph that runs several times a cycle without a count of them")
            self._step(graphs[schedule.cycle[0].graph], expected)
            return
        self._cycle(expected)

    def _expected(self) -> _Expected:
        graph, execution = self.graph, self.execution
        scratch = Execution(Terms(), draws_alike=self.alike, target=self.program.target)
        first = scratch.run(
            graph,
            {n: scratch.terms.make(("state", n)) for n in self.original.state},
            [scratch.terms.make(("input", i)) for i in range(len(graph.inputs))],
            Side(self.parts),
        )
        self.moving = {name for name, who in first.writer.items() if who in ("network", "both")}
        states = {name: self._symbol(name) for name in self.original.state}
        inputs = self._inputs(graph)
        if self.promises.over_ranks:
            if any(n.op.name == "AllReduce" for n in graph.all_nodes()):
                raise Unproved("the original sums over ranks itself: law missing")
            local = [
                t
                for n, t in states.items()
                if n in self.moving or (n in self.program.state and self.program.state[n].info.get(LOCAL))
            ]
            self.ranks = Ranks(self.terms, [*inputs, *local], self.n, self.dropped, alike=self.alone > 0)
        raw = execution.run(graph, states, inputs, Side(self.parts))
        network = execution.run(graph, states, inputs, Side(self.parts, only=True))
        mean = execution.run(graph, states, inputs, Side(self.parts, mean=self._mean()))
        constants = {t for t in mean.seams if self.terms.heads[t][0] == "const"}
        opaque = {*raw.network, *network.network} - constants
        if self.cycles:
            self.frozen = unmoved(self.original, self.program, states, mean, execution, inputs)
            idle = idle_gradients(self.frozen, mean, self.terms, self._reals(opaque))
            self.proof.idle = sorted({mean.seams[t].name for t in idle})
            mean = execution.run(graph, states, inputs, Side(self.parts, mean=self._mean(idle)))
            mean = without(self.original, self.frozen.names, mean, network, self.terms, opaque)
            self.proof.frozen = [n for n in mean.states if self.frozen.holds(self.original.state.get(n), n)]
        mean, self.changed = changed(self.original, self.program, mean, states, execution, self._reals(opaque))
        self.proof.stated = [*less_bn.state(self.original, self.program), *self.changed.stated]
        self.proof.formula = self.changed.document()
        return _Expected(raw, network, mean, opaque)

    def _mean(self, idle: Collection[int] = ()) -> Callable[[int, Node], int]:
        """``idle``: gradients that no update takes, in whose place stands 0."""

        def mean(t: int, node: Node) -> int:
            if t in idle:
                return self.terms.make(("sum", self.terms.shapes[t], ()), (), self.terms.shapes[t])
            if not self.terms.traits[t] & VARIES:
                return t
            made, factors = t, list[tuple[int, int]]()
            if self.ranks is not None:
                made = self.ranks.mean(t)
                if self.averaged and self.promises.reduction == "sum":
                    factors = [(self.ranks.all_kept, 1), (self.ranks.ranks, -1)]
                if self.promises.over_ranks == "sum":
                    factors = [*factors[:1], *([] if factors else [(self.ranks.ranks, 1)])]
            elif self.averaged:
                made = self.terms.make(("mean",), (t,), self.terms.shapes[t], node, 2)
                factors = [(self.n, 1)] if self.promises.reduction == "sum" else []
            if factors and self.alone:
                return self._product({(*factors[1:], (made, 1)): Fraction(self.alone)}, made)
            return self._product({(*factors, (made, 1)): Fraction(1)}, made) if factors else made

        return mean

    def _product(self, p: Polynomial, like: int) -> int:
        ordered = {tuple(sorted(m)): c for m, c in p.items()}
        return Reals(self.terms).term(ordered, self.terms.shapes[like])

    def _symbol(self, name: str) -> int:
        variable = self.program.state.get(name) or self.original.state[name]
        shape = self.terms.type(variable.type)[1]
        return self.terms.make(("state", name), (), shape, None, VARIES if name in self.moving else 0)

    def _inputs(self, graph: Graph) -> list[int]:
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

    def _seeds_differ(self) -> bool:
        def seeds(graphs: Iterable[Graph]) -> list[tuple[object, ...]]:
            return sorted(
                {(n.op.name, repr(seeds_of(n))) for g in graphs for b in g.all_graphs() for n in b if is_random(n)}
            )

        return seeds(self.original.graphs.values()) != seeds(self.program.graphs.values())

    # -- what holds before any graph runs ----------------------------------------------------------------------

    def _order(self) -> None:
        """Races of the program; those on values that the original already leaves to copies of Loads do not count."""
        loose = {r.state for r in races(self.graph) if r.view}
        self.proof.loose = sorted(loose)
        self.racing: list[Race] = []
        for graph in self.program.graphs.values():
            for race in races(graph):
                if not (race.view and race.state in loose):
                    self.racing.append(race)
                    self.proof.verdicts.append(
                        Verdict(ORDER, race.state, UNPROVED, detail=f"two effects race: {race}", graph=graph.name)
                    )

    def _initial(self) -> None:
        for name, variable in self.original.state.items():
            mine = self.program.state.get(name)
            if name in self.gone:
                continue
            if mine is None:
                self._say(Verdict(STATE, name, UNPROVED, detail="the program has no such state"))
                raise Unproved(f"the program has no state '{name}': law missing for networks that were changed")
            if (mine.dtype, mine.shape) != (variable.dtype, variable.shape):
                raise Unproved(f"state '{name}' is {mine.type}, in the original {variable.type}")
            if not _same_bytes(mine.data, variable.data):
                self._say(Verdict(STATE, name, UNPROVED, detail="the program begins with another value of it"))

    def _say(self, verdict: Verdict) -> None:
        self.proof.verdicts.append(verdict)

    def _failed(self, name: str) -> bool:
        return any(v.what == STATE and v.name == name and v.kind == UNPROVED for v in self.proof.verdicts)

    # -- one micro-batch a cycle -------------------------------------------------------------------------------

    def _step(self, graph: Graph, expected: _Expected) -> None:
        start = {name: self._symbol(name) for name in self.program.state}
        found = self.execution.run(graph, start, self._inputs(graph))
        self.proof.updating = [graph.name]
        self._judge(_Turn(graph, found, start, expected, results=True))

    def _self_contained(self, graph: Graph, expected: _Expected) -> None:
        """One graph for each micro-batch, which updates where its count says that this is the last one. Before, ``m``
        micro-batches are still to come behind it, at least 1; then none."""
        count, steps = self.program.schedule.count, self.alone
        if count is None or count not in self.program.state:
            raise Unproved("a graph that runs several times a cycle without a count of them")
        start = {name: self._symbol(name) for name in self.program.state}
        self.before[count] = self._product({(): Fraction(steps - 1), ((self.later, 1),): Fraction(-1)}, start[count])
        run = self.execution.run(graph, {**start, **self.before}, self._inputs(graph))
        batch = self._micro_batch(graph, run, expected)
        if batch.dropped is not None:
            raise Unproved("a self-contained program that drops micro-batches has no law")
        self._note(batch, graph, [graph.name], expected)
        self.proof.counted = (count, steps)
        self.before.clear()
        self._update(graph, expected, run, start, batch)

    # -- cycles ------------------------------------------------------------------------------------------------

    def _cycle(self, expected: _Expected) -> None:
        schedule, graphs = self.program.schedule, self.program.graphs
        last = schedule.cycle[-1].graph
        updating = list(dict.fromkeys([last, *([schedule.flush] if schedule.flush else [])]))
        taking = next((g for g in graphs if g not in updating and graphs[g].inputs), None)
        if taking is None or (len(schedule.cycle) == 2 and schedule.cycle[0].graph != taking):
            raise Unproved("a schedule of this form has no law")
        if schedule.cycle[-1].repeat != 1:
            raise Unproved(f"the schedule updates {schedule.cycle[-1].repeat} times a cycle")
        start = {name: self._symbol(name) for name in self.program.state}
        run = self.execution.run(graphs[taking], start, self._inputs(graphs[taking]))
        batch = self._micro_batch(graphs[taking], run, expected)
        self._note(batch, graphs[taking], updating, expected)
        for name in updating:
            self._update(graphs[name], expected, run, start, batch)

    def _note(self, batch: _MicroBatch, graph: Graph, updating: list[str], expected: _Expected) -> None:
        """Notes what a micro-batch adds, for the checker, and that it begins with 0."""
        count = self.program.schedule.count
        self.proof.accumulating, self.proof.updating = graph.name, updating
        self.proof.adds = {
            name: self._adds(name, growth, expected) for name, growth in batch.kept.items() if growth is not None
        }
        if any(scales for adds in self.proof.adds.values() for _, _, scales in adds):
            self.scaled = {"linear"}
        if count is not None and self.proof.adds.get(count) != [(None, "1", ())]:
            detail = "the schedule counts micro-batches by it, and a micro-batch does not add 1"
            self._say(Verdict(STATE, count, UNPROVED, (), detail, graph.name))
        if batch.dropped is not None:
            gone = batch.dropped
            self.proof.drops = {name: self._adds(name, gone[name] or {}, expected) for name in self.proof.adds}
        for name, growth in batch.kept.items():
            if growth is not None and not self.program.state[name].data.is_zero():
                self._say(Verdict(STATE, name, UNPROVED, detail="it is added to, and does not begin with 0"))

    def _micro_batch(self, graph: Graph, run: Outcome, expected: _Expected) -> _MicroBatch:
        """What the graph that takes a micro-batch does to the original's state, returns, and adds to the program's own
        state; by cases where it tests its gradients."""
        reals = self._reals(expected.opaque)
        for name in self.program.state:
            reals.form(run.states[name])
        for term in run.result:
            reals.form(term)
        tested = self._tests(reals, set())
        if self.alone and tested is not None:  # tests of the update, which does not come to pass
            forms = self.terms.below([reals.form(t) for t in (*run.states.values(), *run.result)])
            tested = tested if tested.own.intersection(forms) else None
        cases: list[tuple[str, dict[int, bool]]] = [("", {})]
        if tested is not None:
            self._cover(tested, reals, expected, graph, averaged=False)
            cases = [("where all gradients are finite", tested.finite), ("where one is not", tested.spoiled)]
        grown: list[dict[str, Polynomial | None]] = []
        for where, truths in cases:
            reals = self._reals(expected.opaque, truths)
            for name in (*self.compared, WORLD):
                wanted = expected.network.states[name]
                if not self._equal(wanted, run.states[name], reals):
                    detail = f"in a micro-batch that does not end the cycle {where}".strip()
                    self._differ(STATE, name, wanted, run.states[name], reals, graph, detail)
            spoiled = None if tested is None else bool(truths) and truths is tested.spoiled
            self._returned(graph, run, expected.network, reals, where, run.states, None, spoiled)
            own = [n for n in self.program.state if n not in self.original.state]
            for name in own:
                added = self._growth(name, run.states[name], reals) is not None
                left = reals.form(run.states[name]) == self._symbol(name)
                if not (added or left or self.program.state[name].role == "carried"):
                    detail = "a micro-batch changes it, and does not add to it"
                    self._say(Verdict(STATE, name, UNPROVED, (), detail, graph.name, None, run.states[name]))
            grown.append({name: self._growth(name, run.states[name], reals) for name in own})
        for name in grown[0]:
            if len(grown) > 1 and (grown[0][name] is None) != (grown[1][name] is None):
                for g in grown:
                    g[name] = g[name] or {} if run.states[name] != self._symbol(name) else None
        return _MicroBatch(grown[0], grown[1] if len(grown) > 1 else None, tested, reals)

    def _adds(self, name: str, growth: Polynomial, expected: _Expected) -> list[Added]:
        adds: list[Added] = []
        for monomial, c in growth.items():
            scales, seam = list[str](), None
            for atom, e in monomial:
                if atom in self.scales and e > 0:
                    scales += [str(self.terms.heads[atom][1])] * e
                elif atom in expected.mean.seams and seam is None and e == 1:
                    seam = expected.mean.seams[atom].name
                else:
                    raise Unproved(f"what is added to '{name}' is no multiple of a gradient: law missing")
            adds.append((seam, str(c), tuple(scales)))
        return adds

    def _growth(self, name: str, term: int, reals: Reals) -> Polynomial | None:
        """What a micro-batch adds to one of the program's own states; None where it does not add."""
        symbol = self._symbol(name)
        if term == symbol:
            return None
        p = dict(reals.polynomial(term))
        if self.alone and reals.form(term) == symbol:
            return None  # only an update changes it
        if name in self.before:
            for monomial, c in reals.polynomial(self.before[name]).items():
                add(p, monomial, -c)
            return p
        if p.pop(((symbol, 1),), None) != 1:
            return None
        return p

    def _update(
        self, graph: Graph, expected: _Expected, run: Outcome, start: Mapping[str, int], batch: _MicroBatch
    ) -> None:
        fused = bool(graph.inputs)
        n, d = self.n, self.dropped
        scenarios: list[_Scenario]
        if batch.dropped is None:
            scenarios = [_Scenario("", kept={n: 1}, last=1 if fused else 0, positive=(n,))]
        else:
            assert batch.tested is not None
            finite, spoiled = batch.tested.finite, batch.tested.spoiled
            every, some, none = "where all micro-batches are kept", "where some are kept", "where none is kept"
            if fused:
                scenarios = [
                    _Scenario(every, {n: 1}, {}, 1, (n,), finite),
                    _Scenario(some, {n: 1}, {d: 1}, 1, (n, d), finite, lost=True),
                    _Scenario(some, {n: 1}, {d: 1}, -1, (n, d), spoiled, lost=True),
                    _Scenario(none, {}, {d: 1}, -1, (d,), spoiled, lost=True, still=True),
                ]
            else:
                scenarios = [
                    _Scenario(every, {n: 1}, {}, 0, (n,)),
                    _Scenario(some, {n: 1}, {d: 1}, 0, (n, d), lost=True),
                    _Scenario(none, {}, {d: 1}, 0, (d,), lost=True, still=True),
                ]
        for scenario in scenarios:
            states: dict[str, int] = {}
            for name, symbol in start.items():
                growth = None if name in self.original.state else batch.kept[name]
                if name in self.original.state:
                    states[name] = symbol if fused else run.states[name]
                elif growth is not None:
                    states[name] = self._total(name, batch, scenario)
                elif run.states[name] == symbol or fused:
                    states[name] = symbol
                else:
                    states[name] = batch.reals.form(run.states[name])
            states[WORLD] = self._world() if fused else run.states[WORLD]
            inputs = self._inputs(graph) if fused else []
            found = self.execution.run(graph, states, inputs)
            adding = {name for name, growth in batch.kept.items() if growth is not None}
            self._judge(_Turn(graph, found, start, expected, adding=adding, scenario=scenario))

    def _world(self) -> int:
        return self.terms.make(("state", WORLD), (), None, None, VARIES)

    def _total(self, name: str, batch: _MicroBatch, scenario: _Scenario) -> int:
        """What the state holds when the update begins: so many times the mean of what a micro-batch adds. An updating
        graph that takes the last micro-batch by itself begins without what that one adds."""
        terms = self.terms
        total: Polynomial = {}
        for growth, number, last in (
            (batch.kept[name], scenario.kept, scenario.last == 1),
            ((batch.dropped or {}).get(name), scenario.gone, scenario.last == -1),
        ):
            for monomial, c in (growth or {}).items():
                varying = tuple((a, e) for a, e in monomial if terms.traits[a] & VARIES)
                fixed = tuple((a, e) for a, e in monomial if not terms.traits[a] & VARIES)
                for a, _ in fixed:
                    own = terms.heads[a][0] == "state" and terms.heads[a][1] not in self.original.state
                    if own and a not in self.scales:
                        raise Unproved(f"what is added to '{name}' depends on another state of the program")
                if len(varying) > 1 or (varying and varying[0][1] != 1):
                    raise Unproved(f"what is added to '{name}' is a product of values of the micro-batch: law missing")
                mean = fixed
                if varying:
                    atom = varying[0][0]
                    made = terms.make(("mean",), (atom,), terms.shapes[atom], terms.nodes[atom], 2)
                    mean = times(fixed, ((made, 1),))
                for symbol in number:
                    if self.alone:
                        add(total, mean, c * self.alone)
                    else:
                        add(total, times(mean, ((symbol, 1),)), c)
                if last:
                    add(total, monomial, -c)
        return Reals(terms).term(total, terms.shapes[self._symbol(name)])

    # -- comparing ---------------------------------------------------------------------------------------------

    def _reals(self, opaque: set[int], truths: Mapping[int, bool] | None = None, turn: _Turn | None = None) -> Reals:
        positive = (self.n, self.later) if turn is None or turn.scenario is None else turn.scenario.positive
        natural: tuple[int, ...] = ()
        if self.ranks is not None:  # what all ranks have counted together
            totals = self.ranks.totals
            natural, positive = positive, (*(totals.get(p, p) for p in positive), self.ranks.ranks)
        return Reals(
            self.terms, opaque, positive=positive, natural=natural, nonzero=self.scales, scales=self.scales,
            truths=truths, ranks=self.ranks,
        )  # fmt: skip

    def _judge(self, turn: _Turn) -> None:
        """Compares what an updating graph does with what it should; by cases where it tests its gradients."""
        expected, found = turn.expected, turn.found
        given = dict(turn.scenario.truths) if turn.scenario is not None else {}
        wanted = self._reals(expected.opaque, given, turn)
        for term in (*expected.mean.states.values(), *expected.mean.result):
            wanted.form(term)
        reals = self._reals(expected.opaque, given, turn)
        for term in (*found.states.values(), *found.result):
            reals.form(term)
        still = turn.scenario is not None and turn.scenario.still
        where = turn.scenario.where if turn.scenario is not None else ""
        tested = self._tests(reals, set(wanted.tests))
        if tested is None:
            self._case(turn, given, still, where, overflow=True if still else None)
            return
        if not still:
            self._cover(tested, reals, expected, turn.graph, averaged=self.averaged or self.ranks is not None)
            finite = f"{where} and all averaged gradients are finite" if where else "where all gradients are finite"
            self._case(turn, {**given, **tested.finite}, False, finite, overflow=False)
        one = "where a gradient is not finite, nothing moves"
        self._case(turn, {**given, **tested.spoiled}, True, one, overflow=True)

    def _tests(self, reals: Reals, known: set[int]) -> _Tests | None:
        """The tests for finite values that the program makes and the original does not, and what they lead to."""
        terms = self.terms
        whole = {t for t in reals.tests if terms.name(t) == "ReduceAll" or terms.shapes[t] == ()}
        own = {t for t in whole if t not in known}
        if not own:
            return None
        self.proof.tested = True
        joined = {f for f in set(reals.forms.values()) if terms.name(f) == "LogicalAnd"}
        inner = {a for f in joined for a in terms.arguments[f]}
        roots = [f for f in (joined | own) - inner if self._leaves(f) & own]
        return _Tests(own, dict.fromkeys(own, True), dict.fromkeys(roots, False), {t: reals.tests[t] for t in whole})

    def _leaves(self, form: int) -> set[int]:
        found, stack = set(), [form]
        while stack:
            f = stack.pop()
            if self.terms.name(f) == "LogicalAnd":
                stack.extend(self.terms.arguments[f])
            else:
                found.add(f)
        return found

    def _cover(self, tested: _Tests, reals: Reals, expected: _Expected, graph: Graph, *, averaged: bool) -> None:
        """Each gradient must be part of a value that is tested."""
        atoms = {a for x in tested.values.values() for m in reals.polynomial_of(x) for a, _ in m}
        taken = set(self.terms.below(expected.mean.states.values(), {})) if averaged else set()
        for seam, node in expected.mean.seams.items():
            if not self.terms.traits[seam] & VARIES:
                continue
            type_ = node.type
            if isinstance(type_, TensorType) and not type_.dtype.is_float:
                continue
            atom: int | None = seam
            if averaged:
                atom = self.ranks.mean(seam) if self.ranks else self.terms.find(("mean",), (seam,))
            if atom not in atoms and (atom in taken or not averaged):
                detail = "no test looks at this gradient, which may overflow"
                self._say(Verdict(STATE, node.name, UNPROVED, (), detail, graph.name, seam))

    def _case(self, turn: _Turn, truths: dict[int, bool], still: bool, where: str, *, overflow: bool | None) -> None:
        expected, found, graph = turn.expected, turn.found, turn.graph
        reals = self._reals(expected.opaque, truths, turn)
        side = expected.network if still else expected.mean
        for name in (*self.compared, WORLD):
            a, b = side.states[name], found.states[name]
            if not self._equal(a, b, reals):
                self._differ(STATE, name, a, b, reals, graph, where)
            elif not still:
                self._agree(STATE, name, a, b, reals, graph, where)
        self._returned(graph, found, side, reals, where, {**turn.start, **found.states}, turn, overflow)
        self._own(turn, reals, overflow, where)

    def _returned(
        self, graph: Graph, found: Outcome, side: Outcome, reals: Reals, where: str, held: Mapping[str, int],
        turn: _Turn | None = None, overflow: bool | None = None,
    ) -> None:  # fmt: skip
        named, have = self._named(self.graph, side.result), self._named(graph, found.result)
        if turn is not None and turn.results:
            for n in named:
                if n not in have:
                    self._say(Verdict(RESULT, n, UNPROVED, detail="the program returns it no more", graph=graph.name))
        for name, term in have.items():
            if name in named:
                if self.terms.heads[named[name]][0] == "left out":
                    continue
                if self._equal(named[name], term, reals):
                    self._agree(RESULT, name, named[name], term, reals, graph, where)
                else:
                    self._differ(RESULT, name, named[name], term, reals, graph, where)
                continue
            form = reals.form(term)
            outputs = self._outputs(name, held, turn, overflow)
            if self.alone:  # a file of one graph does not name what passes return
                names = (*self.changed.results, "loss_scale", "overflow", "skipped_cycles")
                outputs = [t for n in names for t in self._outputs(n, held, turn, overflow)]
            nothing = self.alone and turn is None and reals.is_nothing(term)  # no update, so nothing to say of it
            if nothing or any(form == reals.form(t) for t in outputs):
                self._say(Verdict(RESULT, name, OWN, (), where or "as its states say", graph.name, None, form))
            else:
                self._say(Verdict(RESULT, name, UNPROVED, (), f"no law says what it should be {where}".strip(),
                                  graph.name, None, form))  # fmt: skip

    def _outputs(self, name: str, held: Mapping[str, int], turn: _Turn | None, overflow: bool | None) -> list[int]:
        """What the outputs that passes add should be: the loss scale of the step, whether a gradient overflowed, and
        how many updates in a row were skipped."""
        if name in self.changed.results:
            return [self.changed.results[name]]
        if name == "loss_scale":
            return sorted(self.scales)
        if name == "overflow":
            lost = turn is not None and turn.scenario is not None and turn.scenario.lost
            return [] if overflow is None and not lost else [self.terms.constant(bool(overflow or lost))]
        if name == "skipped_cycles":
            counters = [n for n, v in self.program.state.items() if v.role == "counter" and v.dtype is DType.INT32]
            return [held[n] for n in counters if n in held and n not in self.original.state]
        return []

    def _own(self, turn: _Turn, reals: Reals, overflow: bool | None, where: str) -> None:
        """The program's own states: those that add up are 0 again at the end of a cycle, counters of skipped updates
        and loss scales follow their rule."""
        for name in turn.start:
            if name in self.original.state:
                continue
            term, graph = turn.found.states[name], turn.graph.name
            variable = self.program.state[name]
            if name in turn.adding:
                if reals.polynomial(term):
                    self._say(Verdict(STATE, name, UNPROVED, (), "it is not 0 again after the update", graph,
                                      None, reals.form(term)))  # fmt: skip
                else:
                    self._say(Verdict(STATE, name, OWN, ("zeros",), "0 at the end of each cycle", graph, None, term))
            elif name == self.cycles:
                again = reals.polynomial(term) == {((turn.start[name], 1),): 1, (): 1}
                kind, detail = (OWN, "counts cycles") if again else (UNPROVED, "it does not count cycles")
                self._say(Verdict(STATE, name, kind, (), detail, graph, None, reals.form(term)))
            elif rules := self._rules(name, turn, overflow):
                if any(reals.form(t) == reals.form(term) for t in rules):
                    self._say(Verdict(STATE, name, OWN, (), f"by its rule {where}".strip(), graph, None, term))
                else:
                    detail = f"it does not follow its rule {where}".strip()
                    self._say(Verdict(STATE, name, UNPROVED, (), detail, graph, rules[0], reals.form(term)))
            elif reals.form(term) == turn.start[name]:
                self._say(Verdict(STATE, name, OWN, (), "left as it is", graph, None, term))
            elif variable.role == "carried":
                self._say(Verdict(STATE, name, OWN, (), "set by each micro-batch", graph, None, term))
            else:
                self._say(Verdict(STATE, name, UNPROVED, (), f"no law says what it should hold {where}".strip(), graph,
                                  None, reals.form(term)))  # fmt: skip

    def _rules(self, name: str, turn: _Turn, overflow: bool | None) -> list[int]:
        """What a counter or a loss scale should hold after a cycle."""
        terms, symbol, variable = self.terms, turn.start[name], self.program.state[name]
        if variable.role == "counter" and overflow is not None:
            one = terms.make(("sum", (), ((Fraction(1), ()), (Fraction(1), (1,)))), (symbol,), ())
            return [one] if overflow else [terms.make(("sum", (), ()), (), ())]
        if variable.role != "loss-scale" or overflow is None:
            return []
        found = []
        for scale, of in self.program.state.items():
            info = of.info
            if self.alone and self._symbol(scale) in self.scales:  # a file of one graph does not hold the rule
                info = {k: v for k, v in self.promises.options.get("loss-scale", {}).items() if v is not None}
            if of.role == "loss-scale" and "window" in info and info.get("mode", "dynamic") == "dynamic":
                cleans = [n for n, v in self.program.state.items() if v.role == "loss-scale" and n != scale]
                for clean in cleans:
                    rule = loss_scale.dynamic_scale(terms, turn.start[scale], turn.start[clean], info, overflow)
                    found += [rule[0]] if name == scale else [rule[1]] if name == clean else []
        return found

    def _equal(self, a: int, b: int, reals: Reals) -> bool:
        return a == b or reals.form(a) == reals.form(b)

    def _agree(self, what: str, name: str, a: int, b: int, reals: Reals, graph: Graph, where: str) -> None:
        if name == WORLD:
            return
        by = self.changed.states.get(name, ()) if what == STATE else ()
        if what == STATE and name in self.proof.frozen:
            by = (*by, freeze.PASS)
        if self.gone and (what == RESULT or a not in (self.terms.find(("state", name)), self.n)):
            by = (*by, less_bn.PASS)
        if a == b and not by:
            self._say(Verdict(what, name, SAME, ("draws",) if self.alike else (), "", graph.name, a, b))
            return
        laws = set(reals.laws([a, b]))
        if self.averaged:
            laws |= {"induction", "mean"}
            laws |= self.scaled
        if by:
            where = f"by {', '.join(by)} {where}".strip()
        self._say(Verdict(what, name, PURPOSE if by else REALS, tuple(sorted(laws)), where, graph.name, a, b))

    def _differ(self, what: str, name: str, a: int, b: int, reals: Reals, graph: Graph, detail: str) -> None:
        one, other = first_difference(self.terms, reals.form(a), reals.form(b))
        shown = "what the graph prints" if name == WORLD else name
        self._say(Verdict(what, shown, UNPROVED, (), detail, graph.name, one, other))

    def _named(self, graph: Graph, result: list[int]) -> dict[str, int]:
        names = graph.outputs
        if not names and not graph.inputs:
            return {}
        if len(names) != len(result):
            names = result_names(len(result)) if len(result) > 1 else ("loss",)
        return dict(zip(names, result, strict=True))


def _steps_of_one_graph(program: Program) -> int:
    (first, *others), flush = program.schedule.cycle, program.schedule.flush
    return first.repeat if not others and flush is None and first.repeat > 1 else 0


def _same_bytes(a: Data, b: Data) -> bool:
    """In pieces, so that large states take no memory."""
    if a is b:
        return True
    return a.nbytes == b.nbytes and all(x == y for x, y in zip(a.pieces(), b.pieces(), strict=True))


def first_difference(terms: Terms, a: int, b: int) -> tuple[int, int]:
    """The first pair of terms, from the top down, that differ by more than by one of their arguments."""
    while True:
        if terms.heads[a] != terms.heads[b] or len(terms.arguments[a]) != len(terms.arguments[b]):
            return a, b
        pairs = [(x, y) for x, y in zip(terms.arguments[a], terms.arguments[b], strict=True) if x != y]
        if len(pairs) != 1:
            return a, b
        a, b = pairs[0]
