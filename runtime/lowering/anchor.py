"""On each target: a state that a function takes is read in the main graph too.

MindSpore 2.10 hands a function a copy of a Parameter that is an argument of the main graph and is used by nothing
there: an optimizer in the branch of a condition then updates the copy, and the Parameter stays as it was, without an
error. A Load that the result depends on is use enough, and computes nothing.
"""

from __future__ import annotations

from ...ir.core.attributes import MonadValue
from ...ir.core.graph import Graph, State
from ...ir.core.op import CALL
from ...ir.core.wording import counted
from .context import Context


def applies(graph: Graph, context: Context) -> bool:
    return bool(_passed(graph))


def run(graph: Graph, context: Context) -> str:
    passed = _passed(graph)
    token = graph.constant(MonadValue("umonad"), "u")
    loads = [graph.create("Load", [state, token]) for state in passed]
    graph.result = graph.create("Depend", [graph.result, graph.create("MakeTuple", loads)])
    return f"{counted(len(passed), 'state')} read in the main graph"


def _passed(graph: Graph) -> list[State]:
    """The states that the main graph hands to functions."""
    if not graph.functions:
        return []
    return [s for s in graph.states.values() if any(user.op is CALL or user.op.name == "Partial" for user in s.uses)]
