"""What the update takes of values of the batch that are no gradients: as the user says, or an error that names them."""

from __future__ import annotations

from collections.abc import Sequence

from ...ir.analysis.training.anatomy import TrainingAnatomy
from ...ir.analysis.training.dependence import Dependence, dependences
from ...ir.core.errors import PassError
from ...ir.core.graph import Input, Value
from ...ir.core.names import FORWARD_ID
from ...ir.core.sites import site
from ...ir.core.types import TensorType
from ..step.split import Crossing, Cut
from .graphs import SCOPE
from .plan import Kept

HOW = ("last", "mean", "each")


class Carry:
    """``said``: ``HOW`` for all values, or ``NAME:HOW`` for the value or the state of a name."""

    def __init__(self, found: TrainingAnatomy, cut: Cut, said: Sequence[str]):
        self.graph = found.graph
        self.weights = {info.name for info in found.weights}
        self.cut = cut
        carried = {c.value for c in cut.carried}
        self.depends = {v: d for v, d in (dependences(found) if carried else {}).items() if v in carried}
        self._said = {name: how for name, _, how in (entry.rpartition(":") for entry in said)}
        used: set[str] = set()
        self.how: dict[Value, str] = {}
        for value, dependence in self.depends.items():
            name = next((n for n in (*self._names(value), *dependence.states, "") if n in self._said), None)
            if name is not None:
                used.add(name)
                self.how[value] = self._said[name]
            elif dependence.tested:
                self.how[value] = "mean"
            else:
                self._refuse(value, dependence)
            if self.how[value] == "each" and dependence.gradients:
                raise PassError(
                    f"carry=each: {self._states(dependence)} takes gradients too, which come once a window: it cannot "
                    "move with each micro-batch. Say last or mean."
                )
        unknown = self._said.keys() - used - {""}
        if unknown:
            raise PassError(
                f"carry={min(unknown)}:{self._said[min(unknown)]}: the update takes no value of that name besides "
                f"gradients, and no such state depends on one{self._known()}"
            )

    def _known(self) -> str:
        names = [self._names(v)[0] for v in self.depends]
        return f" (it takes {', '.join(names)})" if names else ""

    def _names(self, value: Value) -> list[str]:
        """What a user calls a value: a result, an input, or a node."""
        return [*(name for name, element in self.cut.outputs.network if element is value), value.name]

    def _refuse(self, value: Value, dependence: Dependence) -> None:
        name = self._names(value)[0]
        write = next(iter(dependence.writes))
        each = "" if dependence.gradients else "; or each, by which the state moves with each micro-batch"
        kind = "input" if isinstance(value, Input) else "value"
        where = "" if isinstance(value, Input) else f" of {site(value)}"
        raise PassError(
            f"{self._states(dependence)} (by {site(write)}) depends on the batch by the {kind} '{name}'{where}, not "
            "through averaged gradients alone: with one update for several micro-batches it would take the last one's. "
            f"Say what it is to take: {SCOPE}{{carry={name}:last}}, or mean{each}"
        )

    def move_each(self) -> bool:
        """Makes writes that are to move with each micro-batch part of the forward part; says whether there were any."""
        moved = [node for value, d in self.depends.items() if self.how[value] == "each" for node in d.writes]
        for node in moved:
            if node.graph is not self.graph:
                raise PassError(f"carry=each: {site(node)} stands in a function: it cannot be moved out of the update")
            node.primal = {**node.primal, FORWARD_ID: f"{SCOPE}.{node.name}"}
        return bool(moved)

    def kept(self, crossing: Crossing) -> Kept:
        """The state that carries a value to the update."""
        dtype, shape = crossing.type.dtype, crossing.type.shape
        mean = self.how.get(crossing.value) == "mean"
        if mean and not dtype.is_float:
            raise PassError(f"carry=mean: {site(crossing.value)} is of type {dtype.value}, which has no mean: say last")
        type_ = TensorType(dtype.widened if mean else dtype, shape)
        return Kept(crossing, f"carry.{crossing.value.name}", type_, mean)

    def _states(self, dependence: Dependence) -> str:
        """The states that depend on a value, weights first."""
        names = [f"'{name}'" for name in sorted(dependence.states, key=lambda name: name not in self.weights)]
        shown = ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")
        return f"the update of {shown}"
