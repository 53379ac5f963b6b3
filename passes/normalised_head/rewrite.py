"""A dense layer made a normalised one, in forward, backward and update."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from ...ir.analysis.effects.state_access import state_behind
from ...ir.analysis.training.anatomy import TrainingAnatomy, anatomy
from ...ir.builders.branch import plain
from ...ir.builders.reduce import reduce_sum
from ...ir.core.attributes import TensorValue, scalar_tensor
from ...ir.core.errors import PassError
from ...ir.core.graph import Graph, Node, Value, rewire
from ...ir.core.names import BACKWARD_ID, FORWARD_ID
from ...ir.core.op import Op
from ...ir.core.program import Program
from ...ir.core.types import TensorType, Type, tensor
from ...ir.rewrite.effects.editing import Effects
from ...ir.rewrite.new_weight import NewWeight, new_name, plan_repeat, refuse_second_look, repeat_updates
from ...ir.rewrite.removal import Removal
from ..framework.pattern import Match, Rewrite, any_value, op
from .head import Head, product_of

SCOPE = "normalised-head"
ONE_NUMBER = tensor("float32", 1)
EPSILON = 9.999999747378752e-05
"""The least square of a length: 1e-4 in float32, as MindSpore's L2Normalize has it by default."""


def normalise(program: Program, found: TrainingAnatomy, head: Head) -> list[str]:
    """Rewrites a layer with its update; the names of the state that is added."""
    refuse_second_look(found, [head.info])
    own = (head.product, head.dweight, *head.dx)
    repeat = plan_repeat(Removal(found.graph, found.parts, found.weights), head.info, own)
    name = f"{head.info.name.rpartition('.')[0]}.multiplier".lstrip(".")
    names = [name, *(new_name(head.info.name, name, slot) for slot in head.info.slots)]
    for taken in names:
        if taken in program.state:
            raise PassError(f"a state is called '{taken}' already")
    gradient, dweight = _rewrite(found.graph, head, name)
    one = TensorValue(ONE_NUMBER, scalar_tensor("float32", 1.0).data)
    gradients = dict.fromkeys((*head.info.gradient, dweight), gradient)
    repeat_updates(program, [NewWeight(repeat, name, one, gradients)])
    return names


class Builder:
    """Makes nodes of forward and backward, marked as such."""

    def __init__(self, graph: Graph):
        self.graph = graph
        self.backward = False

    def make(self, op: Op | str, operands: Sequence[Value], type_: Type, source: Value) -> Node:
        node = self.graph.create(op, operands, type_, scope=SCOPE, sources=[source])
        return self.mark(node)

    def mark(self, node: Node) -> Node:
        node.primal = {BACKWARD_ID if self.backward else FORWARD_ID: f"{SCOPE}.{node.name}"}
        return node

    def through_length(self, gradient: Node, value: Value, unit: Value, axis: int) -> Node:
        """The gradient of ``value``, from that of what it is at length one; takes over its uses."""
        users = list(gradient.use_sites())
        operands = [value, unit, gradient]
        through = self.make(_normalise("L2NormalizeGrad", axis), operands, plain(value.type), gradient)
        rewire(users, through)
        return through


def _rewrite(graph: Graph, head: Head, name: str) -> tuple[Node, Node]:
    """Forward and backward of the normalised layer; returns the gradients of multiplier and weight."""
    fx = Effects(graph)
    build = Builder(graph)
    row = 1 if head.transposed else 0
    x_type, w_type, z_type = (plain(v.type) for v in (head.x, head.weight, head.result))
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


def split(found: TrainingAnatomy, weight: str | None) -> TrainingAnatomy:
    """The anatomy once the product, where it adds a bias itself (Dense), is a product and an addition."""
    product = product_of(found, weight)
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


def drop_bias(program: Program, graph: Graph, add: Node, product: Node) -> str:
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
