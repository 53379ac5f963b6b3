"""The last dense layer of a network: which it is, and its nodes in forward and backward."""

from __future__ import annotations

from dataclasses import dataclass

from ...ir.analysis.effects.state_access import state_behind
from ...ir.analysis.functions.calls import without_tokens
from ...ir.analysis.training.anatomy import TrainingAnatomy
from ...ir.analysis.training.network import BACKWARD, FORWARD
from ...ir.analysis.training.weights import WeightInfo
from ...ir.core.errors import NotApplicable
from ...ir.core.graph import Node, Value, tensor_type
from ...ir.core.names import BACKWARD_ID, FORWARD_ID
from ...ir.core.op import CALL
from ...ir.core.predicates import is_effect
from ...ir.core.primitives import Family, named
from ...ir.core.program import Program
from ...ir.core.report import PassResult
from ...ir.core.sites import site
from ...ir.core.types import DType, TensorType
from ...ir.core.wording import counted
from ..step.dense_layers import bias_addition, flag, takers

PRODUCTS = named(Family.MATMUL, Family.AFFINE)
"""Ops by which a dense layer may be exported; of these, MatMul and Dense can be rewritten."""
_SUMS = named(Family.SUM, Family.TUPLE)
"""What joins the derivatives of a value that several take, as a residual block has it."""
BIAS_GRADIENTS = named(Family.TOTAL) | {"BiasAddGrad"}


@dataclass(frozen=True)
class Head:
    """The last dense layer: ``product`` of ``x`` and ``weight``, with ``bias_add`` behind it (or none). Backward:
    ``dz`` is the gradient of the layer's result, ``dweight``, ``dx`` and ``dbias`` the nodes that take it on."""

    info: WeightInfo
    product: Node
    x: Value
    weight: Value
    transposed: bool
    bias_add: Node | None
    dz: Value
    dweight: Node
    dx: tuple[Node, ...]
    dbias: tuple[Node, ...]

    @property
    def result(self) -> Node:
        return self.bias_add or self.product


def find_head(found: TrainingAnatomy, name: str | None = None) -> Head | None:
    """The last dense layer, or that of a weight; :class:`NotApplicable` where it cannot be rewritten."""
    product = product_of(found, name)
    if product is None:
        return None
    info = next((w for w in found.weights if w.name == _state_of(product)), None)
    if product.op.name != "MatMul" or info is None:
        raise _refusal(product, "it is no MatMul of its input with a weight as it stands (not cast, not transposed)")
    x, weight = product.operand(0), product.operand(1)
    for value in (x, weight, product):
        type_ = value.type
        if not isinstance(type_, TensorType) or (type_.dtype, len(type_.shape)) != (DType.FLOAT32, 2):
            raise _refusal(product, f"{site(value)} is {value.type}, no float32 matrix")
    if flag(product, 2):
        raise _refusal(product, "its input is transposed")
    others = [n for n in takers(weight) if n is not product and found.part(n) == FORWARD]
    if others:
        raise _refusal(product, f"%{others[0].name} takes its weight too")
    bias_add = bias_addition(found, product)
    [dweight, dz] = _gradient(product, info, x)
    dx, dbias = [], []
    own = [node.primal.get(FORWARD_ID, "") if node is not None else "" for node in (product, bias_add)]
    for user in takers(dz):
        if user is dweight or found.part(user) != BACKWARD:
            continue
        if user.op.name == "MatMul" and weight in user.operands:
            dx.append(user)
        elif bias_add is not None and user.op.name in BIAS_GRADIENTS and user.primal.get(BACKWARD_ID, own[1]) == own[1]:
            dbias.append(user)
        elif user.primal.get(BACKWARD_ID) in own or not (BACKWARD_ID in user.primal or user.op.name in _SUMS):
            raise _refusal(product, f"{site(user)} takes the gradient of its result too")
    for gradient in (dweight, *dbias):  # one node where the exporter merged those of two layers on one input
        takes = [w.name for w in found.weights if gradient in w.gradient]
        if len(takes) > 1:
            raise _refusal(product, f"{site(gradient)} is the gradient of {' and '.join(takes)}")
    for user in takers(weight):
        if found.part(user) == BACKWARD and user not in dx:
            raise _refusal(product, f"{site(user)} of the backward part takes its weight too")
    return Head(info, product, x, weight, flag(product, 3), bias_add, dz, dweight, tuple(dx), tuple(dbias))


