"""Calls of functions as the source can write them: of one function, or of one of two by a condition."""

from __future__ import annotations

from dataclasses import dataclass

from ...analysis.functions.calls import Target, reachable_functions, switch_behind, targets, without_tokens
from ...core.errors import PassError
from ...core.graph import Graph, Node, Value


@dataclass(frozen=True)
class Call:
    """``condition`` chooses between two ``targets``; without one there is a single target."""

    condition: Value | None
    targets: tuple[Target, ...]

    def values(self) -> list[Value]:
        """The condition, and the arguments of all targets."""
        found = [] if self.condition is None else [self.condition]
        return found + [v for t in self.targets for v in without_tokens(t.arguments)]


def call_of(node: Node) -> Call:
    """The callees of a call. PassError, naming the node, where it is neither."""
    found = tuple(targets(node) or ())
    switch = switch_behind(node.operand(0))
    if switch is None and len(found) == 1:
        return Call(None, found)
    if switch is not None and len(found) == 2 and not any(map(switch_behind, switch.operands[1:])):
        return Call(switch.operand(0), found)
    raise PassError(
        f"node %{node.name} (call, scope '{node.scope}'): which function it calls is not decided by one condition at "
        "the call; this control flow cannot be written as Python"
    )


def calls_itself(function: Graph) -> bool:
    """Whether a call of the function leads to itself again: it is the head of a loop."""
    return function.name in reachable_functions(function)
