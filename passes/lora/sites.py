"""The products that a weight takes part in, in forward and backward: beside each of them stands an adapter.

A weight that takes part in anything else can have none, since an adapter is added to a product. Which backward node
belongs to which product is read off their operands: the weight's gradient is a product with the layer's input, and the
input's gradient one with the weight. Numbers of the exporter do not tell two layers of one function apart.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from ...ir.analysis.effects.tokens import orders_only
from ...ir.analysis.training.anatomy import TrainingAnatomy
from ...ir.analysis.training.network import BACKWARD, FORWARD
from ...ir.analysis.training.weights import WeightInfo
from ...ir.core.graph import Node, Value, tensor_type
from ...ir.core.matrices import transposed
from ...ir.core.names import DUPLICATED
from ...ir.core.primitives import Family, named
from ...ir.core.sites import site
from ...ir.core.types import TensorType
from ...ir.core.walk import through, unpacked, walk
from ..step.dense_layers import bias_addition, flag, takers

DENSE = "Dense"
PRODUCTS = named(Family.MATMUL) | {DENSE}
_SUMS = named(Family.SUM)
_BRINGING = named(Family.COPY, Family.CAST, Family.TRANSPOSE) | {"Load", "Depend"}
"""What brings a matrix from where it is made to where it is used."""
_SHAPING = _BRINGING | named(Family.RESHAPE)


class Unfit(Exception):
    """Why a weight can have no adapter."""


@dataclass
class Site:
    """One product ``x`` · W. ``result``: the product, or what adds its bias. ``dy``: the gradient of the result, a
    matrix with a row for each row of ``x``; None where the loss does not follow from it (stop_gradient). ``dx``: the
    share of the gradient of ``x``, None where nothing asks for it. ``gradient``: the value among the weight's gradients
    in which the share of this product is."""

    product: Node
    x: Value
    result: Node
    dy: Value | None = None
    gradient: Node | None = None
    dx: Node | None = None


@dataclass(frozen=True)
class Adapted:
    """A weight of ``inputs`` × ``outputs``, or the other way round unless ``inputs_first``. ``own``: the nodes of
    forward and backward that take it."""

    info: WeightInfo
    sites: tuple[Site, ...]
    own: frozenset[Node]
    inputs: int
    outputs: int
    inputs_first: bool


def find_sites(found: TrainingAnatomy, info: WeightInfo) -> Adapted:
    """The products of a trained weight; :class:`Unfit` where it has part in anything else."""
    state = found.graph.states[info.name]
    shape = tensor_type(state).shape
    if len(shape) != 2 or -1 in shape:
        raise Unfit(f"it is {state.type}, no matrix")
    if info.copies:
        raise Unfit(f"the step copies it to '{info.copies[0]}', which the network takes and no adapter would follow")
    turned = _turned(found, state)
    own = {v for v in turned if isinstance(v, Node) and v.op.name != "Load"}
    products: list[Node] = []
    dx: list[Node] = []
    inputs_first: set[bool] = set()
    for value, lies_turned in turned.items():
        for user, i in value.use_sites():
            if user in turned or orders_only(user, i) or found.part(user) not in (FORWARD, BACKWARD):
                continue
            if user.op.name not in PRODUCTS or i != 1 or user.graph is not found.graph:
                raise Unfit(f"{site(user)} takes it, and that is no product of an input with it")
            own.add(user)
            if DUPLICATED in user.marks:
                raise _computed_again(user)
            if found.part(user) == BACKWARD:
                dx.append(user)
                continue
            if user.op.name != DENSE and flag(user, 2):
                raise Unfit(f"the input of {site(user)} is transposed")
            products.append(user)
            inputs_first.add(lies_turned == (user.op.name == DENSE or flag(user, 3)))
    if len(inputs_first) != 1:
        raise Unfit("products take it both as it is and transposed" if products else "no product takes it")
    first = inputs_first.pop()
    sites = _with_gradients(found, info, products)
    for node in dx:
        _claim(sites, node)
    return Adapted(info, tuple(sites), frozenset(own), shape[not first], shape[first], first)


def _turned(found: TrainingAnatomy, state: Value) -> dict[Value, bool]:
    """The values that are the weight in forward and backward, and whether they are it transposed."""
    turned = {state: False}

    def brought(value: Value) -> Iterator[Node]:
        for user, i in value.use_sites():
            network = found.part(user) in (FORWARD, BACKWARD) or user.op.name == "Load"
            if network and i == 0 and user.graph is found.graph and user.op.name in _BRINGING:
                turned[user] = turned[value] != (transposed(user) is not None)
                yield user

    for _ in walk([state], brought):
        pass
    return turned


def _with_gradients(found: TrainingAnatomy, info: WeightInfo, products: list[Node]) -> list[Site]:
    """A site for each product, by the product that is its share of the weight's gradient. Which of several of one
    input has which share does not matter: an adapter computes the same beside each of them."""
    inputs: dict[Value, list[Node]] = {}
    for product in products:
        inputs.setdefault(through(product.operand(0), _SHAPING), []).append(product)
    sites: dict[Node, Site] = {}
    for gradient in info.gradient:
        for leaf in _summands(found, gradient):
            beside = [i for i in (0, 1) if through(leaf.operand(i), _SHAPING) in inputs]
            alike = inputs[through(leaf.operand(beside[0]), _SHAPING)] if len(beside) == 1 else []
            matching = [product for product in alike if product not in sites]
            again = [v for v in leaf.operands[:2] if isinstance(v, Node) and DUPLICATED in v.marks]
            if again and not matching:
                raise _computed_again(again[0])
            if not matching:
                raise Unfit(f"its gradient {site(leaf)} is not the product with the input of one of its layers")
            product, result = matching[0], _result(found, matching[0])
            dy = _rows_first(leaf, 1 - beside[0])
            if tensor_type(dy).shape[-1] != tensor_type(product).shape[-1]:
                raise Unfit(f"{site(dy)} is not the gradient of the result of {site(product)}")
            if tensor_type(result).shape[:-1].count(-1) > 1:
                raise Unfit(f"{site(product)} is a {result.type}: more than one of its dimensions is open")
            sites[product] = Site(product, product.operand(0), result, dy, gradient)
    return [sites.get(p) or Site(p, p.operand(0), _result(found, p)) for p in products]


def _result(found: TrainingAnatomy, product: Node) -> Node:
    """A product, or what adds its bias."""
    return product if product.op.name == DENSE else bias_addition(found, product) or product


def _summands(found: TrainingAnatomy, gradient: Node) -> list[Node]:
    """The products that a gradient is the sum of."""
    leaves: list[Node] = []

    def above(value: Node) -> list[Node]:
        if value.op.name in PRODUCTS and value.op.name != DENSE:
            leaves.append(value)
            return []
        if value.op.name in _SHAPING:
            following = [value.operand(0)]
        elif value.op.name in _SUMS:
            following = [v for v in unpacked(value.operands) if isinstance(v.type, TensorType)]
        else:
            following = []
        nodes = [v for v in following if isinstance(v, Node) and found.part(v) == BACKWARD]
        if not nodes or len(nodes) < len(following):
            raise Unfit(f"its gradient is made by {site(value)}, and not by a product with the input of its layer")
        return nodes

    for _ in walk([gradient], above):
        pass
    return leaves


def _rows_first(leaf: Node, i: int) -> Value:
    """The operand of a product that sums over its rows, with the rows as the first dimension."""
    value = leaf.operand(i)
    rank = len(tensor_type(value).shape)
    if rank == 2 and flag(leaf, 2 + i) != bool(i):
        return value
    if rank == 2 and (source := transposed(value)) is not None:
        return source
    raise Unfit(f"its gradient {site(leaf)} is no product of two matrices, summed over rows")


def _claim(sites: list[Site], node: Node) -> None:
    """Finds the product whose input gets the gradient ``node``."""
    source = through(node.operand(0), _SHAPING)
    given = [s for s in sites if s.dy is not None and s.dx is None]
    matching = [s for s in given if s.dy is not None and through(s.dy, _SHAPING) is source]
    if len(matching) != 1 or not takers(node):
        raise Unfit(f"{site(node)} of the backward part takes it, and is no gradient of a layer's input")
    matching[0].dx = node


def _computed_again(node: Node) -> Unfit:
    return Unfit(
        f"{site(node)} computes its layer again in the backward part: export the network without recompute(), and ask "
        "for the pass recompute"
    )
