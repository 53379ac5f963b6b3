"""Proves that a program trains as the training graph that it was made from, for all inputs, states and numbers of
micro-batches.

The claim is one of windows. All but the last micro-batch of a window run the network side of the original. The last one
runs the whole original, but its update side takes, for each gradient, the mean over the micro-batches of the window. A
window of one micro-batch is the original itself. What passes change on purpose is part of the claim (:mod:`.formulas`).

Both sides are evaluated at random numbers of a prime field, in cases: whether gradients are finite, and which
micro-batches count. Two expressions that are not equal get one number with a chance of about one in 10^15.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property

from ..core.graph import Graph
from ..core.program import Program
from ..core.types import DType
from ..symbolic.execution import WORLD, Outcome, Unproved
from ..symbolic.terms import Terms
from . import formulas
from .before import compare_order, compare_start
from .cases import Case, Wanted
from .changes import Changes
from .claim import claim_of, of_the_last
from .formulas import average, rules
from .formulas.rules import Rule
from .gradients import Moved, updates
from .linear import check_linear, check_sizes
from .numbers import AVERAGES, ONE_BATCH, Numbers, Val, flat, number
from .prime_field import Num, exact, join, made
from .variants import Frozen, prove_variants
from .verdict import ORDER, STATE, UNPROVED, Proof, Verdict
from .window import SEED, Added, Window

FINITE, SPOILED = "where all gradients are finite", "where a gradient is not finite, "
NONE = exact(0)


def prove(original: Program, program: Program) -> tuple[Proof, Terms]:
    """The verdicts, and the terms that they speak of."""
    if program.schedule.choice is None:
        return _prove(original, program, "")[:2]
    return prove_variants(original, program, _prove)


def _prove(original: Program, program: Program, cycles: str) -> tuple[Proof, Terms, Frozen]:
    """``cycles``: where the program is a variant of one, the state that counts windows."""
    proof = Proof(claim_of(program))
    prover: Prover | None = None
    try:
        compare_order(original, program, proof)
        if unstated := formulas.missing(program):
            raise Unproved(f"pass '{unstated}' changes training on purpose, and no formula says how: law missing")
        compare_start(original, program, proof)
        prover = Prover(original, program, cycles, proof)
        prover.window_of_the_schedule()
    except Unproved as reason:
        _give_up(original, proof, str(reason))
    if prover is None:
        return proof, Terms(), Frozen()
    return proof, prover.window.terms, prover.frozen


def given_up(original: Program, program: Program, reason: str) -> Proof:
    """A proof that ends before it begins."""
    proof = Proof(claim_of(program))
    _give_up(original, proof, reason)
    return proof


def _give_up(original: Program, proof: Proof, reason: str) -> None:
    known = {(v.what, v.name) for v in proof.verdicts}
    for name in original.state:
        if (STATE, name) not in known:
            proof.verdicts.append(Verdict(STATE, name, UNPROVED, detail=reason))
    if not original.state:
        proof.verdicts.append(Verdict(ORDER, "program", UNPROVED, detail=reason))


@dataclass(frozen=True)
class Scenario:
    """How a window went before its update: how many micro-batches count and how many were dropped, and whether the
    last one, which the graph takes itself, counts. ``case``: what may not be finite; ``moves``: whether anything is to
    move."""

    where: str
    kept: Num
    dropped: Num
    last: bool
    case: int | None
    overflow: bool | None
    moves: bool = True


class Prover:
    """The proof of one program without variants. ``adds``: what a micro-batch adds to the program's own states, and
    ``drops`` one that is dropped, where the program drops some."""

    def __init__(self, original: Program, program: Program, cycles: str, proof: Proof):
        self.window = window = Window(original, program, cycles)
        self.proof = proof
        if window.averaged:
            proof.besides = of_the_last(window.graph)
            proof.claim += proof.besides
        self.moved = Moved(window.terms)
        self.frozen = Frozen.of(window, self.moved)
        window.find_gradients(self.frozen.idle)
        self.changes = Changes(window, self.moved, self.frozen.states)
        self.plain = None if window.averaged or window.ranks else window.run(window.graph, window.start)
        self.adds: dict[str, list[Added]] = {}
        self.drops: dict[str, list[Added]] = {}
        self.averages = average.rules(original, program)
        self._rules: dict[tuple[str, bool], list[Rule]] = {}
        if window.averaged or self.changes.statement is not None:
            check_linear(window.graph, window.parts)
            check_sizes(window.terms, self._seams_of, window.start)
        self._state_changes()

    def _state_changes(self) -> None:
        """Notes which passes change what on purpose."""
        window, proof, changes = self.window, self.proof, self.changes
        original, program = window.original, window.program
        proof.stated = formulas.of_graph(original, program)
        self.by: dict[str, tuple[str, ...]] = {}
        for name, v in original.state.items():
            by = tuple(s.by for s in proof.stated if s.changes(name, v.weight))
            if by and name not in self.frozen.for_good:
                self.by[name] = by
        if changes.statement is not None:
            wanted = self._wanted(None, window.step, None).states
            of = window.numbers()
            for name, v in original.state.items():
                if flat(wanted[name]) != flat(of.of(window.step.states[name])):
                    weights = {v.weight or name, name}
                    by = tuple(s.by for s in changes.stated if weights & {*s.weights})
                    self.by[name] = (*self.by.get(name, ()), *by)
        proof.stated += [*self.frozen.stated, *changes.stated]
        ahead = tuple(name for name in self.averages if name in original.state)
        proof.stated += average.state(program, ahead)
        for name in ahead:
            self.by[name] = (*self.by.get(name, ()), average.PASS)

    # -- the schedule ------------------------------------------------------------------------------------------

    def window_of_the_schedule(self) -> None:
        """One window as the schedule says; :class:`Unproved` for a schedule of another form."""
        program, alone = self.window.program, self.window.alone
        schedule, graphs = program.schedule, program.graphs
        if schedule.search is not None:
            raise Unproved("the program searches along a line: law missing for its trials")
        if len(schedule.cycle) > 2 or not any(graphs[e.graph].inputs for e in schedule.cycle):
            raise Unproved("a schedule of this form has no law")
        first, last = schedule.cycle[0], schedule.cycle[-1]
        if last.repeat != 1 and not alone:
            raise Unproved(f"the schedule updates {last.repeat} times a cycle")
        if len(schedule.cycle) == 1 and schedule.flush is None and not alone:
            self.end(graphs[last.graph], self.window.start)
            return
        updating = list(dict.fromkeys(name for name in (last.graph, schedule.flush) if name))
        taking = next((g for n, g in graphs.items() if g.inputs and (alone or n not in updating)), None)
        if taking is None or (len(schedule.cycle) == 2 and first.graph != taking.name):
            raise Unproved("a schedule of this form has no law")
        if alone and schedule.count not in program.state:
            raise Unproved("a graph that runs several times a cycle without a count of them")
        after = self.micro_batch(taking)
        for name in updating:
            self.end(graphs[name], self.window.start if graphs[name].inputs else after)

    def micro_batch(self, graph: Graph) -> Mapping[str, int]:
        """Compares what the graph does that takes a micro-batch: it runs the network side, and adds to the program's
        own states. Returns what it leaves in all states."""
        window, program = self.window, self.window.program
        count = program.schedule.count or ""
        held = {**window.start, **({count: window.held(count)} if window.alone else {})}
        found = window.run(graph, held)
        cases: list[tuple[str, int | None, bool | None]] = [("", None, None)]
        tested = None if window.alone else self.tested(graph, found, {})
        if tested is not None:
            self._untested(graph, tested[1])
            cases = [(FINITE, 0, False), ("where one is not", ONE_BATCH, True)]
        places = range(window.alone - 1) if window.alone else range(1)
        for where, case, may_drop in cases:
            for at, weight in ((at, weight) for at in places for weight in self._weights(graph)):
                window.now = weight
                spoiled = may_drop and weight is window.weight  # what counts 0 adds 0, and is not dropped
                grown = self.drops if spoiled else self.adds
                numbers = window.numbers(case, {held[count]: exact(at)} if window.alone else {})
                of = window.numbers(case)
                states = {n: of.of(window.network.states[n]) for n in (*window.original.state, WORLD)}
                said = f"in a micro-batch that does not end the window {where}"
                one = self._case(graph, found, numbers, where=said, overflow=spoiled, ended=False)
                one.compare(Wanted(states, window.network, of))
                self._grow(one, held, grown, first=at == 0 and weight is window.weight)
        window.now = window.weight
        self.drops = (
            {name: self.drops.get(name, []) for name in {**self.adds, **self.drops}} if tested is not None else {}
        )
        self.adds |= {name: [] for name in self.drops if name not in self.adds}
        if window.ranks is not None and not self.drops and not window.alone:
            window.kept = made(SEED, "counts")  # another number on each rank
        if count and self.adds.get(count) != [(None, Fraction(1), ())]:
            self._wrong(count, "the schedule counts micro-batches by it, and a micro-batch does not add 1", graph)
        for name in self.adds:
            if not program.state[name].data.is_zero():
                self._wrong(name, "it is added to, and does not begin with 0", graph)
        return found.states

    def _grow(self, case: Case, held: Mapping[str, int], grown: dict[str, list[Added]], *, first: bool) -> None:
        """Notes what was added to the program's own states, or sees that it is the same again."""
        window, state = self.window, self.window.program.state
        for name in window.own:
            before, after = (case.numbers.of(t) for t in (held[name], case.found.states[name]))
            if name in window.monitors or (state[name].role == "carried" and not state[name].weight):
                continue
            added = join(lambda x, y: x - y, number(after), number(before))
            if first and flat(after) != flat(before):
                if state[name].role not in ("accumulator", "counter"):
                    case.say(STATE, name, UNPROVED, "not claimed: nothing says what a micro-batch adds to it")
                    continue
                grown[name] = window.added(name, added, self._seams_of.get(state[name].weight, ()))
            elif added.pair != window.sum(grown.get(name, ())).pair:
                case.say(STATE, name, UNPROVED, "a micro-batch changes it, and does not add to it")

    @cached_property
    def _seams_of(self) -> dict[str, tuple[int, ...]]:
        """The gradients that weights are updated with."""
        window = self.window
        named = {window.program.state[n].weight for n in window.own}
        weights = [n for n, v in window.original.state.items() if v.role == "weight" or n in named]
        found = updates(window.terms, window.step.states, weights, self.moved)
        direct = {name: update.seams for name, update in found.items()}
        others = [n for n in weights if not direct.get(n)]
        leaving = {n: tuple(sorted(self.moved.leaving(window.step.states[n]))) for n in others}
        return {**direct, **leaving}

    def _weights(self, graph: Graph) -> list[Num | None]:
        """What a micro-batch may count: one whose loss is divided by 0 adds nothing."""
        weight, offset = self.window.weight, self.window.offset.exact
        return [weight, *([exact(0)] if weight is not None and graph.inputs and not offset else [])]

    # -- the end of a window -----------------------------------------------------------------------------------

    def end(self, graph: Graph, states: Mapping[str, int]) -> None:
        """Compares what an updating graph does with what it should, in each way that a window may have gone."""
        window, adding = self.window, self.adds
        single = not (window.averaged or adding)
        held = {**states, **{name: window.held(name) for name in adding}}
        found = window.run(graph, held)
        totals = self._totals(held, Scenario("", window.kept, NONE, True, None, None), graph)
        tests, itself = self.tested(graph, found, totals), False
        if tests is not None and self.drops and graph.inputs and not tests[0]:
            tests = None  # only the last micro-batch is tested, by itself
        if tests is not None:
            self._untested(graph, tests[0] | tests[1] if single else tests[0])
        elif not self.drops and self._follows_updates():
            itself = self._stops_itself()
        tested = itself or tests is not None
        for scenario in self._scenarios(graph, tested=tested, itself=itself, single=single):
            for weight in self._weights(graph) if scenario.last else [window.weight]:
                window.now = weight
                numbers = window.numbers(scenario.case, self._totals(held, scenario, graph))
                step = window.step if scenario.moves else window.network
                wanted = self._wanted(scenario.case, step, scenario.overflow)
                case = self._case(graph, found, numbers, where=scenario.where, overflow=scenario.overflow,
                                  lost=scenario.dropped is not NONE)  # fmt: skip
                case.compare(wanted, complete=single)
        window.now = window.weight

    def _totals(self, held: Mapping[str, int], scenario: Scenario, graph: Graph) -> dict[int, Val]:
        """What the sums hold when the update begins."""
        window, found = self.window, dict[int, Val]()
        for name, adds in self.adds.items():
            drops = self.drops.get(name, [])
            last = window.sum(adds if scenario.last else drops) if graph.inputs else NONE
            found[held[name]] = window.total(adds, drops, scenario.kept, scenario.dropped, last)
        return found

    def _scenarios(self, graph: Graph, *, tested: bool, itself: bool, single: bool) -> Iterator[Scenario]:
        window, takes = self.window, bool(graph.inputs)
        n, d = window.kept, window.dropped
        stops = SPOILED + ("the original stops its update itself" if itself else "nothing moves")
        spoiled = [ONE_BATCH | AVERAGES] if single else [AVERAGES, AVERAGES | ONE_BATCH] if takes else [AVERAGES]
        if not self.drops:
            yield Scenario(FINITE if tested else "", n, NONE, True, 0 if tested else None, False if tested else None)
            for case in spoiled if tested else ():
                yield Scenario(stops, n, NONE, True, case, True, moves=itself)
            return
        asked = takes or tested
        finite = " and all averaged gradients are finite" if tested else ""
        ways = [("where all micro-batches are kept", NONE, True), ("where some are kept", d, True)]
        for where, gone, last in ways + ([("where some are kept", d, False)] if takes else []):
            own = ONE_BATCH if takes and not last else 0
            yield Scenario(where + finite, n, gone, last, own if asked else None, False if tested else None)
            if tested:
                yield Scenario(stops, n, gone, last, AVERAGES | own, True, moves=False)
        yield Scenario("where none is kept", NONE, d, False, AVERAGES | (ONE_BATCH if takes else 0), True, moves=False)

    def _follows_updates(self) -> bool:
        """Whether the program brings a state along that moves otherwise where an update is skipped."""
        own = [name for name in self.window.own if name not in self.adds and name != self.window.cycles]
        state = self.window.program.state
        return any(name in self.averages or state[name].role in ("counter", "loss-scale") for name in own)

    def _stops_itself(self) -> bool:
        """Whether the original tests its gradients, and leaves all weights as they were where one is not finite."""
        window = self.window
        if not any(self._tests([*window.step.states.values(), *window.step.result], window.numbers())):
            return False
        of = window.numbers(AVERAGES | ONE_BATCH)
        weights = [name for name, v in window.original.state.items() if v.role == "weight"]
        return all(flat(of.of(window.step.states[n])) == flat(of.of(window.start[n])) for n in weights)

    # -- tests for finite gradients ----------------------------------------------------------------------------

    def tested(self, graph: Graph, found: Outcome, given: Mapping[int, Val]) -> tuple[int, int] | None:
        """The gradients that the program tests and the original does not, a bit for each: of their averages, and of
        the micro-batch at hand."""
        window = self.window
        judged = [t for name, t in found.states.items() if name not in window.monitors]
        mine = self._tests([*judged, *found.result], window.numbers(None, given))
        if not mine:
            return None
        theirs = self._tests([*window.step.states.values(), *window.step.result], window.numbers())
        bits = 0
        own = mine.keys() - theirs.keys()
        for value in own:
            bits |= mine[value]
        count = max(len(window.gradients), 1)
        full = (1 << count) - 1
        return (bits & full, bits >> count & full) if own else None

    def _tests(self, roots: list[int], numbers: Numbers) -> dict[object, int]:
        """What is tested for finite values, and the bits of the gradients in it."""
        terms = self.window.terms
        if not any(head[1:2] == ("IsFinite",) for head in terms.heads):
            return {}
        tested = [t for t in terms.below(roots) if terms.name(t) == "IsFinite"]
        values = [numbers.of(terms.arguments[t][0]) for t in tested]
        return {v.pair: v.of for v in map(number, values) if v.exact is None}

    def _untested(self, graph: Graph, tested: int) -> None:
        for i, name in enumerate(self.window.gradients):
            if not tested >> i & 1:
                why = "none of the values that are tested is proved to hold this gradient, which may overflow"
                self._wrong(name, why, graph)

    def _wrong(self, name: str, detail: str, graph: Graph) -> None:
        self.proof.verdicts.append(Verdict(STATE, name, UNPROVED, detail, graph.name))

    # -- what should come about --------------------------------------------------------------------------------

    def _case(self, graph: Graph, found: Outcome, numbers: Numbers, **how: object) -> Case:
        names = (self.window, self.proof, graph, found, numbers, self.plain, self.by, self.frozen.states, self.adds)
        return Case(*names, **how)  # type: ignore[arg-type]

    def _wanted(self, case: int | None, step: Outcome, overflow: bool | None) -> Wanted:
        """What an update is to leave in all states. ``step``: the original's, or its network alone."""
        window, original = self.window, self.window.original
        plain, moves = window.numbers(case), step is window.step
        stays = {window.step.states[n]: plain.of(window.network.states[n]) for n in self.frozen.states} if moves else {}
        start = {n: number(plain.of(window.start[n])) for n in original.state}
        states: dict[str, Val] = {n: plain.of(step.states[n]) for n in (*original.state, WORLD)} if not moves else {}
        of, gives = plain, dict[str, Val]()
        if moves or self.changes.statement is not None:
            changed, after, gives = self.changes.states(lambda m, u: window.numbers(case, stays, m, u), start)
            if moves:  # what takes a frozen weight takes it as it was
                of, states = after, {**changed, WORLD: after.of(step.states[WORLD])}
        states |= {n: plain.of(window.network.states[n]) for n in self.frozen.states}
        updated = dict(states)
        for name, rule in self.averages.items():
            if name in original.state:
                states[name] = self._by_rule(rule, updated, case, overflow)
        own = [n for n in window.own if n not in self.adds]
        by_rule = {n: [self._by_rule(r, updated, case, overflow) for r in self._rules_of(n, overflow)] for n in own}
        return Wanted(states, step, of, gives, by_rule)

    def _by_rule(self, rule: Rule, after: Mapping[str, Val], case: int | None, overflow: bool | None) -> Val:
        """What a state holds by its rule. ``after``: what states hold after the update."""
        window = self.window
        plain = window.numbers(case)
        given = [*(plain.of(window.start[n]) for n in rule.takes), *(after[n] for n in rule.after)]
        inputs = [window.terms.make(("given", i)) for i in range(len(given))]
        (result,) = window.execution.run(rule.overflow if overflow else rule.clean, {}, inputs).result
        return window.numbers(case, dict(zip(inputs, given, strict=True))).of(result)

    def _rules_of(self, name: str, overflow: bool | None) -> list[Rule]:
        """What one of the program's own states may follow."""
        if name in self.averages:
            return [self.averages[name]]
        key = name, overflow is not None
        if key not in self._rules:
            self._rules[key] = self._made_rules(*key)
        return self._rules[key]

    def _made_rules(self, name: str, asked: bool) -> list[Rule]:
        """Rules of counts and loss scales; ``asked``: whether the window is tested for finite gradients."""
        window, state = self.window, self.window.program.state
        if name == self.window.cycles or (state[name].role == "counter" and asked):
            return [rules.counts(name, state[name].dtype, skipped=name != self.window.cycles)]
        if state[name].role != "loss-scale" or not asked:
            return []
        found: list[Rule] = []
        scales = [n for n, v in state.items() if v.role == "loss-scale" and v.dtype is not DType.BOOL]
        for scale in scales:
            said = state[scale].info
            if window.alone and scale in window.scales:  # a file of one graph does not hold the rule
                said = {k: v for k, v in window.promises.options.get("loss-scale", {}).items() if v is not None}
            if said.keys() >= rules.OPTIONS and said.get("mode", "dynamic") == "dynamic":
                others = [n for n in scales if n != scale and name in (scale, n)]
                found += [rules.dynamic_scale(scale, clean, said)[name == clean] for clean in others]
        return found
