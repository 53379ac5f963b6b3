"""Programs of which each cycle runs one of several variants: each variant is proved as a program of its own.

A variant may leave weights and their slots as they are. It must update all others as the original does. Which it
leaves is seen in its own graphs, and held against what the pass was asked for.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace

from ..core.program import Program, StateVariable
from ..symbolic.execution import Execution, Outcome
from ..symbolic.terms import Terms
from .formulas import freeze
from .rank_sums import Ranks
from .reals import Reals
from .verdict import STATE, UNPROVED, Proof, Verdict
from .weight_updates import MEANS, Moved, rewritten, standing, updates


@dataclass(frozen=True)
class Frozen:
    """``names``: of the ``trained`` weights of the original, those that a variant leaves as they are."""

    trained: Sequence[str] = ()
    names: frozenset[str] = frozenset()

    def holds(self, variable: StateVariable | None, name: str) -> bool:
        return name in self.names or (variable is not None and variable.weight in self.names)


def unmoved(
    trained: Sequence[str], program: Program, start: Mapping[str, int], execution: Execution, inputs: Sequence[int]
) -> Frozen:
    """What no updating graph of a variant writes."""
    schedule, terms = program.schedule, execution.terms
    held = {n: start[n] if n in start else terms.make(("state", n)) for n in program.state}
    moved: set[str] = set()
    for name in {schedule.cycle[-1].graph, schedule.flush} - {None}:
        graph = program.graphs[str(name)]
        after = execution.run(graph, held, inputs if graph.inputs else ()).states
        moved |= {n for n in trained if n in held and after[n] != held[n]}
    return Frozen(trained, frozenset(trained) - moved)


def idle_gradients(frozen: Frozen, mean: Outcome, terms: Terms, reals: Reals) -> set[int]:
    """The gradients that only frozen weights are updated with: another weight's norm, or a test for finite values, is
    then one without them."""
    seams = {t for t in mean.seams if terms.heads[t][0] != "const"}
    stands = standing(seams, reals.ranks)
    taken: dict[bool, set[int]] = {True: set(), False: set()}
    for name, update in updates(terms, mean.states.values(), frozen.trained, Moved(terms, stands), reals).items():
        atoms = {a for m in reals.polynomial(update.gradient) for a, _ in m}
        direct = {terms.arguments[a][0] if terms.heads[a][0] in MEANS and a not in stands else a for a in atoms}
        taken[name in frozen.names] |= {stands[a] for a in direct if a in stands}
    return taken[True] - taken[False]


def without(
    original: Program, frozen: Collection[str], mean: Outcome, network: Outcome, terms: Terms, opaque: Collection[int],
    ranks: Ranks | None,
) -> Outcome:  # fmt: skip
    """The original's step without the updates of these weights and their slots. What takes a weight behind its update
    (a target network) takes it as it was."""
    before = {t: network.states[name] for name, t in mean.states.items() if name in frozen}
    left = rewritten(terms, mean.states.values(), before, lambda _, __, operands: operands)
    states = {
        name: network.states[name] if (v := original.state.get(name)) and (name in frozen or v.weight in frozen)
        else left[t]
        for name, t in mean.states.items()
    }  # fmt: skip
    used, stack = set[int](), list(states.values())
    while stack:  # the gradients that the other updates take
        t = stack.pop()
        if t not in used:
            used.add(t)
            stack += () if t in opaque else terms.arguments[t]
    taken = {seam for t, seam in standing(mean.seams, ranks).items() if t in used}
    return replace(mean, states=states, seams={t: node for t, node in mean.seams.items() if t in taken})


def prove_variants(
    original: Program, program: Program, prove: Callable[[Program, Program, Terms, str], tuple[Proof, Frozen]],
    terms: Terms,
) -> Proof:  # fmt: skip
    """One proof of all variants. ``prove`` proves a program without variants; its last argument names the state that
    counts cycles."""
    choice = program.schedule.choice
    assert choice is not None
    whole = Proof("")
    found: list[Frozen] = []
    for k in range(choice.variants):
        schedule = program.schedule.variant(k)
        graphs = {name: program.graphs[name] for name in schedule.graphs()}
        proof, frozen = prove(original, replace(program, graphs=graphs, schedule=schedule), terms, choice.state)
        whole.variants.append(proof)
        found.append(frozen)
        for v in proof.verdicts:
            whole.verdicts.append(replace(v, detail=f"{v.detail} in cycles of variant {k}".strip()))
    first = whole.variants[0]
    whole.besides = first.besides
    whole.claim, whole.trusted = f"{first.claim}, but for weights that the variant of a cycle freezes", first.trusted
    names = [f.names for f in found]
    asked = [r.options for r in program.reports if r.name == freeze.PASS]
    try:
        wrong = freeze.objection(asked[-1], choice, found[0].trained, names) if asked else "no pass asked for them"
    except (KeyError, TypeError, ValueError, IndexError) as error:
        wrong = f"the record of the pass does not say what they are for ({error!r})"
    if any(not f.trained and proof.failures for f, proof in zip(found, whole.variants, strict=True)):
        return whole  # what that variant freezes was not seen
    if wrong:
        whole.verdicts.append(Verdict(STATE, choice.state, UNPROVED, detail=f"variants: {wrong}"))
    else:
        whole.stated = [*first.stated, *freeze.state(asked[-1], names)]
    return whole
