"""Adapters of low rank: beside each product y = x · Wᵀ of a weight W stands (α / r) · (x · Aᵀ) · Bᵀ.

    y' = y + s · (x · Aᵀ) · Bᵀ, s = α / r, behind the bias        dx' = dx + s · (dy · B) · A
    dA = (s · dy · B)ᵀ · x                                        dB = (s · dy)ᵀ · (x · Aᵀ)

dy is the gradient of y, x and y are matrices with a row for each place. A weight in several products has one adapter,
whose gradients are sums. A and B are updated as the original updates W: by the same primitives, from their gradients,
with slots of their own that begin as those of W. All other weights but those of ``train`` stay as they are.

The original is stated with the adapters. Which product of the backward part is W's gradient at which layer is read off
its operands: it is the product of that layer's input with dy. B begins with 0. How A begins is not stated.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from math import prod
from typing import Any

from ...analysis.effects.tokens import orders_only
from ...analysis.training.anatomy import TrainingAnatomy, anatomy
from ...analysis.training.network import BACKWARD, FORWARD
from ...analysis.training.weights import WeightInfo
from ...builders.nodes import Nodes
from ...core.data import Data, ZeroData, from_numpy
from ...core.errors import AnatomyError
from ...core.graph import Graph, Node, State, Value, tensor_type
from ...core.names import BACKWARD_ID, FORWARD_ID, lora_a_of, lora_b_of
from ...core.op import CALL
from ...core.primitives import Family, named
from ...core.program import Program, StateVariable
from ...core.types import TensorType, TupleType, Type
from ...core.walk import through, unpacked, walk
from ...rewrite.effects.editing import Effects
from ...symbolic.execution import Unproved
from .statement import Stated

PASS = "lora"
_BRINGING = named(Family.COPY, Family.CAST, Family.TRANSPOSE) | {"Load", "Depend"}
_SHAPING = _BRINGING | named(Family.RESHAPE)
_TURNING = named(Family.TRANSPOSE)
_IN_PLACE = _SHAPING - _TURNING
_SUMS = named(Family.SUM)
_PRODUCTS = named(Family.MATMUL) | {"Dense"}


@dataclass
class Layer:
    """A product with the weight, ``result`` with its bias behind it. ``dy`` has a row for each of ``x``. ``gradient``:
    the value by which W is updated in which this layer's share is. ``dx``: the gradient of ``x`` by this layer."""

    product: Node
    result: Node
    dy: Value
    gradient: Node
    dx: list[Node] = field(default_factory=list)

    @property
    def x(self) -> Value:
        return self.product.operand(0)


def asked(program: Program) -> Mapping[str, Any] | None:
    return next((r.options for r in program.reports if r.name == PASS), None)


def adapted(original: Program, program: Program) -> list[str]:
    """The weights with an adapter that the program brings along."""
    own = program.state.keys() - original.state.keys()
    return [n for n, v in original.state.items() if v.role == "weight" and {lora_a_of(n), lora_b_of(n)} <= own]


def still(program: Program, weights: Iterable[str]) -> frozenset[str]:
    """Those of the weights that adapters are trained in the place of."""
    options = asked(program)
    if options is None:
        return frozenset()
    globs = options["train"]
    adapters = {name for w in program.state for name in (lora_a_of(w), lora_b_of(w)) if w in program.state}
    return frozenset(w for w in weights if w not in adapters and not any(fnmatchcase(w, g) for g in globs))


def with_adapters(original: Program, program: Program) -> Program:
    """The original with the adapters that the program has."""
    options = asked(program)
    if options is None:
        return original
    base = original.copy()
    (graph,) = base.graphs.values()
    try:
        found = anatomy(graph)
    except AnatomyError as error:
        raise Unproved(f"the original's gradients cannot be told: {error}") from None
    fx = Effects(graph)
    for name in adapted(original, program):
        if not any(fnmatchcase(name, glob) for glob in options["match"]):
            raise Unproved(f"weight '{name}' has an adapter, and the options do not ask for it")
        info = next((info for info in found.weights if info.name == name), None)
        if info is None:
            raise Unproved(f"nothing trains weight '{name}', which has an adapter")
        _adapt(base, program, found, info, fx, options)
    fx.commit()
    return base


