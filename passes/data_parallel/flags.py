"""Overflow flags that a file keeps, told by a device and so other ones on other ranks."""

from __future__ import annotations

from ...ir.analysis.training.network import network_parts
from ...ir.builders.cast import cast
from ...ir.core.errors import PassError
from ...ir.core.graph import Constant, Graph, rewire, tensor_type
from ...ir.core.primitives import CPU
from ...ir.core.sites import site
from ...ir.core.types import DType
from ...ir.rewrite.ranks.collectives import all_reduce, group_of, is_collective
from ..step.crossings import taken
from ..step.exported_reductions import SCOPE


def sum_flags(graph: Graph, target: str, group: str) -> None:
    """Overflow flags that the file keeps: asked of the device they differ by rank, so they are summed; and MindSpore's
    CPU sums no integers, so those that are summed already go through float32."""
    parts = network_parts(graph)
    own = [n for n in graph if n.op.name == "AllReduce" and n not in parts and not isinstance(n.operand(0), Constant)]
    for node in list(graph):
        if node.op.name == "NPUGetFloatStatus" and not own:
            raise PassError(
                f"graph '{graph.name}' asks this device alone for overflows (by {site(node)}), so ranks would skip "
                "updates "
                "apart from each other: export the training cell in DATA_PARALLEL mode"
            )
        asked_by_file = node.op.name == "NPUGetFloatStatusV2" and node.origin is None
        if asked_by_file and not any(is_collective(user) for user in node.uses):
            uses = taken(node)
            rewire(uses, all_reduce(graph, node, group, scope=SCOPE))
    for node in own:
        dtype = tensor_type(node).dtype
        if target == CPU and not dtype.is_float:
            number = cast(graph, node.operand(0), DType.FLOAT32, scope=SCOPE)
            total = all_reduce(graph, number, group_of(node), scope=SCOPE)
            node.replace_uses(cast(graph, total, dtype, scope=SCOPE))
