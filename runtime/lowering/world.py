"""In a job: collectives among all ranks get the name that their group has on the target."""

from __future__ import annotations

from ...ir.core.graph import Graph, Node
from ...ir.core.wording import counted
from ...ir.rewrite.ranks.collectives import WORLD, collectives, group_of, is_world
from .context import Context


def applies(graph: Graph, context: Context) -> bool:
    return context.ranks > 1 and bool(_misnamed(graph, context))


def run(graph: Graph, context: Context) -> str:
    nodes = _misnamed(graph, context)
    for node in nodes:
        node.set_attribute("group", WORLD[context.target])
    return f"group of {counted(len(nodes), 'collective')} named {WORLD[context.target]}"


def _misnamed(graph: Graph, context: Context) -> list[Node]:
    name = WORLD[context.target]
    return [node for node in collectives(graph) if is_world(group_of(node)) and group_of(node) != name]
