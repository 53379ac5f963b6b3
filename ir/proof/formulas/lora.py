"""Adapters of low rank: beside each product y = x · Wᵀ of a weight W stands (α / r) · (x · Aᵀ) · Bᵀ.

    t = s · A · xᵀ, s = α / r        y' = y + tᵀ · Bᵀ, behind the bias        dBᵀ = t · dy
    d = s · Bᵀ · dyᵀ                 dx' = dx + dᵀ · A                        dA = d · x

dy is the gradient of y, x and y are matrices with a row for each place. A weight in several products has one adapter,
whose gradients are sums. A and B are updated as the original updates W: by the same primitives, from their gradients,
with slots of their own that begin as those of W. All other weights but those of ``train`` stay as they are.

The original is stated with the adapters. B begins with 0. How A begins is not stated.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from fnmatch import fnmatchcase
from math import prod
from typing import Any

from ...analysis.training.anatomy import TrainingAnatomy
from ...analysis.training.weights import WeightInfo
from ...builders.nodes import Nodes
from ...core.data import ZeroData
from ...core.graph import Graph, Node, Value, tensor_type
from ...core.names import BACKWARD_ID, FORWARD_ID, lora_a_of, lora_b_of
from ...core.program import Program
from ...core.types import TensorType
from ...rewrite.effects.editing import Effects
from ...symbolic.execution import Unproved
from .layers import Layer, layers_of
from .records import anatomy_of, options_of, trained
from .repeated import Repeated, update_as
from .statement import Stated

PASS = "lora"


def adapted(original: Program, program: Program) -> list[str]:
    """The weights with an adapter that the program brings along."""
    own = program.state.keys() - original.state.keys()
    return [n for n, v in original.state.items() if v.role == "weight" and {lora_a_of(n), lora_b_of(n)} <= own]


def still(program: Program, weights: Iterable[str]) -> frozenset[str]:
    """Those of the weights that adapters are trained in the place of."""
    options = options_of(program, PASS)
    if options is None:
        return frozenset()
    globs = options["train"]
    adapters = {name for w in program.state for name in (lora_a_of(w), lora_b_of(w)) if w in program.state}
    return frozenset(w for w in weights if w not in adapters and not any(fnmatchcase(w, g) for g in globs))


def with_adapters(original: Program, program: Program) -> Program:
    """The original with the adapters that the program has."""
    options = options_of(program, PASS)
    if options is None:
        return original
    base = original.copy()
    (graph,) = base.graphs.values()
    found = anatomy_of(graph)
    fx, own = Effects(graph), adapted(original, program)
    if not own or still(program, own) < set(own):
        raise Unproved("no weight has an adapter of its own, or one that has is trained as before")
    new: list[Repeated] = []
    for name in own:
        if not any(fnmatchcase(name, glob) for glob in options["match"]):
            raise Unproved(f"weight '{name}' has an adapter, and the options do not ask for it")
        info = trained(found, name, "which has an adapter")
        new += _adapt(base, program, found, info, fx, options)
    update_as(base, found, new, fx)
    fx.commit()
    return base


def state(original: Program, program: Program) -> list[Stated]:
    """``original``: with the adapters."""
    options = options_of(program, PASS)
    if options is None:
        return []
    own = [n for n, v in original.state.items() if v.role == "weight" and lora_a_of(n) in original.state]
    weights = tuple(name for n in own for name in (lora_a_of(n), lora_b_of(n)))
    scale = f"{options['alpha']:g} / {options['rank']}"
    return [
        Stated(PASS, options, f"y' = y + {scale} · (x · Aᵀ) · Bᵀ beside each product y of {', '.join(own)}", weights)
    ]


def _adapt(
    base: Program, program: Program, found: TrainingAnatomy, info: WeightInfo, fx: Effects, options: Mapping[str, Any]
) -> list[Repeated]:
    """Puts adapters beside all products of a weight; how they are to be updated."""
    graph, name, rank = found.graph, info.name, int(options["rank"])
    layers, inputs_first = layers_of(found, info)
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
    return [Repeated(info, n, {g: _sum(graph, g, of, f"adapter {n}") for g, of in shares[n].items()}) for n in types]


def _beside(graph: Graph, layer: Layer, a: Node, b: Node, s: float) -> tuple[Value, Value]:
    """Puts the adapter beside a layer; its shares of dA and dB."""
    dtype, shape = tensor_type(layer.product).dtype, tensor_type(layer.result).shape
    w = Nodes(graph, "", {FORWARD_ID: f"adapter at {layer.product.name}"})
    takers = list(layer.result.use_sites())
    with graph.inserting_after(layer.result):
        a, b = (w.cast(matrix, dtype) for matrix in (a, b))  # type: ignore[assignment]
        *rows, width = tensor_type(layer.x).shape
        x = w.reshape(layer.x, -1 if -1 in rows else prod(rows), width)
        inner = w.scaled(w.matmul(a, x, transpose_b=True), s)
        outer = w.matmul(inner, b, transpose_a=True, transpose_b=True)
        total = w.op("Add", layer.result, w.reshape(outer, *shape))
    for user, i in takers:
        user.set_operand(i, total)
    w = Nodes(graph, "", {BACKWARD_ID: f"adapter at {layer.product.name}"})
    with graph.inserting_after(layer.dy):
        back = w.scaled(w.matmul(w.transpose(b, 1, 0), layer.dy, transpose_b=True), s)
        da, db = w.matmul(back, x), w.transpose(w.matmul(inner, layer.dy), 1, 0)
    for dx in layer.dx:
        takers = list(dx.use_sites())
        with graph.inserting_after(dx):
            more = w.op("Add", dx, w.reshape(w.matmul(back, a, transpose_a=True), *tensor_type(dx).shape))
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
