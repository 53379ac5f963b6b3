"""A normalised head: a layer x · Wᵀ + b becomes s · (x̂ · Ŵᵀ + b), x̂ and Ŵ the same with rows of length one.

    dW = N(W, dz' ᵀ · x̂)        dx = N(x, dz' · Ŵ)        db from dz' = s · dz        ds = Σ z · dz

z is the layer's result before s, dz the gradient of s · z, and N(v, g) the derivative of making v one long, which is
MindSpore's L2NormalizeGrad. s begins with 1, and is updated as the original updates W.
"""

from __future__ import annotations

from collections.abc import Container
from typing import Any

from ...analysis.effects.state_access import state_behind
from ...analysis.effects.tokens import orders_only
from ...analysis.training.anatomy import TrainingAnatomy
from ...analysis.training.network import BACKWARD
from ...analysis.training.weights import WeightInfo
from ...builders.nodes import Nodes
from ...builders.reduce import reduce_sum
from ...core.data import from_numpy
from ...core.graph import Node, Value, tensor_type
from ...core.names import BACKWARD_ID, FORWARD_ID
from ...core.op import Op
from ...core.program import Program
from ...core.sites import site
from ...core.types import tensor
from ...core.wording import counted
from ...rewrite.effects.editing import Effects
from ...symbolic.execution import Unproved
from .layers import layers_of
from .records import anatomy_of, options_of, trained
from .repeated import Repeated, update_as
from .statement import Stated

PASS = "normalised-head"
_LEAST = 9.999999747378752e-05
"""The least square of a length: MindSpore's, 1e-4 in float32."""
_NUMBER = tensor("float32", 1)


def multiplier_of(weight: str) -> str:
    return f"{weight.rpartition('.')[0]}.multiplier".lstrip(".")


def with_heads(original: Program, program: Program) -> Program:
    """The original with the layers normalised that have a multiplier in the program."""
    options = options_of(program, PASS)
    if options is None:
        return original
    if options["bias"] != "keep":
        raise Unproved("a head that has lost its bias has no law")
    heads = _heads(original, program.state.keys() - original.state.keys())
    if not heads or (options["layers"] == "last" and len(heads) > 1):
        raise Unproved(f"{counted(len(heads), 'layer')} with a multiplier of its own, and one was asked for")
    base = original.copy()
    (graph,) = base.graphs.values()
    for name in heads:
        found = anatomy_of(graph)
        info = trained(found, name, "whose layer has a multiplier")
        fx = Effects(graph)
        _normalise(base, found, info, fx)
        fx.commit()
    return base


def state(original: Program, program: Program) -> list[Stated]:
    """``original``: with the heads."""
    options = options_of(program, PASS)
    if options is None:
        return []
    heads = _heads(original, original.state)
    says = f"the layer of {', '.join(heads)} is s · (x̂ · Ŵᵀ + b), with rows of length one, and s is trained"
    return [Stated(PASS, options, says, tuple(multiplier_of(n) for n in heads))]


def _heads(original: Program, states: Container[str]) -> list[str]:
    """The matrices whose layers have a multiplier among the states."""
    weights = [n for n, v in original.state.items() if v.role == "weight" and len(v.shape) == 2]
    return [n for n in weights if multiplier_of(n) in states]


def _normalise(base: Program, found: TrainingAnatomy, info: WeightInfo, fx: Effects) -> None:
    graph, name = found.graph, multiplier_of(info.name)
    layers, _ = layers_of(found, info)
    if len(layers) != 1 or layers[0].product.op.name != "MatMul" or state_behind(layers[0].product.operand(1)) is None:
        raise Unproved(f"weight '{info.name}' is not that of one product as it stands: law missing for a head")
    (layer,) = layers
    product, result, dz, dweight = layer.product, layer.result, layer.dy, layer.share
    x, weight = product.operand(0), product.operand(1)
    row = 1 if bool(product.operand(3).literal) else 0
    forward, backward = Nodes(graph, "", {FORWARD_ID: name}), Nodes(graph, "", {BACKWARD_ID: name})

    def one_long(value: Value, axis: int) -> Node:
        return forward.linked(graph.create(_op("L2Normalize", axis), [value], tensor_type(value)))

    with graph.inserting_before(product):
        s = forward.linked(fx.load(graph.state(name, _NUMBER)))
        unit_x, unit_weight = one_long(x, 1), one_long(weight, row)
    product.set_operand(0, unit_x)
    product.set_operand(1, unit_weight)
    takers = list(result.use_sites())
    with graph.inserting_after(result):
        scaled = forward.op("Mul", s, result)
    for user, i in takers:
        user.set_operand(i, scaled)

    users = [u for u, i in dz.use_sites() if found.part(u) == BACKWARD and not orders_only(u, i)]
    if isinstance(dz, Node):
        with graph.inserting_after(dz):
            scaled_dz = backward.op("Mul", s, dz)
            total = reduce_sum(graph, backward.op("Mul", result, dz), scope="")
            assert isinstance(total, Node)
            ds = backward.reshape(backward.linked(total), 1)
    else:
        raise Unproved(f"{site(dz)} is no gradient of the backward part")
    swapped: dict[Value, Value] = {dz: scaled_dz, x: unit_x, weight: unit_weight}
    for node in dict.fromkeys([dweight, *layer.dx, *users]):
        for i, value in enumerate(node.operands):
            node.set_operand(i, swapped.get(value, value))
    for node, value, unit, axis in [(dweight, weight, unit_weight, row), *((dx, x, unit_x, 1) for dx in layer.dx)]:
        takers = list(node.use_sites())
        with graph.inserting_after(node):
            through = backward.linked(
                graph.create(_op("L2NormalizeGrad", axis), [value, unit, node], tensor_type(value))
            )
        for user, i in takers:
            user.set_operand(i, through)
        if node is dweight:
            dweight = through
    base.add_state(name, _NUMBER, "weight", _one()).trainable = True
    assert isinstance(ds, Node)
    gradients = dict.fromkeys((*info.gradient, dweight), ds)
    graph.sort()
    update_as(base, found, [Repeated(info, name, gradients)], fx)


def _op(name: str, axis: int) -> Op:
    return Op(name, {"axis": [axis], "epsilon": _LEAST}, kind=1)


def _one() -> Any:
    import numpy as np

    return from_numpy(np.ones(1, np.float32))[1]
