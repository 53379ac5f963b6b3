"""The layers that a weight takes part in, as products, for formulas that put something beside them or into them.

Which product of the backward part is the weight's gradient at which layer is read off its operands: it is the product
of that layer's input with the gradient of its result.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from ...analysis.effects.tokens import orders_only
from ...analysis.training.anatomy import TrainingAnatomy
from ...analysis.training.network import BACKWARD, FORWARD
from ...analysis.training.weights import WeightInfo
from ...core.graph import Node, State, Value, tensor_type
from ...core.primitives import Family, named
from ...core.sites import site
from ...core.types import TensorType
from ...core.walk import through, unpacked, walk
from ...symbolic.execution import Unproved

_BRINGING = named(Family.COPY, Family.CAST, Family.TRANSPOSE) | {"Load", "Depend"}
_SHAPING = _BRINGING | named(Family.RESHAPE)
_TURNING = named(Family.TRANSPOSE)
_IN_PLACE = _SHAPING - _TURNING
_SUMS = named(Family.SUM)
_DENSE = "Dense"
_PRODUCTS = named(Family.MATMUL) | {_DENSE}


@dataclass
class Layer:
    """A product with the weight, ``result`` with its bias behind it. ``dy`` has a row for each of ``x``. ``gradient``:
    the value by which W is updated in which this layer's share is. ``share``: that share; ``dx``: the gradient of ``x``
    by this layer."""

    product: Node
    result: Node
    dy: Value
    gradient: Node
    share: Node
    dx: list[Node] = field(default_factory=list)

    @property
    def x(self) -> Value:
        return self.product.operand(0)


def layers_of(found: TrainingAnatomy, info: WeightInfo) -> tuple[list[Layer], bool]:
    """The products with a weight in forward, and whether the weight is inputs × outputs."""
    turned: dict[Value, bool] = {found.graph.states[info.name]: False}
    products: dict[Node, bool] = {}
    back: list[Node] = []
    stack = list(turned)
    while stack:
        value = stack.pop()
        for user, i in value.use_sites():
            part = found.part(user)
            if orders_only(user, i) or (part not in (FORWARD, BACKWARD) and user.op.name != "Load"):
                continue
            if i == 0 and user.op.name in _BRINGING and user.graph is found.graph:
                turned[user] = turned[value] != (user.op.name in _TURNING)
                stack.append(user)
            elif i == 1 and user.op.name in _PRODUCTS and part == BACKWARD:
                back.append(user)
            elif i == 1 and user.op.name in _PRODUCTS and part == FORWARD and not _turns(user, 0):
                products[user] = turned[value] == _turns(user, 1)
            else:
                raise Unproved(f"{site(user)} takes weight '{info.name}': law missing")
    if len(set(products.values())) != 1:
        raise Unproved(f"weight '{info.name}' takes part in no product, or in two ways: law missing")
    layers = _with_gradients(found, info, list(products))
    for node in back:
        source = through(node.operand(0), _SHAPING)
        beside = [layer for layer in layers if through(layer.dy, _SHAPING) is source]
        if len(beside) != 1:
            raise Unproved(f"{site(node)} takes weight '{info.name}', and is the gradient of no input")
        if any(not orders_only(user, i) for user, i in node.use_sites()):
            beside[0].dx.append(node)
    return layers, next(iter(products.values()))


def _with_gradients(found: TrainingAnatomy, info: WeightInfo, products: list[Node]) -> list[Layer]:
    """Each product with the one that is its share of the weight's gradient: of the layer's input and dy."""
    layers: list[Layer] = []
    left = list(products)
    for gradient in info.gradient:
        for leaf in walk([gradient], _summands):
            if leaf.op.name not in _PRODUCTS:
                continue
            sides = [_matrix(leaf.operand(i)) for i in (0, 1)]
            of = [(p, i) for p in left for i in (0, 1) if through(p.operand(0), _IN_PLACE) is sides[i]]
            if len(of) != 1:
                raise Unproved(f"{site(leaf)} of the gradient of weight '{info.name}' belongs to no layer: law missing")
            ((product, i),) = of
            left.remove(product)
            layers.append(Layer(product, _with_bias(found, product), _rows(leaf, 1 - i), gradient, leaf))
    if left:
        raise Unproved(f"{site(left[0])} has no share in the gradient of weight '{info.name}': law missing")
    return layers


def _summands(value: Node) -> list[Node]:
    """What a gradient is the sum of, down to products."""
    if value.op.name in _PRODUCTS:
        return []
    if value.op.name in _SHAPING:
        following: list[Value] = [value.operand(0)]
    elif value.op.name in _SUMS and (value.num_operands < 3 or value.operand(2).literal == 1):
        following = [v for v in unpacked(value.operands) if isinstance(v.type, TensorType)]
    else:
        following = []
    nodes = [v for v in following if isinstance(v, Node)]
    if not nodes or len(nodes) < len(following):
        raise Unproved(f"{site(value)} is no sum of products: law missing")
    return nodes


def _matrix(value: Value) -> Value:
    """What a matrix is made of, its elements where they stood, but for one transposition."""
    value = through(value, _IN_PLACE)
    turned = isinstance(value, Node) and value.op.name in _TURNING and len(tensor_type(value).shape) == 2
    return through(value.operand(0), _IN_PLACE) if turned and isinstance(value, Node) else value


def _rows(product: Node, i: int) -> Value:
    """The operand of a product that is summed over its rows, with them first."""
    value = product.operand(i)
    if product.op.name != _DENSE and len(tensor_type(value).shape) == 2:
        if _turns(product, i) != bool(i):
            return value
        if isinstance(value, Node) and value.op.name in _TURNING:
            return value.operand(0)
    raise Unproved(f"{site(product)} is no sum over rows: law missing")


def _turns(product: Node, i: int) -> bool:
    """Whether a product takes operand ``i`` transposed. Some products never do (MatMulExt)."""
    if product.op.name == _DENSE:
        return bool(i)
    return 2 + i < product.num_operands and bool(product.operand(2 + i).literal)


def _with_bias(found: TrainingAnatomy, product: Node) -> Node:
    """What adds a vector to a product, where that is all that takes it."""
    users = [u for u, i in product.use_sites() if not orders_only(u, i) and found.part(u) in (FORWARD, BACKWARD)]
    if len(users) != 1 or users[0].op.name not in ("BiasAdd", "Add", "AddExt") or users[0].operand(0) is not product:
        return product
    bias = through(users[0].operand(1), ("Cast", "Load", "Depend", "TensorMove"))
    return users[0] if isinstance(bias, State) and len(tensor_type(bias).shape) == 1 else product
