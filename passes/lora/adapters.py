"""An adapter beside each product of a weight: y + (alpha / rank) · (x · Aᵀ) · Bᵀ, in forward and backward.

The gradients of A and B come from the layer's input and from the gradient of its result, which the graph holds. The
gradient of the weight itself is needed for neither.

What is as thin as the rank lies: it has few rows and not few columns, since kernels on CPU take up to four times as
long for the latter. And it is the thin side that is multiplied by alpha / rank.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod

from ...ir.builders.nodes import Nodes
from ...ir.core.attributes import Attribute
from ...ir.core.graph import Node, State, Value, rewire, tensor_type
from ...ir.core.names import ADAPTER, ALPHA, BACKWARD_ID, FORWARD_ID, INPUTS_FIRST
from ...ir.rewrite.effects.editing import Effects
from .sites import Adapted, Site

Marks = Mapping[str, Attribute]


def put_adapter(fx: Effects, adapted: Adapted, states: Sequence[State], alpha: float) -> list[dict[Node, Node]]:
    """Puts the adapter with the matrices ``states``, A and B, beside each product of a weight. Returns the gradients of
    both, in the place of each of the weight's."""
    name = adapted.info.name
    graph = fx.graph
    own = Nodes(graph, adapted.sites[0].product.scope, {FORWARD_ID: f"lora.{name}"})
    with graph.inserting_after(None):
        loaded = [own.linked(fx.load(state, scope=own.scope)) for state in states]
    shares: list[dict[Node, list[Value]]] = [{}, {}]
    for number, site in enumerate(adapted.sites):
        marks: Marks = {ADAPTER: name, ALPHA: alpha, INPUTS_FIRST: adapted.inputs_first}
        own_shares = _beside(site, f"lora.{name}.{number}", loaded, alpha, marks)
        for found, share in zip(shares, own_shares, strict=False):
            assert site.gradient is not None
            found.setdefault(site.gradient, []).append(share)
    return [{gradient: _sum(gradient, found[gradient]) for gradient in found} for found in shares]


def _beside(site: Site, number: str, loaded: Sequence[Node], alpha: float, marks: Marks) -> Sequence[Value]:
    """The adapter beside one product; its shares of the gradients of A and B, where it has them. ``number`` links the
    derivative to what it is the derivative of."""
    graph, scope = site.product.home, site.product.scope
    dtype = tensor_type(site.product).dtype
    n = Nodes(graph, scope, {FORWARD_ID: number})
    # Each node stands where the layer's own do: what stands behind an update is taken to read what it wrote.
    uses = list(site.result.use_sites())
    with graph.inserting_after(site.result):
        a, b = (n.cast(matrix, dtype) for matrix in loaded)
        x = _matrix(n, site.x)
        scale = alpha / tensor_type(a).shape[0]
        inner = n.scaled(n.matmul(a, x, transpose_b=True), scale)
        outer = n.matmul(inner, b, transpose_a=True, transpose_b=True)
        total = n.op("Add", site.result, n.reshape(outer, *tensor_type(site.result).shape))
    total.marks = marks
    rewire(uses, total)

    if site.dy is None:
        return ()
    n = Nodes(graph, f"Gradients/{scope}", {BACKWARD_ID: number})
    with graph.inserting_after(site.dy):
        dinner = n.scaled(n.matmul(n.transpose(b, 1, 0), site.dy, transpose_b=True), scale)
        da, db = n.matmul(dinner, x), n.transpose(n.matmul(inner, site.dy), 1, 0)
    if site.dx is not None:
        uses = list(site.dx.use_sites())
        with graph.inserting_after(site.dx):
            share = n.reshape(n.matmul(dinner, a, transpose_a=True), *tensor_type(site.dx).shape)
            rewire(uses, n.op("Add", site.dx, share))
    return da, db


def _matrix(n: Nodes, x: Value) -> Value:
    """The input of a layer with all its rows below each other."""
    *rows, width = tensor_type(x).shape
    return n.reshape(x, -1 if -1 in rows else prod(rows), width)


def _sum(gradient: Node, shares: Sequence[Value]) -> Node:
    """The sum of the shares, in the type of the gradient whose place it takes."""
    n = Nodes(gradient.home, gradient.scope, gradient.primal)
    total, *others = shares
    with n.graph.inserting_after(gradient):
        for other in others:
            total = n.op("Add", total, other)
        total = n.cast(total, tensor_type(gradient).dtype)
    assert isinstance(total, Node)
    return total
