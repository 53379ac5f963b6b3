"""Normalised head: the last dense layer on inputs and weights of length one, with a learned multiplier."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

from ..ir.analysis.effects.state_access import state_behind
from ..ir.analysis.effects.tokens import orders_only
from ..ir.analysis.functions.calls import without_tokens
from ..ir.analysis.training.anatomy import TrainingAnatomy, anatomy
from ..ir.analysis.training.network import BACKWARD, FORWARD
from ..ir.analysis.training.weights import WeightInfo
from ..ir.builders.reduce import reduce_sum
from ..ir.core.attributes import TensorValue, scalar_tensor
from ..ir.core.errors import NotApplicable, PassError
from ..ir.core.graph import Graph, Node, Value, rewire
from ..ir.core.names import BACKWARD_ID, FORWARD_ID
from ..ir.core.op import CALL, Op
from ..ir.core.predicates import is_effect
from ..ir.core.primitives import Family, named
from ..ir.core.program import Program
from ..ir.core.report import PassResult
from ..ir.core.types import DType, TensorType, tensor
from ..ir.core.wording import counted
from ..ir.rewrite.effects.editing import Effects
from ..ir.rewrite.new_weight import new_name, plan_repeat, repeat_update
from ..ir.rewrite.removal import Removal
from .framework.base import Pass
from .framework.options import option
from .framework.pattern import Match, Rewrite, any_value, op
from .step.step import the_step

SCOPE = "normalised-head"
PRODUCTS = named(Family.MATMUL, Family.AFFINE)
"""Ops by which a dense layer may be exported; of these, MatMul and Dense can be rewritten."""
BIAS_GRADIENTS = named(Family.TOTAL) | {"BiasAddGrad"}
ONE_NUMBER = tensor("float32", 1)
EPSILON = 9.999999747378752e-05
"""The least square of a length: 1e-4 in float32, as MindSpore's L2Normalize has it by default."""


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


class NormalisedHead(Pass):
    """Makes the last dense layer a normalised one: inputs and weight rows of length one, times a learned multiplier.

    A layer x W^T + b becomes s (x/|x| (W/|W|)^T + b), with the lengths taken row by row. s is one number, which starts
    at one and is trained as W is: same optimizer, slots of its own, part of global norms and finite checks. So the
    layer gives s times the cosine between input and weights. State: ``<layer>.multiplier`` and its slots.

    The last dense layer is the last product in forward of a value with a matrix that is trained. ``layers=every-cell``
    normalises the last one of every cell. The names of their weights say which layers stand in one cell
    (``encoder.fc1.weight``, ``encoder.fc2.weight``). Of these the one counts that was made last: the optimizer's slots
    stand in the order in which the weights were made. Without slots the layer counts that is used last. A layer that
    cannot be rewritten stays, and so does one that is applied to more than a matrix (the projections of a transformer),
    on which upstream fails. The report says so.

    ``bias=drop`` removes the bias with its update and slots.

    Changes training: it is another network.

    Source: Wang et al., NormFace, 2017; ``mindspore.boost.LessBN`` with ``fn_flag`` (its cell CommonHeadLastFN), which
    takes the last Dense of every cell and drops the bias.
    """

    name = "normalised-head"
    preserves = False
    early = True
    layers: str = option("last", help="the last layer of the network, or of every cell", choices=("last", "every-cell"))
    bias: str = option("keep", help="keep the layer's bias, or remove it", choices=("keep", "drop"))

    def run(self, program: Program) -> PassResult:
        result = self.result()
        graph = the_step(program, self.name)
        nodes = graph.total_nodes()
        weights: Sequence[str | None] = [None]
        if self.layers != "last":
            weights = _last_of_each_cell(anatomy(graph), program, result)
        done: list[str] = []
        added: list[str] = []
        dropped: list[str] = []
        for weight in weights:
            try:
                found = _split(anatomy(graph), weight)
                head = find_head(found, weight)
                if head is None:
                    break
                if weight is not None:
                    _check_matrix(found, head)
                added.extend(_normalise_layer(program, found, head))
                done.append(head.info.name)
                if self.bias == "drop" and head.bias_add is not None:
                    dropped.append(_drop_bias(program, graph, head.bias_add, head.product))
            except PassError as refusal:
                if weight is None:
                    raise
                result.miss(weight, str(refusal))
        if not done:
            if not result.misses:
                result.miss(graph.name, "no dense layer: no product of a value with a matrix that is trained")
            return result
        result.matched = result.changed = len(done)
        result.statistics = {"weight": ", ".join(done), "state added": added, "nodes before": nodes}
        result.statistics["nodes after"] = graph.total_nodes()
        if dropped:
            result.statistics["bias dropped"] = ", ".join(dropped)
        multipliers = [name for name in added if name.endswith("multiplier") and program.state[name].role == "weight"]
        if self.layers == "last":
            result.summary = f"'{done[0]}' normalised, with multiplier '{multipliers[0]}'"
        else:
            result.summary = f"{counted(len(done), 'layer')} normalised: {', '.join(done[:3])}{', …' * (len(done) > 3)}"
        return result


