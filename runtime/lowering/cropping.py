"""On CPU: a padding that takes elements away is a slice (:mod:`...ir.rewrite.cropping`), in a program that went through
no pass too."""

from __future__ import annotations

from ...ir.core.graph import Graph
from ...ir.core.primitives import CPU
from ...ir.core.wording import counted
from ...ir.rewrite.cropping import crop, croppings
from .context import Context


def applies(graph: Graph, context: Context) -> bool:
    return context.target == CPU and any(map(croppings, graph.all_graphs()))


def run(graph: Graph, context: Context) -> str:
    found = [node for part in graph.all_graphs() for node in croppings(part)]
    for node in found:
        crop(node)
    return f"{counted(len(found), 'padding')} by slices"
