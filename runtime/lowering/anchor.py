"""Making functions write to the session's state and not to a copy of it."""

from __future__ import annotations

from ...ir.core.attributes import MonadValue
from ...ir.core.graph import Graph
from ...ir.core.op import CALL


def anchor_state(graph: Graph) -> Graph:
    """A copy of ``graph`` that reads, to no end, every state that it passes to a function; ``graph`` itself if it
    passes none.

    MindSpore 2.10 hands a function a copy of a Parameter that is an argument of the main graph and is used by
    nothing there: an optimizer in the branch of a condition then updates the copy, and the Parameter stays as it
    was, without an error. A Load that the result depends on is use enough, and computes nothing.
    """
    if not graph.functions:
        return graph
    copy = graph.clone()[0]
    passed = [
        state
        for state in copy.states.values()
        if any(user.op is CALL or user.op.name == "Partial" for user in state.uses)
    ]
    if passed:
        token = copy.constant(MonadValue("umonad"), "u")
        loads = [copy.create("Load", [state, token]) for state in passed]
        copy.result = copy.create("Depend", [copy.result, copy.create("MakeTuple", loads)])
    return copy