def _normalise_layer(program: Program, found: TrainingAnatomy, head: Head) -> list[str]:
    """Returns the names of the state that is added."""
    own = (head.product, head.dweight, *head.dx)
    repeat = plan_repeat(Removal(found.graph, found.parts, found.weights), head.info, own)
    name = f"{head.info.name.rpartition('.')[0]}.multiplier".lstrip(".")
    names = [name, *(new_name(head.info.name, name, slot) for slot in head.info.slots)]
    for taken in names:
        if taken in program.state:
            raise PassError(f"a state is called '{taken}' already")
    gradient, dweight = _rewrite(found.graph, head, name)
    one = TensorValue(ONE_NUMBER, scalar_tensor("float32", 1.0).data)
    repeat_update(program, repeat, name, gradient, one, [dweight])
    return names


# -- finding -------------------------------------------------------------------------------------------------


def find_head(found: TrainingAnatomy, name: str | None = None) -> Head | None:
    """The last dense layer, or that of a weight; :class:`NotApplicable` where it cannot be rewritten."""
    product = _product(found, name)
    if product is None:
        return None
    info = next((w for w in found.weights if w.name == _state_of(product)), None)
    if product.op.name != "MatMul" or info is None:
        raise _refusal(product, "it is no MatMul of its input with a weight as it stands (not cast, not transposed)")
    x, weight = product.operand(0), product.operand(1)
    for value in (x, weight, product):
        type_ = value.type
        if not isinstance(type_, TensorType) or (type_.dtype, len(type_.shape)) != (DType.FLOAT32, 2):
            raise _refusal(product, f"{value!r} is no float32 matrix")
    if _flag(product, 2):
        raise _refusal(product, "its input is transposed")
    others = [n for n in _takers(weight) if n is not product and found.part(n) == FORWARD]
    if others:
        raise _refusal(product, f"%{others[0].name} takes its weight too")
    bias_add = _bias_add(found, product)
    [dweight, dz] = _gradient(product, info, x)
    dx, dbias = [], []
    for user in _takers(dz):
        if user is dweight or found.part(user) != BACKWARD:
            continue
        if user.op.name == "MatMul" and weight in user.operands:
            dx.append(user)
        elif bias_add is not None and user.op.name in BIAS_GRADIENTS:
            dbias.append(user)
        else:
            raise _refusal(product, f"%{user.name} ({user.op.name}) takes the gradient of its result too")
    for user in _takers(weight):
        if found.part(user) == BACKWARD and user not in dx:
            raise _refusal(product, f"%{user.name} ({user.op.name}) of the backward part takes its weight too")
    return Head(info, product, x, weight, _flag(product, 3), bias_add, dz, dweight, tuple(dx), tuple(dbias))


def _last_of_each_cell(found: TrainingAnatomy, program: Program, result: PassResult) -> list[str]:
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


def _check_matrix(found: TrainingAnatomy, head: Head) -> None:
    """Refuses a layer applied to more dimensions than two, which is exported between two reshapes: upstream's layer,
    a product of matrices, cannot take the place of such a one."""
    source = head.x.operand(0) if isinstance(head.x, Node) and head.x.op.name == "Reshape" else None
    if source is None or _rank(source) < 3:
        return
    width = _tensor(head.result).shape[-1]
    takers = [n for n in _takers(head.result) if found.part(n) == FORWARD]
    if takers and all(n.op.name == "Reshape" and _rank(n) > 2 and _tensor(n).shape[-1] == width for n in takers):
        many = _rank(takers[0])
        raise _refusal(
            head.product, f"it is applied to {counted(many, 'dimension')}, and upstream's layer takes a matrix"
        )


def _product(found: TrainingAnatomy, weight: str | None) -> Node | None:
    """The last product, or the last one with this weight."""
    products, hidden = _products(found)
    if weight is None and hidden is not None:
        raise _refusal(hidden, f"it may stand inside function '{hidden.graph.name if hidden.graph else '?'}'")
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


def _takers(value: Value) -> list[Node]:
    """Who takes a value, and does not merely wait for it."""
    return [user for user, i in value.use_sites() if not orders_only(user, i)]


def _rank(value: Value) -> int:
    return len(value.type.shape) if isinstance(value.type, TensorType) else 0


def _flag(node: Node, i: int) -> bool:
    return i < node.num_operands and bool(node.operand(i).literal)


def _bias_add(found: TrainingAnatomy, product: Node) -> Node | None:
    """The addition of a vector of the network's own that is all that takes the product."""
    users = [n for n in _takers(product) if found.part(n) in (FORWARD, BACKWARD)]
    if len(users) != 1 or users[0].op.name not in ("BiasAdd", "Add", "AddExt") or users[0].operand(0) is not product:
        return None
    return users[0] if state_behind(users[0].operand(1)) is not None else None