def state(original: Program, program: Program) -> list[Stated]:
    """``original``: with the adapters."""
    options = asked(program)
    if options is None:
        return []
    own = [n for n, v in original.state.items() if v.role == "weight" and lora_a_of(n) in original.state]
    weights = tuple(name for n in own for name in (lora_a_of(n), lora_b_of(n)))
    scale = f"{options['alpha']:g} / {options['rank']}"
    return [
        Stated(PASS, options, f"y' = y + {scale} · (x · Aᵀ) · Bᵀ beside each product y of {', '.join(own)}", weights)
    ]


# -- forward and backward --------------------------------------------------------------------------------------------


def _adapt(
    base: Program, program: Program, found: TrainingAnatomy, info: WeightInfo, fx: Effects, options: Mapping[str, Any]
) -> None:
    graph, name, rank = found.graph, info.name, int(options["rank"])
    layers, inputs_first = _layers(found, info)
    shape, dtype = base.state[name].shape, base.state[name].dtype
    inputs, outputs = shape[not inputs_first], shape[inputs_first]
    a_name, b_name = lora_a_of(name), lora_b_of(name)
    types = {a_name: TensorType(dtype, (rank, inputs)), b_name: TensorType(dtype, (outputs, rank))}
    if any(program.state[n].type != t for n, t in types.items()):
        raise Unproved(f"the adapter of weight '{name}' is not of rank {rank}")
    values = {a_name: program.state[a_name].data, b_name: ZeroData(types[b_name].nbytes)}
    w = Nodes(graph, "", {FORWARD_ID: f"adapter {name}"})
    with graph.inserting_after(None):
        a, b = (w.linked(fx.load(graph.state(n, t))) for n, t in types.items())
    shares: dict[str, dict[Node, list[Value]]] = {a_name: {}, b_name: {}}
    for layer in layers:
        for n, share in zip(types, _beside(graph, layer, a, b, options["alpha"] / rank), strict=True):
            shares[n].setdefault(layer.gradient, []).append(share)
    for n, type_ in types.items():
        base.add_state(n, type_, "weight", values[n]).trainable = True
        gradients = {g: _sum(graph, g, of, f"adapter {n}") for g, of in shares[n].items()}
        _update_as(base, program, found, info, n, gradients, fx)


def _beside(graph: Graph, layer: Layer, a: Node, b: Node, s: float) -> tuple[Value, Value]:
    """Puts the adapter beside a layer; its shares of dA and dB."""
    dtype, shape = tensor_type(layer.product).dtype, tensor_type(layer.result).shape
    w = Nodes(graph, "", {FORWARD_ID: f"adapter at {layer.product.name}"})
    takers = list(layer.result.use_sites())
    with graph.inserting_after(layer.result):
        a, b = (w.cast(matrix, dtype) for matrix in (a, b))  # type: ignore[assignment]
        *rows, width = tensor_type(layer.x).shape
        x = w.reshape(layer.x, -1 if -1 in rows else prod(rows), width)
        inner = w.matmul(x, a, transpose_b=True)
        outer = w.scaled(w.matmul(inner, b, transpose_b=True), s)
        total = w.op("Add", layer.result, w.reshape(outer, *shape))
    for user, i in takers:
        user.set_operand(i, total)
    w = Nodes(graph, "", {BACKWARD_ID: f"adapter at {layer.product.name}"})
    with graph.inserting_after(layer.dy):
        dy = w.scaled(layer.dy, s)
        back = w.matmul(dy, b)
        da, db = w.matmul(back, x, transpose_a=True), w.matmul(dy, inner, transpose_a=True)
    for dx in layer.dx:
        takers = list(dx.use_sites())
        with graph.inserting_after(dx):
            more = w.op("Add", dx, w.reshape(w.matmul(back, a), *tensor_type(dx).shape))
        for user, i in takers:
            user.set_operand(i, more)
    return da, db


