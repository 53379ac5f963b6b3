"""Calls that update or do nothing, as passes write them: a Switch between two functions."""

from __future__ import annotations

from dataclasses import dataclass

from ...ir.analysis.effects.effect_list import list_effects
from ...ir.analysis.effects.tokens import orders_only
from ...ir.analysis.functions.calls import switch_behind
from ...ir.core.graph import Graph, GraphRef, Node, Value
from ...ir.core.op import CALL


@dataclass(frozen=True, slots=True)
class Conditional:
    """The ``function`` that ``call`` runs unless ``condition`` is ``skips``, with its ``arguments``: its ``branch``."""

    call: Node
    condition: Value
    skips: bool
    branch: Value
    function: Graph
    arguments: tuple[Value, ...]

    @property
    def given(self) -> dict[Value, Value]:
        """What each input of the function stands for."""
        return dict[Value, Value](zip(self.function.inputs, self.arguments, strict=True))


def conditional(call: Node) -> Conditional | None:
    """A node as a call that runs one of two functions, of which the other writes nothing, and whose result nobody
    takes; None where it is anything else."""
    switch = switch_behind(call.operand(0)) if call.op is CALL and call.num_operands == 1 else None
    if switch is None or not all(orders_only(*use) for use in call.use_sites()):
        return None
    branches = [bound(switch.operand(i)) for i in (1, 2)]
    does = [branch is not None and bool(list_effects(branch[0]).writes()) for branch in branches]
    if None in branches or sum(does) != 1:
        return None
    function, arguments = branches[does.index(True)]  # type: ignore[misc]  # neither is None
    return Conditional(call, switch.operand(0), does[1], switch.operand(1 + does.index(True)), function, arguments)


def bound(closure: Value) -> tuple[Graph, tuple[Value, ...]] | None:
    """The function of a Partial that nobody else takes, and its arguments."""
    if not (isinstance(closure, Node) and closure.op.name == "Partial"):
        return None
    function = closure.operand(0)
    if not isinstance(function, GraphRef) or len(function.uses) != 1 or len(closure.uses) != 1:
        return None
    return function.graph, closure.operands[1:]