def _gradient(product: Node, info: WeightInfo, x: Value) -> tuple[Node, Value]:
    """The product that is the weight's gradient, and the gradient of the layer's result in it."""
    if len(info.gradient) == 1 and info.gradient[0].op.name == "MatMul":
        node = info.gradient[0]
        others = [v for v in node.operands[:2] if v is not x]
        if len(others) == 1:
            return node, others[0]
    raise _refusal(product, f"the gradient of '{info.name}' is no product with the layer's input")


def _refusal(product: Node, reason: str) -> NotApplicable:
    where = f"%{product.name} ({product.op.name}, scope {product.scope})"
    return NotApplicable(f"the dense layer {where} cannot be normalised: {reason}")


# -- rewriting -----------------------------------------------------------------------------------------------


class _Builder:
    """Makes nodes of forward and backward, marked as such."""

    def __init__(self, graph: Graph):
        self.graph = graph
        self.backward = False

    def make(self, op: Op | str, operands: Sequence[Value], type_: TensorType, source: Value) -> Node:
        node = self.graph.create(op, operands, type_, scope=SCOPE, sources=[source])
        return self.mark(node)

    def mark(self, node: Node) -> Node:
        node.primal = {BACKWARD_ID if self.backward else FORWARD_ID: f"{SCOPE}.{node.name}"}
        return node

    def through_length(self, gradient: Node, value: Value, unit: Value, axis: int) -> Node:
        """The gradient of ``value``, from that of what it is at length one; takes over its uses."""
        users = list(gradient.use_sites())
        operands = [value, unit, gradient]
        through = self.make(_normalise("L2NormalizeGrad", axis), operands, _tensor(value), gradient)
        rewire(users, through)
        return through


def _rewrite(graph: Graph, head: Head, name: str) -> tuple[Node, Node]:
    """Forward and backward of the normalised layer; returns the gradients of multiplier and weight."""
    fx = Effects(graph)
    build = _Builder(graph)
    row = 1 if head.transposed else 0
    x_type, w_type, z_type = (_tensor(v) for v in (head.x, head.weight, head.result))
    multiplier = build.mark(fx.load(graph.state(name, ONE_NUMBER), scope=SCOPE))
    x = build.make(_normalise("L2Normalize", 1), [head.x], x_type, head.product)
    w = build.make(_normalise("L2Normalize", row), [head.weight], w_type, head.product)
    head.product.set_operand(0, x)
    head.product.set_operand(1, w)
    users = list(head.result.use_sites())
    rewire(users, build.make("Mul", [multiplier, head.result], z_type, head.result))

    build.backward = True
    dz = build.make("Mul", [multiplier, head.dz], z_type, head.dz)
    for node in (head.dweight, *head.dx, *head.dbias):
        for i, operand in enumerate(node.operands):
            new = dz if operand is head.dz else x if operand is head.x else w if operand is head.weight else operand
            node.set_operand(i, new)
    dweight = build.through_length(head.dweight, head.weight, w, row)
    for dx in head.dx:
        build.through_length(dx, head.x, x, 1)
    share = build.make("Mul", [head.result, head.dz], z_type, head.dz)
    total = build.mark(reduce_sum(graph, share, scope=SCOPE))
    gradient = build.make("Reshape", [total, graph.constant((1,))], ONE_NUMBER, head.dz)
    graph.sort()
    return gradient, dweight


def _normalise(name: str, axis: int) -> Op:
    return Op(name, {"axis": [axis], "epsilon": EPSILON}, kind=1)


def _tensor(value: Value) -> TensorType:
    assert isinstance(value.type, TensorType)
    return TensorType(value.type.dtype, value.type.shape)


def _split(found: TrainingAnatomy, weight: str | None) -> TrainingAnatomy:
    """The anatomy once the product, where it adds a bias itself (Dense), is a product and an addition."""
    product = _product(found, weight)
    if product is None or product.op.name != "Dense":
        return found
    SPLIT_DENSE.at(product)
    return anatomy(found.graph)


def _product_and_addition(graph: Graph, m: Match) -> Node:
    flags = [graph.constant(False), graph.constant(True)]
    product = graph.create("MatMul", [m["x"], m["weight"], *flags], m.root.type)
    if not isinstance(m["bias"].type, TensorType):
        return product
    return graph.create("BiasAdd", [product, m["bias"], graph.constant(0)], m.root.type)


SPLIT_DENSE = Rewrite(op("Dense", any_value("x"), any_value("weight"), any_value("bias"), ...), _product_and_addition)


def _drop_bias(program: Program, graph: Graph, add: Node, product: Node) -> str:
    """Removes the bias that is added to a product; its name."""
    found = anatomy(graph)
    state = state_behind(add.operand(1))
    assert state is not None
    gradients = next((w.gradient for w in found.weights if w.name == state.name), ())
    removal = Removal(found.graph, found.parts, found.weights)
    plan = removal.plan_all([state.name], gradients, (add,))
    if plan.obstacle:
        raise PassError(f"its bias '{state.name}' cannot be dropped: {plan.obstacle}")
    removal.apply(plan, partial(add.replace_uses, product))
    program.drop_state(plan.states)
    return state.name
