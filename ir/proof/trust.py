"""What a proof trusts: which values of the original are gradients. They are those that leave nodes which MindSpore's
autodiff marked as backward.

The marks are not believed alone. A gradient is linear in the derivative that begins at the loss. So each value that
leaves the marked part is followed up to there, primitive by primitive: a clip or a norm on the way would show. Whose
gradient it is follows from the terms (:mod:`.weight_updates`).
"""

from __future__ import annotations

from collections.abc import Mapping

from ..analysis.derivative.linearity import find_seeds
from ..analysis.effects.tokens import orders_only
from ..analysis.training.network import BACKWARD
from ..core.errors import AnatomyError
from ..core.graph import Graph, Node
from ..core.predicates import is_float_tensor


def trusted(graph: Graph, parts: Mapping[Node, str]) -> str:
    """What a proof trusts of the anatomy, in words."""
    leaving = [
        (user, i)
        for node in graph
        if parts.get(node) == BACKWARD and is_float_tensor(node)
        for user, i in node.use_sites()
        if user not in parts and not orders_only(user, i) and not graph.is_return(user)
    ]
    what = "which values are gradients: what leaves the nodes that MindSpore's autodiff marked"
    try:
        find_seeds(graph, parts, leaving)
    except AnatomyError:
        return f"{what}; not all of it was shown to be linear in the derivative of the loss"
    return f"{what}; each is linear in the derivative of the loss"
