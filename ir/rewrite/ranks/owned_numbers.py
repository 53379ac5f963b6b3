"""Numbers that each rank computes of what it alone holds, and all need: squares of gradients in a norm, verdicts of a
finite check. They are exchanged before they are merged, so that the merging is the same on all ranks, bit by bit."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ...builders.cast import cast
from ...core.attributes import TensorValue, scalar_tensor
from ...core.data import ZeroData
from ...core.graph import Graph, Node, Value, tensor_type
from ...core.sites import site
from ...core.types import DType, TensorType
from ..removal import Plan
from .collectives import SUMMED, all_reduce

SCOPE = "ownership"


@dataclass(frozen=True, slots=True)
class Number:
    """``value``, of one element, is computed of what the owner of ``weight`` alone holds; ``uses``: where it is merged
    with others."""

    weight: str
    value: Value
    uses: tuple[tuple[Node, int], ...]


def merged_numbers(graph: Graph, weight: str, plan: Plan) -> list[Number] | str:
    """The numbers that ``plan``, the removal of one weight's state, would take out of merging ops; or why they cannot
    be exchanged."""
    sites: list[tuple[Node, int]] = []
    for node, at in plan.merges.items():
        holder = node if isinstance(node.operand(0).type, TensorType) else node.operand(0)
        if not isinstance(holder, Node) or (holder is not node and holder.op.name != "MakeTuple"):
            return f"{site(node)} merges numbers that come from elsewhere"
        sites.extend((holder, i) for i in at)
    for node in plan.stacked:
        items = node.operand(0)
        if not isinstance(items, Node) or items.op.name != "MakeTuple":
            return f"{site(node)} stacks numbers that come from elsewhere"
        sites.extend((items, i) for i in plan.tuples.get(items, ()))
    uses: dict[Value, list[tuple[Node, int]]] = {}
    for user, i in sites:
        value = user.operand(i)
        if user.graph is not graph:
            return f"{site(user)} merges numbers inside a function"
        type_ = value.type
        if not isinstance(type_, TensorType) or not type_.is_static or type_.size != 1:
            return (
                f"{site(user)} takes {site(value)}, which is more than one number, together with those of other weights"
            )
        if type_.dtype is not DType.BOOL and type_.dtype not in SUMMED:
            return f"{site(user)} takes {site(value)}, and no collective adds up numbers of type {type_.dtype}"
        uses.setdefault(value, []).append((user, i))
    return [Number(weight, value, tuple(sites)) for value, sites in uses.items()]


def exchange(graph: Graph, numbers: Sequence[Number], group: str) -> dict[Number, Node]:
    """Puts the sum over the ranks in the place of each number; numbers that need others are exchanged after these.
    Returns the summand of this rank for each, which :func:`silence` makes zero on all ranks but one."""
    summands: dict[Number, Node] = {}
    for members in _rounds(graph, numbers):
        parts = [_reshaped(graph, cast(graph, n.value, DType.FLOAT32, scope=SCOPE), (1,)) for n in members]
        packed = graph.create("MakeTuple", parts, scope=SCOPE)
        whole = TensorType(DType.FLOAT32, (len(parts),))
        joined = graph.create("Concat", [packed, graph.constant(0)], whole, scope=SCOPE)
        total = all_reduce(graph, joined, group, scope=SCOPE)
        for at, (number, part) in enumerate(zip(members, parts, strict=True)):
            summands[number] = part
            received = _received(graph, total, at, tensor_type(number.value))
            for user, i in number.uses:
                user.set_operand(i, received)
    graph.sort()
    return summands


def silence(summand: Node) -> None:
    """The rank adds zero: another one computes the number."""
    graph = summand.graph
    assert graph is not None
    type_ = tensor_type(summand)
    summand.replace_uses(graph.constant(TensorValue(type_, ZeroData(type_.nbytes))))


def _received(graph: Graph, total: Node, at: int, type_: TensorType) -> Value:
    bounds = [graph.constant((at,)), graph.constant((1,))]
    part = graph.create("Slice", [total, *bounds], TensorType(DType.FLOAT32, (1,)), scope=SCOPE)
    shaped = _reshaped(graph, part, type_.shape)
    if type_.dtype is DType.BOOL:
        return graph.create("Greater", [shaped, graph.constant(scalar_tensor("float32", 0.0))], scope=SCOPE)
    return cast(graph, shaped, type_.dtype, scope=SCOPE)


def _reshaped(graph: Graph, value: Value, shape: tuple[int, ...]) -> Node:
    return graph.create("Reshape", [value, graph.constant(shape)], TensorType(DType.FLOAT32, shape), scope=SCOPE)


def _rounds(graph: Graph, numbers: Sequence[Number]) -> list[list[Number]]:
    """Numbers by how many exchanges stand before them, in the order of the graph; one sweep."""
    merging = {use for number in numbers for use in number.uses}
    of_value = {number.value: number for number in numbers}
    depth: dict[Value, int] = {}
    rounds: dict[int, list[Number]] = {}
    for node in graph:
        depth[node] = max((depth.get(v, 0) + ((node, i) in merging) for i, v in enumerate(node.operands)), default=0)
        if node in of_value:
            rounds.setdefault(depth[node], []).append(of_value[node])
    return [rounds[k] for k in sorted(rounds)]
