"""Products of the backward part that read a matrix as it lies, in the place of a transposed copy of it.

The gradient of a product takes the operands of that product transposed. On a CPU the Transpose in front of it makes a
copy, and keeps a list with the place of each element for as long as the graph exists. The product could read either
form. But on some processors it then adds in another order, so the last bits are no longer those of the native export.
"""

from __future__ import annotations

from collections.abc import Mapping

from ...ir.analysis.effects.tokens import orders_only
from ...ir.analysis.training.network import BACKWARD
from ...ir.core.graph import Graph, Node, Value
from ...ir.core.matrices import reads_turned, transposed


def read_as_they_lie(graph: Graph, network: Mapping[Node, str]) -> int:
    """Takes the transpositions at the operands and at the results of the backward part's products into the products.
    Returns how many products changed. Linear in nodes and operands."""
    changed = 0
    for node in [n for n in graph if network.get(n) == BACKWARD]:
        if (flags := reads_turned(node)) is None:
            continue
        operands, turned = zip(*map(_as_it_lies, node.operands[:2], flags), strict=True)
        last = _turner(node, network)
        if last is None and operands == node.operands[:2]:
            continue
        if last is not None:
            operands, turned = operands[::-1], tuple(not flag for flag in reversed(turned))
        result = last or node
        with graph.inserting_before(node):
            made = graph.create(
                "MatMul" if len(result.type.shape) == 2 else "BatchMatMul",  # type: ignore[attr-defined]
                [*operands, *map(graph.constant, turned)], result.type, scope=node.scope, sources=[node],
            )  # fmt: skip
        made.primal = node.primal
        for old in dict.fromkeys((result, node)):
            graph.substitute(old, made)
        changed += 1
    for node in reversed(list(graph)):
        source = transposed(node)
        if source is not None and all(orders_only(user, i) for user, i in node.use_sites()):
            graph.substitute(node, source)
    return changed


def _as_it_lies(value: Value, turned: bool) -> tuple[Value, bool]:
    """What a value is a transposition of, and whether it must be read transposed then."""
    while (source := transposed(value)) is not None:
        value, turned = source, not turned
    return value, turned


def _turner(node: Node, network: Mapping[Node, str]) -> Node | None:
    """The backward transposition that alone takes what a node computes."""
    takers = [user for user, i in node.use_sites() if not orders_only(user, i)]
    alone = len(takers) == 1 and network.get(takers[0]) == BACKWARD and transposed(takers[0]) is node
    return takers[0] if alone else None
