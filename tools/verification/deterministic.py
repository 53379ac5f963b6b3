"""Programs without chance: dropout keeps everything, so that two programs can be compared value by value."""

from __future__ import annotations

from ...ir.core.graph import Constant, Node
from ...ir.core.predicates import is_random
from ...ir.core.primitives import facts
from ...ir.core.program import Program


def without_dropout(program: Program) -> Program:
    """A copy in which every dropout keeps all elements; the program itself if it has none."""
    if not any(map(_drops, program.all_nodes())):
        return program
    copy = program.copy()
    for node in filter(_drops, copy.all_nodes()):
        if "keep_prob" in node.attributes:
            node.set_attribute("keep_prob", 1.0)
        for i in range(1, min(node.num_operands, 3)):
            value = node.operand(i)
            if isinstance(value, Constant) and isinstance(value.value, float):
                node.set_operand(i, node.home.constant(type(value.value)(1.0)))
                break
    return copy


def chances(program: Program) -> list[str]:
    """The random primitives that no switch makes certain."""
    return sorted({n.op.name for n in program.all_nodes() if is_random(n) and not _drops(n)})


def _drops(node: Node) -> bool:
    return facts(node.op).keep is not None or node.op.name.startswith("DropoutGrad")
