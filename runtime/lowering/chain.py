"""On each target: a chain of effects as the exporter writes it becomes one as passes leave it.

The exporter's UpdateState lists values that only order memory besides the effect that it is the token of. MindSpore
optimizes a graph once more where a Cell calls it, as a session does. There it removes a Load that nothing else takes,
and with it the token that lists it, and so the effect besides: where the loss reads a memory bank behind a counter, the
first weight never moves, without an error. ``nn.GraphCell`` on the file is right, and so is a chain whose tokens list
effects alone, or one tuple. A graph in which nothing says whether a tensor is read before it is written in place keeps
its chain, whose order is then MindSpore's.
"""

from __future__ import annotations

from ...ir.analysis.effects.state_access import summarize
from ...ir.core.errors import PassError
from ...ir.core.graph import Graph, Node
from ...ir.core.predicates import is_effect
from ...ir.core.wording import counted
from ...ir.rewrite.effects.editing import Effects
from ...ir.rewrite.in_place import without_writes
from .context import Context


def applies(graph: Graph, context: Context) -> bool:
    return any(node.op.name == "UpdateState" and _waits_besides(node) for node in graph.all_nodes())


def _waits_besides(token: Node) -> bool:
    """Whether a token lists a value that has no effect."""
    return any(not (isinstance(v, Node) and is_effect(v)) for v in token.operands[2:])


def run(graph: Graph, context: Context) -> str:
    try:
        without_writes(graph, context.target)
    except PassError:
        return ""
    known = summarize(graph)
    rebuilt = [Effects(each, known).recommit() for each in graph.all_graphs()]
    return f"{counted(sum(r.links_before for r in rebuilt), 'token link')} to {sum(r.links_after for r in rebuilt)}"