def _sum(graph: Graph, gradient: Node, shares: list[Value], scope: str) -> Node:
    w = Nodes(graph, scope, {BACKWARD_ID: scope})
    total, *others = shares
    with graph.inserting_after(gradient):
        for other in others:
            total = w.op("Add", total, other)
        total = w.cast(total, tensor_type(gradient).dtype)
    assert isinstance(total, Node)
    return total


def _layers(found: TrainingAnatomy, info: WeightInfo) -> tuple[list[Layer], bool]:
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
            elif i == 1 and user.op.name in _PRODUCTS and part == FORWARD:
                is_transposed = user.op.name == "Dense" or bool(user.operand(3).literal)
                products[user] = turned[value] == is_transposed
            else:
                raise Unproved(f"{user!r} takes weight '{info.name}': law missing for an adapter there")
    if len(set(products.values())) != 1:
        raise Unproved(f"weight '{info.name}' takes part in no product, or in two ways: law missing")
    layers = _with_gradients(found, info, list(products))
    for node in back:
        source = through(node.operand(0), _SHAPING)
        beside = [layer for layer in layers if through(layer.dy, _SHAPING) is source]
        if len(beside) != 1:
            raise Unproved(f"{node!r} takes weight '{info.name}', and is the gradient of no input")
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
                raise Unproved(f"{leaf!r} of the gradient of weight '{info.name}' belongs to no layer: law missing")
            ((product, i),) = of
            left.remove(product)
            layers.append(Layer(product, _with_bias(found, product), _rows(leaf, 1 - i), gradient))
    if left:
        raise Unproved(f"{left[0]!r} has no share in the gradient of weight '{info.name}': law missing")
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
        raise Unproved(f"{value!r} is no sum of products: law missing for an adapter")
    return nodes


def _matrix(value: Value) -> Value:
    """What a matrix is made of, its elements where they stood, but for one transposition."""
    value = through(value, _IN_PLACE)
    turned = isinstance(value, Node) and value.op.name in _TURNING and len(tensor_type(value).shape) == 2
    return through(value.operand(0), _IN_PLACE) if turned and isinstance(value, Node) else value


def _rows(product: Node, i: int) -> Value:
    """The operand of a product that is summed over its rows, with them first."""
    value = product.operand(i)
    if bool(product.operand(2 + i).literal) != bool(i):
        return value
    if isinstance(value, Node) and value.op.name in _TURNING:
        return value.operand(0)
    raise Unproved(f"{product!r} is no sum over rows: law missing")


def _with_bias(found: TrainingAnatomy, product: Node) -> Node:
    """What adds a vector to a product, where that is all that takes it."""
    users = [u for u, i in product.use_sites() if not orders_only(u, i) and found.part(u) in (FORWARD, BACKWARD)]
    if len(users) != 1 or users[0].op.name not in ("BiasAdd", "Add", "AddExt") or users[0].operand(0) is not product:
        return product
    bias = through(users[0].operand(1), ("Cast", "Load", "Depend", "TensorMove"))
    return users[0] if isinstance(bias, State) and len(tensor_type(bias).shape) == 1 else product


# -- the update ------------------------------------------------------------------------------------------------------


