"""Dense layers as they are exported: a product, and the addition of a bias behind it."""

from __future__ import annotations

from ...ir.analysis.effects.state_access import state_behind
from ...ir.analysis.effects.tokens import orders_only
from ...ir.analysis.training.anatomy import TrainingAnatomy
from ...ir.analysis.training.network import BACKWARD, FORWARD
from ...ir.core.graph import Node, Value, tensor_type
from ...ir.core.walk import through


def takers(value: Value) -> list[Node]:
    """Who takes a value, and does not merely wait for it."""
    return [user for user, i in value.use_sites() if not orders_only(user, i)]


def flag(node: Node, i: int) -> bool:
    """Whether operand ``i``, where there is one, is a constant that says yes."""
    return i < node.num_operands and bool(node.operand(i).literal)


def bias_addition(found: TrainingAnatomy, product: Node) -> Node | None:
    """The addition of a vector of the network's own that is all that takes the product."""
    users = [n for n in takers(product) if found.part(n) in (FORWARD, BACKWARD)]
    if len(users) != 1 or users[0].op.name not in ("BiasAdd", "Add", "AddExt") or users[0].operand(0) is not product:
        return None
    bias = through(users[0].operand(1), ("Cast",))
    is_vector = state_behind(bias) is not None and len(tensor_type(bias).shape) == 1
    return users[0] if is_vector else None
