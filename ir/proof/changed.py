"""The original as passes change it on purpose: its updates take what the formulas of :mod:`.formulas` say."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import Any

from ..analysis.training.gradient_path import gradient_paths
from ..analysis.training.own_writes import own_writes
from ..core.graph import Node
from ..core.primitives import facts
from ..core.program import Program
from ..symbolic.execution import Execution, Outcome, Unproved
from ..text import print_graph
from . import formulas
from .formulas import centralize, clip
from .formulas.statement import DECAY, RATE, RESULT, STEP, TAKEN, Stated, Statement
from .polynomial import ONE
from .reals import Reals
from .weight_updates import Moved, Update, by_many, rewritten, standing, updates


@dataclass
class Changed:
    """``statement``: what updates take, None where no formula says so. ``stated``: the formulas in words. ``states``:
    the names of those that formulas change, and by which; ``results``: what passes return besides, as a term."""

    statement: Statement | None = None
    stated: list[Stated] = field(default_factory=list)
    states: dict[str, tuple[str, ...]] = field(default_factory=dict)
    results: dict[str, int] = field(default_factory=dict)

    def document(self) -> dict[str, Any] | None:
        """The statement as a certificate holds it."""
        s = self.statement
        if s is None:
            return None
        pairs = {"takes": [list(pair) for pair in s.takes], "gives": [list(pair) for pair in s.gives]}
        at = {name: one.update.at for name, one in s.taken.items() if one.update.at}
        return {"graph": print_graph(s.graph, annotations=False), "at": at, **pairs}


def changed(
    original: Program, program: Program, mean: Outcome, start: Mapping[str, int], execution: Execution, reals: Reals
) -> tuple[Outcome, Changed]:
    """The original's outcome with its updates as formulas say. ``start``: what the states held."""
    if not any(r.name in formulas.OF_UPDATES for r in program.reports):
        return mean, Changed()
    terms = execution.terms
    weights = [name for name, v in original.state.items() if v.role == "weight"]
    stands = standing((t for t in mean.seams if terms.heads[t][0] != "const"), reals.ranks)
    seams = {t: mean.seams[seam] for t, seam in stands.items()}
    moved = Moved(terms, seams)
    found = updates(terms, mean.states.values(), weights, moved, reals)
    found |= by_many(terms, mean.states, weights, found, seams)
    order = {name: found[name] for name in weights if name in found}
    if any(r.name in (centralize.PASS, clip.PASS) for r in program.reports):
        _refuse_treated(original, {name for name, update in order.items() if update.at})
    try:
        statement, stated = formulas.write(program, order, {n: (start[n], original.state[n].type) for n in weights})
    except (KeyError, TypeError, ValueError) as error:
        raise Unproved(f"the program's record of a pass does not say what its formula needs: {error}") from None
    if not statement.gives:
        return mean, Changed(None, stated)
    given = dict(zip(statement.gives, execution.run(statement.graph, {}, statement.terms).result, strict=True))

    def change(node: Node, weight: str, operands: tuple[int, ...]) -> tuple[int, ...]:
        known, whole = facts(node.op), "" if weight in order and order[weight].at else TAKEN
        places = {known.gradient: whole, known.rate: RATE, known.decay: DECAY}
        new = [given.get((places[i], weight), t) if i in places else t for i, t in enumerate(operands)]
        return tuple(new)

    many = _gradients_instead(reals, order, given)
    new = rewritten(terms, mean.states.values(), many, change)
    states = {name: new[t] for name, t in mean.states.items()}
    steps = {name for what, name in given if what == STEP}
    own = {name for graph in original.graphs.values() for name in own_writes(graph).values()} if steps else set()
    if steps & own:
        name = min(steps & own)
        raise Unproved(f"the cell writes weight '{name}' by itself behind its update: law missing for a scaled step")
    for (what, name), factor in given.items():
        if what == STEP and mean.states[name] in moved:  # what no gradient moves has no step to be scaled
            share = reals.polynomial(factor).get(ONE, Fraction(0))
            step = {((states[name], 1),): share, ((start[name], 1),): 1 - share}
            shape = terms.shapes[start[name]]
            states[name] = reals.term({m: c for m, c in step.items() if c}, shape)
    by: dict[str, tuple[str, ...]] = {}
    for name, t in states.items():
        if t != mean.states[name]:
            of = original.state[name].weight or name
            by[name] = tuple(s.by for s in stated if of in s.weights or name in s.weights)
    results = {name: t for (what, name), t in given.items() if what == RESULT}
    return replace(mean, states=states), Changed(statement, stated, by, results)


def _refuse_treated(original: Program, weights: Collection[str]) -> None:
    """Unproved where many primitives update a weight by something else than the gradient that leaves the backward part,
    or where nothing tells: the formulas are about that gradient."""
    paths = [p for graph in original.graphs.values() if weights for p in gradient_paths(graph) if p.weight in weights]
    for path in paths:
        if path.assumed or any(point.stage for point in path.points):
            what = path.assumed or "the training cell or its optimizer does something to it first"
            raise Unproved(f"the gradient of weight '{path.weight}' is not what updates it ({what}): law missing")


def _gradients_instead(
    reals: Reals, order: Mapping[str, Update], given: Mapping[tuple[str, str], int]
) -> dict[int, int]:
    """What is taken in the place of gradients whose weights many primitives update. Two weights may have one gradient
    (the two biases of a recurrent layer)."""
    found: dict[int, int] = {}
    for name, update in order.items():
        if update.at:
            new = given.get((TAKEN, name), update.gradient)
            if reals.form(found.setdefault(update.gradient, new)) != reals.form(new):
                raise Unproved(
                    f"'{name}' has its gradient with another weight, and each is to take another: law missing"
                )
    return found
