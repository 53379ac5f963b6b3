"""The original as passes change it on purpose: its updates take what the formulas of :mod:`.formulas` say.

A formula is a graph. What its inputs are is seen in the original's updates: what each takes, and what it would take if
all gradients were 0, which is its decay.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

from ..analysis.training.gradient_path import gradient_paths
from ..analysis.training.own_writes import own_writes
from ..core.graph import Node
from ..core.primitives import facts
from ..core.program import Program
from ..symbolic.execution import Unproved
from . import formulas
from .formulas import centralize, clip
from .formulas.statement import DECAY, GRADIENT, RATE, REST, RESULT, STEP, TAKEN, WEIGHT, Stated, Statement
from .gradients import Moved, by_many, updates
from .numbers import Mean, Numbers, Update, Val, flat, number
from .prime_field import Num, exact, plus, times
from .window import Window

Key = tuple[str, str]
"""What a value is, and of which weight."""
Making = Callable[[Mean | None, Update | None], Numbers]
"""Numbers of terms, by what gradients become and what updates take."""


@dataclass
class Changes:
    """``statement``: what updates take, None where no formula says so; ``stated``: the formulas in words. ``moved``:
    which terms follow from gradients; ``frozen``: states that stay as they are."""

    window: Window
    moved: Moved
    frozen: Collection[str]
    statement: Statement | None = None
    stated: list[Stated] = field(default_factory=list)

    def __post_init__(self) -> None:
        original, program, step = self.window.original, self.window.program, self.window.step
        if not any(r.name in formulas.OF_UPDATES for r in program.reports):
            return
        terms, weights = self.window.terms, [name for name, v in original.state.items() if v.role == "weight"]
        moving = [name for name in weights if name not in self.frozen]
        found = updates(terms, step.states, moving, self.moved)
        found |= by_many(terms, step.states, moving, found, self.moved, step.seams)
        order = {name: found[name] for name in weights if name in found}
        if any(r.name in (centralize.PASS, clip.PASS) for r in program.reports):
            _refuse_treated(original, {name for name, update in order.items() if update.at})
        try:
            statement, self.stated = formulas.write(program, order, {n: original.state[n].type for n in weights})
        except (KeyError, TypeError, ValueError) as error:
            raise Unproved(f"the program's record of a pass does not say what its formula needs: {error}") from None
        steps = {name for what, name in statement.gives if what == STEP}
        if steps and (steps := steps & {n for g in original.graphs.values() for n in own_writes(g).values()}):
            raise Unproved(
                f"the cell writes weight '{min(steps)}' by itself behind its update: law missing for a scaled step"
            )
        self.statement = statement if statement.gives else None

    def states(self, making: Making, start: Mapping[str, Num]) -> tuple[dict[str, Val], Numbers, dict[str, Val]]:
        """What the original's states hold after a step with the formulas, the numbers of its terms then, and the
        results that formulas give."""
        step = self.window.step
        if self.statement is None:
            of = making(None, None)
            return {name: of.of(step.states[name]) for name in start}, of, {}
        gives = self._given(making, start)
        at = self._at()

        def taking(t: int, value: Num) -> Val:
            own = self.window.mean(t, value)
            weights = at.get(step.seams[t].name, ())
            new = [gives.get((TAKEN, weight), own) for weight in weights]
            if len(set(map(flat, new))) > 1:
                raise Unproved(f"'{max(weights)}' has its gradient with another weight, and each is to take another: "
                               "law missing")  # fmt: skip
            return new[0] if new else own

        def replaced(node: Node, weight: str, taken: list[Val]) -> list[Val]:
            places = {facts(node.op).rate: RATE, facts(node.op).decay: DECAY}
            if not self._many(weight):
                places[facts(node.op).gradient] = TAKEN
            return [gives.get((places.get(i, ""), weight), v) for i, v in enumerate(taken)]

        of = making(taking, replaced)
        states = {name: of.of(step.states[name]) for name in start}
        for (what, name), factor in gives.items():
            if what == STEP and step.states[name] in self.moved:  # what no gradient moves has no step to be scaled
                states[name] = plus(start[name], times(_minus(states[name], start[name]), number(factor)))
        return states, of, {name: value for (what, name), value in gives.items() if what == RESULT}

    def _many(self, weight: str) -> bool:
        assert self.statement is not None
        return weight in self.statement.taken and bool(self.statement.taken[weight].update.at)

    def _at(self) -> dict[str, list[str]]:
        """The weights that many primitives update, by where their gradient leaves the backward part. Two may have one
        gradient (the two biases of a recurrent layer)."""
        assert self.statement is not None
        found: dict[str, list[str]] = {}
        for weight, one in self.statement.taken.items():
            if one.update.at:
                found.setdefault(one.update.at, []).append(weight)
        return found

    def _given(self, making: Making, start: Mapping[str, Num]) -> dict[Key, Val]:
        """What the formulas give, of what the original's updates take."""
        statement, window = self.statement, self.window
        assert statement is not None
        seen: dict[Key, Any] = {(WEIGHT, name): value for name, value in start.items()}
        at = self._at()

        def seeing(what: str) -> Update:
            def see(node: Node, weight: str, taken: list[Val]) -> list[Val]:
                places = {what: facts(node.op).gradient, RATE: facts(node.op).rate}
                seen.update({(key, weight): taken[i] for key, i in places.items() if i is not None})
                return taken

            return see

        def leaving(t: int, value: Num) -> Val:
            mean = window.mean(t, value)
            seen.update(((GRADIENT, weight), mean) for weight in at.get(window.step.seams[t].name, ()))
            return mean

        for mean, what in ((lambda *_: exact(0), REST), (leaving, "whole")):
            of = making(mean, seeing(what))
            for name in start:
                of.of(window.step.states[name])
        for weight, one in statement.taken.items():
            if not one.update.at:
                rest = seen[REST, weight] if one.update.rest else exact(0)
                seen[GRADIENT, weight] = _minus(seen["whole", weight], rest)
        inputs = [window.terms.make(("given", i)) for i in range(len(statement.graph.inputs))]
        result = window.execution.run(statement.graph, {}, inputs).result
        values = window.numbers(None, {t: seen[key] for t, key in zip(inputs, statement.takes, strict=True)})
        return {key: values.of(t) for key, t in zip(statement.gives, result, strict=True)}


def _minus(a: Any, b: Any) -> Num:
    return plus(a, times(exact(-1), b))


def _refuse_treated(original: Program, weights: Collection[str]) -> None:
    """Unproved where many primitives update a weight by something else than the gradient that leaves the backward part,
    or where nothing tells: the formulas are about that gradient."""
    paths = [p for graph in original.graphs.values() if weights for p in gradient_paths(graph) if p.weight in weights]
    for path in paths:
        if path.assumed or any(point.stage for point in path.points):
            what = path.assumed or "the training cell or its optimizer does something to it first"
            raise Unproved(f"the gradient of weight '{path.weight}' is not what updates it ({what}): law missing")
