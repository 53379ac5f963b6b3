"""What the original says: its step, with averaged gradients for its update side, as passes change it on purpose."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace
from fractions import Fraction

from ..core.graph import Node
from ..symbolic.execution import Outcome, Side, Unproved
from ..symbolic.micro_batch_weight import weight_of
from ..symbolic.terms import VARIES
from . import formulas
from .changed import Changed, changed
from .formulas import average, freeze
from .formulas.rules import Rule
from .polynomial import Polynomial
from .reals import Reals
from .sides import Sides
from .variants import Frozen, idle_gradients, unmoved, without
from .verdict import Proof


@dataclass(frozen=True)
class Expected:
    """``network``: the step without its update side, ``mean``: with averaged gradients. ``opaque``: the terms of the
    network, which no law looks into. ``frozen``: what a variant leaves as it is; ``lost``: what is frozen for good.
    ``rules``: of averages of weights, which take weights as they are ``updated``."""

    network: Outcome
    mean: Outcome
    opaque: set[int]
    changed: Changed
    frozen: Frozen
    lost: Frozen
    rules: Mapping[str, Rule]
    updated: Mapping[str, int]

    def skipped(self, sides: Sides) -> Outcome:
        """The step where the original stops its update itself: what averages give back to weights is not given."""
        back = {n: sides.by_rule(r, self.updated, overflow=True) for n, r in self.rules.items() if n in self.updated}
        return replace(self.mean, states={**self.updated, **back})


def expect(sides: Sides, proof: Proof) -> Expected:
    """Runs the original; notes in the proof what the checker needs of it."""
    original, program, terms, execution = sides.original, sides.program, sides.terms, sides.execution
    states = {name: sides.symbol(name) for name in original.state}
    inputs = sides.inputs(sides.graph)

    def run(**how: object) -> Outcome:
        return execution.run(sides.graph, states, inputs, Side(sides.parts, **how))  # type: ignore[arg-type]

    network = run(only=True)
    if sides.promises.weight is not None:
        if sides.ranks is not None or sides.alone:
            raise Unproved("weights of micro-batches over ranks, or in a file of one graph: law missing")
        weight = weight_of(sides.graph, sides.promises.weight, network, execution)
        sides.weight = sides.reals(network.network).form(weight)
    mean = run(mean=_mean(sides))
    opaque = {*mean.network, *network.network} - {t for t in mean.seams if terms.heads[t][0] == "const"}
    trained = [n for n, v in original.state.items() if v.role == "weight" and mean.states[n] != states[n]]
    lost = Frozen(trained, freeze.for_good(program, trained))
    trained = [n for n in trained if n not in lost.names]
    frozen = unmoved(trained, program, states, execution, inputs) if sides.cycles else Frozen()
    if sides.cycles or lost.names:
        still = Frozen(lost.trained, frozen.names | lost.names)
        idle = idle_gradients(still, mean, terms, sides.reals(opaque))
        seams = mean.seams
        step = run(mean=_mean(sides, idle))
        mean = without(original, still.names, step, network, terms, opaque, sides.ranks)
        proof.idle = sorted({seams[t].name for t in seams if t in idle or t not in mean.seams})
        proof.frozen = [n for n in mean.states if still.holds(original.state.get(n), n)]
    mean, change = changed(original, program, mean, states, execution, sides.reals(opaque))
    proof.stated = formulas.of_graph(original, program)
    for name, v in original.state.items():
        by = tuple(s.by for s in proof.stated if s.changes(name, v.weight))
        if by and not lost.holds(v, name):
            change.states[name] = (*by, *change.states.get(name, ()))
    proof.stated += [*freeze.state_for_good(program, lost.names), *change.stated]
    proof.formula = change.document()
    rules, updated = average.rules(original, program), mean.states
    ahead = {name: sides.by_rule(rule, updated) for name, rule in rules.items() if name in updated}
    proof.rules = {name: rules[name] for name in ahead}
    proof.stated += average.state(program, tuple(ahead))
    change.states |= {name: (*change.states.get(name, ()), average.PASS) for name in ahead}
    mean = replace(mean, states={**updated, **ahead})
    return Expected(network, mean, opaque, change, frozen, lost, rules, updated)


def _mean(sides: Sides, idle: Collection[int] = ()) -> Callable[[int, Node], int]:
    """What the update side takes for a gradient. ``idle``: gradients that no update takes, in whose place stands 0."""
    terms, ranks, promises = sides.terms, sides.ranks, sides.promises

    def mean(t: int, node: Node) -> int:
        if t in idle:
            return terms.make(("sum", terms.shapes[t], ()), (), terms.shapes[t])
        if not terms.traits[t] & VARIES:
            return t
        made, factors = t, list[tuple[int, int]]()
        if ranks is not None:
            made = ranks.mean(t)
            if sides.averaged and promises.reduction == "sum":
                factors = [(ranks.all_kept, 1), (ranks.ranks, -1)]
            if promises.over_ranks == "sum":
                factors = [*factors[:1], *([] if factors else [(ranks.ranks, 1)])]
        elif sides.averaged and sides.weight is not None:
            made, weights = sides.weighted(t), sides.mean(sides.weight)
            return Reals(terms).term({tuple(sorted(((made, 1), (weights, -1)))): Fraction(1)}, terms.shapes[t])
        elif sides.averaged:
            made = sides.mean(t)
            factors = [(sides.kept, 1)] if promises.reduction == "sum" else []
        if not factors:
            return made
        product: Polynomial = {tuple(sorted((*factors, (made, 1)))): Fraction(1)}
        if sides.alone:
            product = {tuple(sorted((*factors[1:], (made, 1)))): Fraction(sides.alone)}
        return Reals(terms).term(product, terms.shapes[made])

    return mean