def _update_as(
    base: Program, program: Program, found: TrainingAnatomy, info: WeightInfo, name: str,
    gradients: Mapping[Node, Node], fx: Effects,
) -> None:  # fmt: skip
    """Updates ``name`` from its gradients as the graph updates the weight, with slots of its own."""
    graph, weight = found.graph, base.state[info.name]
    like = base.state[name]
    names = {info.name: name, **{slot: _slot_of(slot, info.name, name, program) for slot in info.slots}}
    for slot in info.slots:
        variable = base.state[slot]
        type_ = _type(variable.type, weight, like, names)
        assert isinstance(type_, TensorType)
        base.add_state(names[slot], type_, "slot", _begins(variable, weight, like, type_), name)
    twins: dict[Value, Value] = {
        graph.states[old]: graph.state(new, base.state[new].type) for old, new in names.items()
    }
    twins.update(gradients.items())
    loads = [n for n in graph if n.op.name == "Load" and n.operand(0) in twins and found.part(n) in (FORWARD, BACKWARD)]
    twins |= {load: _twin(fx, load, twins, load.type) for load in loads}
    others = _of_others(found, info)
    for node in [n for n in graph if found.part(n) not in (FORWARD, BACKWARD)]:
        if node.op.name in ("UpdateState", "MakeTuple") and all(orders_only(u, i) for u, i in node.use_sites()):
            continue
        if not any(v in twins and not orders_only(node, i) for i, v in enumerate(node.operands)):
            continue
        if node.op.name == "Depend":
            twins[node] = twins.get(node.operand(0), node.operand(0))
            continue
        if node in others or node.op is CALL or node.op.name == "Partial":
            raise Unproved(f"{node!r} takes the gradient of weight '{info.name}' together with others: law missing")
        twin = _twin(fx, node, twins, _type(node.type, weight, like, names))
        twins[node] = twin


def _twin(fx: Effects, node: Node, twins: Mapping[Value, Value], type_: Type) -> Node:
    """A node again, on what stands in the place of its operands; an effect right behind the one that it repeats."""
    operands = [twins.get(v, v) for v in node.operands]
    at = next((k for k, effect in enumerate(fx.list) if effect.node is node), None)
    if at is None:
        with fx.graph.inserting_after(node):
            return fx.graph.create(node.op, operands, type_)
    if node.op.name == "Load":
        made = fx.load(operands[0], initial=fx.list[at].initial)
    else:
        with fx.graph.inserting_after(node):
            made = fx.graph.create(node.op, [*operands[:-1], fx.first_token()], type_)
        fx.adopt(made)
    fx.list.insert(at + 1, fx.list.pop())
    return made


def _of_others(found: TrainingAnatomy, info: WeightInfo) -> set[Node]:
    """What is computed from the gradients of other weights, before it is only a state that they leave."""
    seen: set[Node] = set()
    stack = [g for other in found.weights if other is not info for g in other.gradient if g not in info.gradient]
    while stack:
        for user, i in stack.pop().use_sites():
            if user not in seen and not orders_only(user, i) and found.part(user) not in (FORWARD, BACKWARD):
                seen.add(user)
                stack.append(user)
    return seen


def _slot_of(slot: str, weight: str, name: str, program: Program) -> str:
    """The slot of the adapter that is to the adapter what ``slot`` is to the weight."""
    new = slot.removesuffix(weight) + name if slot.endswith(weight) else f"{slot}.{name}"
    if new not in program.state:
        raise Unproved(f"the adapter '{name}' has no slot '{new}'")
    return new


def _type(type_: Type, weight: StateVariable, like: StateVariable, names: Mapping[str, str]) -> Type:
    """A type of the weight's update, as it is in that of the adapter."""
    if isinstance(type_, TupleType):
        return TupleType(tuple(_type(t, weight, like, names) for t in type_.elements), type_.is_list, type_.dynamic)
    if not isinstance(type_, TensorType):
        return type_
    shape = like.shape if type_.shape == weight.shape else type_.shape
    return TensorType(type_.dtype, shape, names.get(type_.ref, type_.ref))


def _begins(slot: StateVariable, weight: StateVariable, like: StateVariable, type_: TensorType) -> Data:
    """What a slot of the adapter begins with: the number that fills the weight's, or a copy of the adapter."""
    import numpy as np

    array = slot.initial
    first = array.reshape(-1)[:1]
    if first.size and (array == first).all():
        return ZeroData(type_.nbytes) if not first.any() else from_numpy(np.full(type_.shape, first[0], array.dtype))[1]
    if slot.type == weight.type and (array == weight.initial).all():
        return like.data
    raise Unproved(f"slot '{slot.name}' begins with several numbers: law missing for an adapter")
