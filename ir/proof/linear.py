"""Which values of the original are gradients: what leaves the nodes that MindSpore's autodiff marked is not believed.

A gradient is linear in the derivative that begins at the loss, and has the elements of its weight. So each value that
leaves the marked part is followed up to the loss, primitive by primitive: a clip or a norm on the way shows. And what
updates a weight has its size: a derivative of something else, on its way to the gradient, does not.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from math import prod

from ..analysis.derivative.linearity import find_seeds
from ..analysis.effects.tokens import orders_only
from ..analysis.training.network import BACKWARD
from ..core.errors import AnatomyError
from ..core.graph import Graph, Node
from ..core.predicates import is_float_tensor
from ..symbolic.execution import Unproved
from ..symbolic.terms import Terms


def check_linear(graph: Graph, parts: Mapping[Node, str]) -> None:
    """:class:`Unproved` where a value that leaves the marked part is not shown to be linear in the derivative."""
    leaving = [
        (user, i)
        for node in graph
        if parts.get(node) == BACKWARD and is_float_tensor(node)
        for user, i in node.use_sites()
        if user not in parts and not orders_only(user, i) and not graph.is_return(user)
    ]
    try:
        find_seeds(graph, parts, leaving)
    except AnatomyError as error:
        raise Unproved(f"what is marked as a gradient is not linear in the derivative of the loss: {error}") from None


def check_sizes(terms: Terms, gradients: Mapping[str, Collection[int]], weights: Mapping[str, int]) -> None:
    """:class:`Unproved` where nothing that updates a weight has as many elements as it. ``weights``: their terms."""
    for name, seams in gradients.items():
        own, shapes = terms.shapes[weights[name]], [terms.shapes[t] for t in seams]
        if own is None or None in shapes or not shapes:
            continue
        if all(prod(shape) != prod(own) for shape in shapes if shape is not None):
            raise Unproved(f"what the file marks as the gradient of weight '{name}' has not as many elements as it")