def last_of_each_cell(found: TrainingAnatomy, program: Program, result: PassResult) -> list[str]:
    """The weights of these layers, that nearest to the loss first; a miss for each other layer."""
    order = {name: i for i, name in enumerate(program.state)}
    place = {info.name: order[info.slots[0] if info.slots else info.name] for info in found.weights}
    layers = [name for product in _products(found)[0] if (name := _state_of(product))]
    cells: dict[str, list[str]] = {}
    for name in dict.fromkeys(layers):
        cells.setdefault(name.rpartition(".")[0].rpartition(".")[0], []).append(name)
    kept = set()
    for names in cells.values():
        last = max(names, key=place.__getitem__)
        kept.add(last)
        for name in names:
            if name != last:
                result.miss(name, f"'{last}' is the last one of its cell")
    return [name for name in dict.fromkeys(reversed(layers)) if name in kept]


def check_matrix(found: TrainingAnatomy, head: Head) -> None:
    """Refuses a layer applied to more dimensions than two, which is exported between two reshapes: upstream's layer,
    a product of matrices, cannot take the place of such a one."""
    source = head.x.operand(0) if isinstance(head.x, Node) and head.x.op.name == "Reshape" else None
    if source is None or _rank(source) < 3:
        return
    width = tensor_type(head.result).shape[-1]
    users = [n for n in takers(head.result) if found.part(n) == FORWARD]
    if users and all(n.op.name == "Reshape" and _rank(n) > 2 and tensor_type(n).shape[-1] == width for n in users):
        many = _rank(users[0])
        raise _refusal(
            head.product, f"it is applied to {counted(many, 'dimension')}, and upstream's layer takes a matrix"
        )


def product_of(found: TrainingAnatomy, weight: str | None) -> Node | None:
    """The last product, or the last one with this weight."""
    products, hidden = _products(found)
    if weight is None and hidden is not None:
        raise _refusal(hidden, f"it may stand inside function '{hidden.home.name}'")
    own = [p for p in products if weight in (None, _state_of(p))]
    return own[-1] if own else None


def _state_of(product: Node) -> str:
    """The name of the weight that a product takes."""
    state = state_behind(product.operand(1))
    return "" if state is None else state.name


def _products(found: TrainingAnatomy) -> tuple[list[Node], Node | None]:
    """Every product in forward of a value that depends on the graph's inputs with one that depends on trained matrices
    alone; and one inside a function that may come after all of them (None: there is none)."""
    trained = {info.name for info in found.weights}
    fed: set[Value] = set(without_tokens(found.graph.inputs))
    weights: set[Value] = {s for s in found.graph.states.values() if s.name in trained and _rank(s) >= 2}
    inside = [
        node
        for function in found.graph.functions.values()
        for node in function
        if node.op.name in PRODUCTS and found.part(node) == FORWARD
    ]
    products: list[Node] = []
    called = False
    for node in found.graph:
        if found.part(node) != FORWARD or node.op.name == "UpdateState":
            continue
        takes_fed = any(v in fed for v in node.operands)
        takes_weight = any(v in weights for v in node.operands)
        called |= node.op is CALL
        if takes_fed and takes_weight and node.op.name in PRODUCTS:
            products.append(node)
            called = False
        if takes_fed:
            fed.add(node)
        elif takes_weight and not is_effect(node):
            weights.add(node)
    return products, inside[-1] if called and inside else None


def _rank(value: Value) -> int:
    return len(value.type.shape) if isinstance(value.type, TensorType) else 0


def _gradient(product: Node, info: WeightInfo, x: Value) -> tuple[Node, Value]:
    """The product that is the weight's gradient, and the gradient of the layer's result in it."""
    if len(info.gradient) == 1 and info.gradient[0].op.name == "MatMul":
        node = info.gradient[0]
        others = [v for v in node.operands[:2] if v is not x]
        if len(others) == 1:
            return node, others[0]
    raise _refusal(product, f"the gradient of '{info.name}' is no product with the layer's input")


def _refusal(product: Node, reason: str) -> NotApplicable:
    where = site(product)
    return NotApplicable(f"the dense layer {where} cannot be normalised: {reason}")
