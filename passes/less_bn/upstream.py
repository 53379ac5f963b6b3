"""The residual blocks that ``mindspore.boost.LessBN`` knows, and what it removes from them.

Its C++ pass matches, from an Add, the chain of first operands of each summand against lists of primitives (MindSpore
2.10, less_batch_normalization.cc, patterns 1 to 6): bottleneck blocks and basic blocks, with a downsampling
convolution, with a ReLU, or with the stem's pooling on the other side. It removes every BatchNorm but the one next to
the Add in the first branch, that of a downsampling branch too. Its patterns for inverted residuals and dense blocks
are not repeated here.
"""

from __future__ import annotations

from collections.abc import Sequence

from ...ir.network import FORWARD
from ...ir.training import TrainingAnatomy
from ...ir.values import Node, Value

_NORM = ("TupleGetItem", "BatchNorm", "Conv2D")
_LAYER = (*_NORM, "ReLU")
_BLOCKS: tuple[tuple[tuple[str, ...], tuple[str, ...]], ...] = (
    (_LAYER * 3, _NORM),
    (_LAYER * 3, ("ReLU",)),
    (_LAYER * 2 + _NORM, _NORM),
    (_LAYER * 2, _NORM),
    (_LAYER + _NORM, ("MaxPool",)),
    (_LAYER * 2, ("ReLU",)),
)
"""Chains of the first and the second summand; the first pattern that matches counts."""


def removed_upstream(found: TrainingAnatomy) -> dict[Node, Node]:
    """The BatchNorms that upstream removes, with the Add of their block."""
    removed: dict[Node, Node] = {}
    for node in found.graph:
        if node.op.name != "Add" or found.part(node) != FORWARD:
            continue
        for first, second in _BLOCKS:
            chains = _chain(node.operand(0), first), _chain(node.operand(1), second)
            if all(chains):
                main, other = ([n for n in chain if n.op.name == "BatchNorm"] for chain in chains)
                removed.update((n, node) for n in (*main[1:], *other))
                break
    return removed


def _chain(value: Value, names: Sequence[str]) -> list[Node]:
    """The nodes of these names that follow each other along first operands; empty if they do not."""
    chain: list[Node] = []
    for name in names:
        if not isinstance(value, Node) or value.op.name != name:
            return []
        chain.append(value)
        value = value.operand(0)
    return chain
