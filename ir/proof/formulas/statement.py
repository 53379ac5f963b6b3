"""What the updates of a program are to take instead of what the original's take, as one graph.

Its inputs are what the original computes: the gradient of each weight behind all that the original itself does to it
but weight decay, the decay that is added to it, the learning rate. Its outputs are what takes their places. Formulas
write the graph one after the other, in the order in which a gradient meets them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ...builders.nodes import Nodes
from ...core.graph import Graph, Value
from ...core.types import Type
from ..gradients import Update

GRADIENT, REST, RATE, WEIGHT = "gradient", "rest", "rate", "weight"
"""What an input is of a weight: its gradient, the decay that is added to it, its learning rate, its value."""
TAKEN, DECAY, STEP, RESULT = "taken", "decay", "step", "result"
"""What an output is, or :data:`RATE`: what the update takes as gradient, the decay operand of its primitive, a factor
of the step of the weight; a result of this name."""


@dataclass(eq=False)
class Taken:
    """What the update of a weight takes as gradient, while formulas change it: the sum of two values."""

    update: Update
    gradient: Value
    rest: Value | None
    changed: bool = False


class Statement:
    """``graph``: of the formulas. ``takes`` says what each input is, of which weight; ``gives`` the same of the
    outputs."""

    def __init__(self, updates: Mapping[str, Update], weights: Mapping[str, Type]):
        """``weights``: the types of all."""
        self.graph = Graph("formula")
        self.nodes = Nodes(self.graph, "")
        self.takes: dict[tuple[str, str], Value] = {}
        self.gives: dict[tuple[str, str], Value] = {}
        self._weights = weights
        self.taken: dict[str, Taken] = {}
        for name, u in updates.items():
            gradient = self._input(GRADIENT, name, u.type)
            rest = self._input(REST, name, u.type) if u.rest else None
            self.taken[name] = Taken(u, gradient, rest)

    def _input(self, what: str, weight: str, type_: Type) -> Value:
        if (what, weight) not in self.takes:
            self.takes[what, weight] = self.graph.add_input(f"{what}_{len(self.takes)}", type_)
        return self.takes[what, weight]

    def weight(self, name: str) -> Value:
        return self._input(WEIGHT, name, self._weights[name])

    def rate(self, name: str) -> Value | None:
        """The learning rate of a weight, as it is by now; None where its update takes none as it is."""
        update = self.taken[name].update
        at = update.facts.rate
        if at is None or update.node is None:
            return None
        return self.gives.get((RATE, name)) or self._input(RATE, name, update.node.operand(at).type)

    def whole(self, name: str) -> Value:
        """All that is taken, as one value, which is the gradient from now on."""
        one = self.taken[name]
        if one.rest is not None:
            one.gradient, one.rest = self.nodes.op("Add", one.gradient, one.rest), None
        return one.gradient

    def finish(self) -> None:
        """Gives the graph its result."""
        for name, one in self.taken.items():
            if one.changed:
                self.gives[TAKEN, name] = self.whole(name)
        self.graph.result = self.nodes.op("MakeTuple", *self.gives.values())


@dataclass(frozen=True, slots=True)
class Stated:
    """A formula as a pass stated it: its options, the formula in words, the weights that it is about, and the
    ``states`` besides these and their slots."""

    by: str
    options: Mapping[str, Any]
    says: str
    weights: tuple[str, ...]
    states: tuple[str, ...] = ()

    def changes(self, name: str, weight: str) -> bool:
        """Whether it is about a state of this name, which belongs to this weight, if to any."""
        return name in self.weights or weight in self.weights or name in self.states
