"""When the loss scales of groups change: the rule of MindSpore's ``GroupLossScaleManager``, once a cycle, in the graph.

As for one scale (:mod:`.dynamic_loss_scale`), the rule needs the scales' states and the answer of the overflow check;
whichever pass comes second puts the rule.

Upstream a scale is multiplied by 2^(1/1000) in every cycle, or by 1/√2 after an overflow of its group. Here the scale
that is applied is a power of two, which changes no bit, and the fraction of an octave that upstream's scale is above it
is counted in whole steps: upstream's is ``value`` · 2^(``steps``/window), without the rounding of a product that is
formed a thousand times.
"""

from __future__ import annotations

from collections.abc import Mapping

from ...ir.analysis.training.gradient_path import gradient_paths, updating_graphs
from ...ir.builders.nodes import Nodes
from ...ir.builders.reduce import all_finite, all_true
from ...ir.core.graph import Graph, State, Value
from ...ir.core.names import OVERFLOW
from ...ir.core.program import Program
from ...ir.core.types import TensorType, tensor
from ...ir.rewrite.effects.editing import Effects
from .names import steps_of, value_of
from .results import named_results

SCOPE = "group-loss-scale"


def put_group_rule(program: Program) -> None:
    """Does nothing where there are no groups, or no graph knows of overflows (yet)."""
    if value_of(0) not in program.state:
        return
    rule = program.state[value_of(0)].info
    group_of = {weight: k for k in rule["order"] for weight in program.state[value_of(k)].info["weights"]}
    for graph in updating_graphs(program):
        overflow = dict(named_results(graph)).get(OVERFLOW)
        if overflow is not None:
            _Rule(graph, rule["order"], rule["window"], rule["min"], rule["max"]).put(overflow, group_of)


class _Rule(Nodes):
    """``order``: the groups from the input to the loss."""

    def __init__(self, graph: Graph, order: list[int], window: int, least: float, most: float):
        super().__init__(graph, SCOPE)
        self.fx = Effects(graph)
        self.order = order
        self.window = window
        self.least = least
        self.most = most
        self.states = {k: (self._state(value_of(k)), self._state(steps_of(k))) for k in order}
        self.loaded = {k: tuple(self.fx.load(s, scope=SCOPE) for s in states) for k, states in self.states.items()}

    def put(self, overflow: Value, group_of: Mapping[str, int]) -> None:
        """``group_of``: the group of each weight."""
        blamed = self._blamed(overflow, self._gradients(group_of))
        for k in self.order:
            value, steps = self.loaded[k]
            smaller, larger = self._smaller(value, steps), self._larger(value, steps)
            for i, state in enumerate(self.states[k]):
                new = self.op("Select", blamed[k], smaller[i], larger[i])
                self.fx.append("Assign", [state, new], scope=SCOPE)
        self.fx.commit()

    # -- whose overflow it is ----------------------------------------------------------------------------------

    def _gradients(self, group_of: Mapping[str, int]) -> dict[int, list[Value]]:
        """The gradients of each group, as the overflow check tests them: the same on all ranks."""
        found: dict[int, dict[Value, None]] = {}
        for path in gradient_paths(self.graph):
            k = group_of.get(path.weight, self.order[-1])
            found.setdefault(k, {}).update(dict.fromkeys(path.at("finite-check", self.graph).values))
        return {k: list(values) for k, values in found.items()}

    def _blamed(self, overflow: Value, gradients: Mapping[int, list[Value]]) -> dict[int, Value]:
        """Which groups shrink. Infinities flow from the loss to the input and infect the gradients of all groups on
        their way, so of the groups that are not finite the one nearest to the loss overflowed.

        A group that is at its minimum cannot help: what overflowed was computed before the derivative came to it, by
        the next group's scale, which shrinks too. Where an overflow is known and not whose it is, all shrink."""
        before: Value | None = None  # whether all groups nearer to the loss are finite
        blamed: dict[int, Value] = {}
        for k in reversed(self.order):
            if k not in gradients:
                continue  # all frozen
            here = all_true(self.graph, [self._finite(value) for value in gradients[k]], scope=SCOPE)
            # In this form what is left is right too where a later pass takes the gradients of a group away.
            here = here if before is None else self.op("LogicalAnd", before, here)
            bad = self.op("LogicalNot", here)
            blamed[k] = bad if before is None else self.op("LogicalAnd", before, bad)
            before = here
        unknown = overflow if before is None else self.op("LogicalAnd", overflow, before)
        passed: Value = unknown
        for k in self.order:
            blamed[k] = self.op("LogicalOr", blamed[k], passed) if k in blamed else passed
            stuck = self.op("LessEqual", self.loaded[k][0], self.number(self.least))
            passed = self.op("LogicalOr", unknown, self.op("LogicalAnd", blamed[k], stuck))
        return blamed

    def _finite(self, gradient: Value) -> Value:
        """Whether a gradient is finite: as the overflow check has asked, where it did so in this graph."""
        for user in gradient.uses:
            if user.op.name == "IsFinite" and user.graph is self.graph:
                for answer in user.uses:
                    if answer.op.name == "ReduceAll" and isinstance(answer.type, TensorType) and not answer.type.shape:
                        return answer
        return all_finite(self.graph, [gradient], scope=SCOPE)

    # -- how it changes ----------------------------------------------------------------------------------------

    def _larger(self, value: Value, steps: Value) -> tuple[Value, Value]:
        """One step up: 2^(1/window) times as large, at most ``most``."""
        more = self.op("Add", steps, self.number(1.0))
        octave = self.op("GreaterEqual", more, self.number(self.window))
        full = self.op("GreaterEqual", value, self.number(self.most))
        new = self.op("Select", octave, self.op("Mul", value, self.number(2.0)), value)
        anew = self.op("LogicalOr", octave, full)
        return new, self.op("Select", anew, self.number(0.0), more)

    def _smaller(self, value: Value, steps: Value) -> tuple[Value, Value]:
        """Half an octave down: divided by √2, at least ``least``."""
        fewer = self.op("Sub", steps, self.number(self.window // 2))
        octave = self.op("Less", fewer, self.number(0.0))
        new = self.op("Select", octave, self.op("Mul", value, self.number(0.5)), value)
        left = self.op("Select", octave, self.op("Add", fewer, self.number(self.window)), fewer)
        least, zero = self.number(self.least), self.number(0.0)
        below = self.op("Less", new, least)
        return self.op("Maximum", new, least), self.op("Select", below, zero, left)

    def _state(self, name: str) -> State:
        return self.graph.state(name, tensor("float32"))
