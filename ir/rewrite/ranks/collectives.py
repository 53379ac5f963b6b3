"""Collectives: primitives in which the ranks of a job take part together. The one place that makes and recognises them.

Attributes as MindSpore 2.10 exports them: ``group`` names who takes part (all ranks: a name that differs by target),
``op`` how values are joined, ``fusion`` which calls Ascend may join into one. They carry no effect token: a collective
is a function of the operands of all ranks, so every rank must run the same ones in the same order. The runtime keeps
the order of one graph; a pass must not put one where only some ranks come by (a branch taken on what differs by rank).

CPU: AllReduce adds up float32 and float16; it has neither maximum nor integers. AllGather and Broadcast take all ranks,
no group of some. No target takes float64.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from ...analysis.functions.calls import reachable_functions
from ...core.attributes import Attribute
from ...core.graph import Graph, Node, Value, tensor_type
from ...core.primitives import ASCEND, CPU, GPU, Family, named
from ...core.program import Program
from ...core.types import DType, TensorType, TupleType, Type
from ...core.wording import counted, print_bytes

COLLECTIVES = named(Family.COLLECTIVE, in_place=True)
WORLD = {CPU: "mccl_world_group", GPU: "nccl_world_group", ASCEND: "hccl_world_group"}
"""The group of all ranks, by target."""
SUMMED = frozenset({DType.FLOAT32, DType.FLOAT16, DType.BFLOAT16})
"""The summands of AllReduce."""


def is_collective(node: Node) -> bool:
    return node.op.name in COLLECTIVES


def collectives(graph: Graph) -> Iterator[Node]:
    """The collectives of a graph and its functions."""
    return filter(is_collective, graph.all_nodes())


def all_reduce(graph: Graph, value: Value, group: str, *, scope: str = "") -> Node:
    """The sum of ``value`` over the ranks of ``group``; shape and type stay."""
    attributes: dict[str, Attribute] = {"group": group, "fusion": 0, "op": "sum", "no_eliminate": True, "index": 0}
    return graph.create("AllReduce", [value], attributes=attributes, scope=scope, sources=[value])


def all_gather(graph: Graph, value: Value, group: str, ranks: int, *, scope: str = "") -> Node:
    """The values of the ``ranks`` ranks of ``group``, one after the other along the first axis."""
    attributes: dict[str, Attribute] = {
        "group": group, "rank_size": ranks, "fusion": 0, "no_eliminate": True, "mean_flag": False,
    }  # fmt: skip
    type_ = tensor_type(value)
    joined = TensorType(type_.dtype, (type_.shape[0] * ranks, *type_.shape[1:]))
    return graph.create("AllGather", [value], joined, attributes=attributes, scope=scope, sources=[value])


def reduce_scatter(graph: Graph, value: Value, group: str, ranks: int, *, scope: str = "") -> Node:
    """A part of the sum of ``value`` over the ``ranks`` ranks of ``group``: the first axis is divided among them. CPU
    has no kernel for it."""
    attributes: dict[str, Attribute] = {
        "group": group, "rank_size": ranks, "fusion": 0, "op": "sum", "no_eliminate": True,
    }  # fmt: skip
    type_ = tensor_type(value)
    part = TensorType(type_.dtype, (type_.shape[0] // ranks, *type_.shape[1:]))
    return graph.create("ReduceScatter", [value], part, attributes=attributes, scope=scope, sources=[value])


def broadcast(graph: Graph, value: Value, group: str, root: int, *, scope: str = "") -> Node:
    """The ``value`` that rank ``root`` of ``group`` has, on all of them; shape and type stay."""
    attributes: dict[str, Attribute] = {"root_rank": root, "group": group, "no_eliminate": True}
    packed = graph.create("MakeTuple", [value], scope=scope)
    sent = graph.create("Broadcast", [packed], attributes=attributes, scope=scope, sources=[value])
    return graph.create("TupleGetItem", [sent, graph.constant(0)], tensor_type(value), scope=scope)


def group_of(node: Node) -> str:
    """The group in which a collective runs; "" where the file does not say."""
    return str(node.attributes.get("group", ""))


def is_world(group: str) -> bool:
    """Whether all ranks of the job form the group, on any target."""
    return group in WORLD.values()


@dataclass(frozen=True, slots=True)
class Traffic:
    """How many collectives run, and the bytes that one rank gives to them."""

    count: int = 0
    nbytes: int = 0

    def __add__(self, other: Traffic) -> Traffic:
        return Traffic(self.count + other.count, self.nbytes + other.nbytes)

    def __mul__(self, times: int) -> Traffic:
        return Traffic(self.count * times, self.nbytes * times)

    def __str__(self) -> str:
        return f"{counted(self.count, 'collective')}, {print_bytes(self.nbytes)}"


def traffic(graph: Graph) -> Traffic:
    """The traffic of one run of a graph, each function of its own counted once."""
    reached = reachable_functions(graph)
    total = Traffic()
    for node in collectives(graph):
        if node.graph is graph or (node.graph is not None and node.graph.name in reached):
            total += Traffic(1, sum(_nbytes(v.type) for v in node.operands))
    return total


def cycle_traffic(program: Program) -> Traffic:
    """The traffic of one cycle of a program (variant 0, where its schedule has several)."""
    total = Traffic()
    for entry in program.schedule.cycle:
        total += traffic(program.graphs[entry.graph]) * entry.repeat
    return total


def _nbytes(type_: Type) -> int:
    if isinstance(type_, TupleType):
        return sum(_nbytes(t) for t in type_.elements)
    return type_.nbytes if isinstance(type_, TensorType) and type_.is_static else 0
