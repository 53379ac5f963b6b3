"""What stays as it is: weights that are frozen for good, and those that a variant of a program leaves alone.

Each window of a program with variants runs one of them, which is proved as a program of its own. A variant must update
all that it does not freeze as the original does. Which it freezes is seen in its own graphs, and held against what the
pass was asked for.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace

from ..core.program import Program
from ..symbolic.terms import Terms
from .formulas import freeze
from .formulas.statement import Stated
from .gradients import Moved, updates
from .verdict import STATE, UNPROVED, Proof, Verdict
from .window import Window


@dataclass(frozen=True)
class Frozen:
    """``names``: of the ``trained`` weights of the original, those that a variant leaves as they are. ``states``: all
    states that stay, and by which pass; ``for_good``: those of them that every window leaves. ``idle``: gradients that
    only frozen weights are updated with: another weight's norm, or a test for finite values, is then one without."""

    trained: Sequence[str] = ()
    names: frozenset[str] = frozenset()
    states: Mapping[str, str] = field(default_factory=dict)
    for_good: Collection[str] = ()
    idle: frozenset[int] = frozenset()
    stated: Sequence[Stated] = ()

    @staticmethod
    def of(window: Window, moved: Moved) -> Frozen:
        """What stays in a program, or in a variant of one."""
        original, program, step = window.original, window.program, window.step
        trained = [n for n, v in original.state.items() if v.role == "weight" and step.states[n] != window.start[n]]
        lost = freeze.for_good(program, trained)
        trained = [n for n in trained if n not in lost]
        names = _unmoved(window, trained) if window.cycles else frozenset[str]()
        states: dict[str, str] = {}
        for name, v in original.state.items():
            weight = name if name in names | lost else v.weight
            if weight in names | lost:
                states[name] = freeze.by(program, weight) if weight in lost else freeze.PASS
        for_good = {n for n in states if n in lost or original.state[n].weight in lost}
        idle = _idle(window, states, moved) if states else frozenset[int]()
        return Frozen(trained, names, states, for_good, idle, freeze.state_for_good(program, lost))


def _unmoved(window: Window, trained: Sequence[str]) -> frozenset[str]:
    """What no updating graph of a variant writes."""
    schedule, moved = window.program.schedule, set[str]()
    for name in {schedule.cycle[-1].graph, schedule.flush} - {None}:
        after = window.run(window.program.graphs[str(name)], window.start).states
        moved |= {n for n in trained if after[n] != window.start[n]}
    return frozenset(trained) - moved


def _idle(window: Window, frozen: Collection[str], moved: Moved) -> frozenset[int]:
    terms, states = window.terms, window.step.states
    still = {states[name] for name in frozen}
    used, seen, stack = set[int](), set[int](), [t for name, t in states.items() if name not in frozen]
    while stack:  # what takes a frozen weight takes it as it was
        t = stack.pop()
        if t in seen or t in still or t not in moved:
            continue
        seen.add(t)
        if terms.heads[t][0] == "mean":
            used.add(terms.arguments[t][0])
        else:
            stack += terms.arguments[t]
    weights = [n for n, v in window.original.state.items() if v.role == "weight"]
    direct: dict[bool, set[int]] = {True: set(), False: set()}
    for name, update in updates(terms, states, weights, moved).items():
        direct[name in frozen].update(update.seams)
    return frozenset(t for t in window.step.seams if t not in used) | (direct[True] - direct[False])


def prove_variants(
    original: Program, program: Program, prove: Callable[[Program, Program, str], tuple[Proof, Terms, Frozen]]
) -> tuple[Proof, Terms]:
    """One proof of all variants. ``prove`` proves a program without variants; its last argument names the state that
    counts windows."""
    choice = program.schedule.choice
    assert choice is not None
    whole, shown = Proof(""), Terms()
    proofs, found = list[Proof](), list[Frozen]()
    for k in range(choice.variants):
        schedule = program.schedule.variant(k)
        graphs = {name: program.graphs[name] for name in schedule.graphs()}
        proof, terms, frozen = prove(original, replace(program, graphs=graphs, schedule=schedule), choice.state)
        proofs.append(proof)
        found.append(frozen)
        shown = terms if proof.failures and all(p.proved for p in proofs[:-1]) else shown
        own = shown is terms
        for v in proof.verdicts:
            said = replace(v, detail=f"{v.detail} in windows of variant {k}".strip())
            whole.verdicts.append(said if own else replace(said, expected=None, found=None))
    first = proofs[0]
    whole.besides, whole.trusted = first.besides, first.trusted
    whole.claim = f"{first.claim}, but for weights that the variant of a window freezes"
    names = [f.names for f in found]
    asked = [r.options for r in program.reports if r.name == freeze.PASS]
    try:
        wrong = freeze.objection(asked[-1], choice, found[0].trained, names) if asked else "no pass asked for them"
    except (KeyError, TypeError, ValueError, IndexError) as error:
        wrong = f"the record of the pass does not say what they are for ({error!r})"
    if any(not f.trained and proof.failures for f, proof in zip(found, proofs, strict=True)):
        return whole, shown  # what that variant freezes was not seen
    if wrong:
        whole.verdicts.append(Verdict(STATE, choice.state, UNPROVED, detail=f"variants: {wrong}"))
    else:
        whole.stated = [*first.stated, *freeze.state(asked[-1], names)]
    return whole, shown
