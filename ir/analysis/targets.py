"""Kernels that a target lacks, and the message about them."""

from __future__ import annotations

from ..core.graph import Graph, Node
from ..core.primitives import facts

ADVICE = {
    "Lamb": "What it computes is defined by its kernels only; nn.AdamWeightDecay trains on every target.",
    "LARSUpdate": "What it computes is defined by its kernel only; export without nn.LARS.",
    "InstanceNorm": "nn.GroupNorm with as many groups as channels runs on every target.",
}


def lacking(main: Graph, target: str) -> list[Node]:
    """Nodes of a main graph and its functions that need a kernel which the target is known to lack."""
    return [node for graph in main.all_graphs() for node in graph if target not in facts(node.op).targets]


def refusal(node: Node, graph: str, target: str) -> str:
    """The message about a node that the target has no kernel for and that nothing replaces."""
    where = f"graph '{graph}'" if node.graph is None or node.graph.owner is None else f"function '{node.graph.name}'"
    scope = f", scope {node.scope}" if node.scope else ""
    others = " and ".join(sorted(facts(node.op).targets))
    advice = ADVICE.get(node.op.name, "Export the training cell without it.")
    return (
        f"MindSpore has no {target} kernel for {node.op.name} (node %{node.name}{scope}, {where}), and no rule "
        f"replaces it. {advice} Or compile for {others}, which have it."
    )
