"""BatchNorms that use their statistics as they are and learn none: what an export in inference mode leaves."""

from __future__ import annotations

from ...core.graph import Constant, Node

IS_TRAINING = {"BatchNorm": 5, "BatchNormExt": 5}
"""The operand that says whether statistics are those of the batch, and learnt."""


def rests(node: Node) -> bool:
    """Whether it is a BatchNorm in inference mode."""
    at = IS_TRAINING.get(node.op.name)
    if at is None:
        return False
    if at >= node.num_operands:
        return node.op.attributes.get("is_training") is False
    mode = node.operand(at)
    return isinstance(mode, Constant) and mode.value is False
