"""A matrix of which each rank of a job holds a share of the rows: what a program does with it, for one rank.

A program takes such a matrix P, a state whose notes say :data:`ROWS`, in two products alone: P·x and P'·y. On R ranks,
each of which has the same x and y, rank r keeps rows r·c to (r + 1)·c of the matrix, filled up with zeros, where c is
the number of rows by R, rounded up. With the constant E that picks these rows of a column, P·x = Σ_r E'·(P_r·x) and
P'·y = Σ_r P_r'·(E·y): sums over the ranks.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable
from typing import TYPE_CHECKING

from ...core.attributes import TensorValue
from ...core.data import from_numpy
from ...core.errors import RuntimeFailure
from ...core.graph import Graph, Node, Value, tensor_type
from ...core.inference import infer
from ...core.names import ROWS, STAGE
from ...core.program import Program
from ...core.sites import site
from ...core.types import TensorType
from ..effects.editing import Effects
from .buckets import ALL_REDUCE, sum_over_ranks

if TYPE_CHECKING:
    import numpy as np

SCOPE = "shares"


def shared_states(program: Program, ranks: int) -> set[str]:
    """The states whose rows ``ranks`` ranks share out: where all have the same gradients, since these are summed."""
    found = {name for name, variable in program.state.items() if variable.info.get(ROWS)}
    if ranks == 1 or not found:
        return set()
    using = [g for g in program.graphs.values() if any(name in g.states for name in found)]
    summed = all(any(node.marks.get(STAGE) == ALL_REDUCE for node in graph) for graph in using)
    return found if summed else set()


def share_of(matrix: np.ndarray, rank: int, ranks: int) -> np.ndarray:
    """The rows of a matrix that a rank holds, filled up with zeros."""
    import numpy as np

    count = math.ceil(len(matrix) / ranks)
    rows = np.zeros((count, *matrix.shape[1:]), matrix.dtype)
    own = matrix[rank * count : (rank + 1) * count]
    rows[: len(own)] = own
    return rows


def share_rows(graph: Graph, states: Collection[str], rank: int, ranks: int, group: str) -> None:
    """Rewrites ``graph`` in place so that it takes a rank's share of these states."""
    matrices = [graph.states[name] for name in sorted(states) if name in graph.states]
    if not matrices:
        return
    fx = Effects(graph)
    rows = tensor_type(matrices[0]).shape[0]
    pick = graph.constant(_pick(rows, rank, ranks))
    shares: dict[Value, Node] = {}
    narrow: list[Node] = []
    whole: list[Node] = []
    for state in matrices:
        for load in list(state.uses):
            if load.op.name != "Load":
                continue
            for product in list(load.uses):
                if product.op.name == "UpdateState":
                    continue
                if product.op.name != "MatMul" or product.operand(0) is not load:
                    raise RuntimeFailure(f"{site(product)} takes '{state.name}', whose rows the ranks share out, whole")
                (whole if product.operand(2).literal is True else narrow).append(product)
            load.type = _rows(load, ranks)
        state.type = _rows(state, ranks)
    for product in whole:
        y = product.operand(1)
        if y not in shares:
            shares[y] = _matmul(graph, pick, y, transposed=False)
        product.set_operand(1, shares[y])
    for old, new in _summed(graph, whole, group):
        for user, i in old:
            user.set_operand(i, new)
    columns = list(dict.fromkeys(_column(product, ranks) for product in narrow))
    for column in columns:
        uses = list(column.use_sites())
        placed = _matmul(graph, pick, column, transposed=True)
        (total,) = sum_over_ranks(graph, [placed], group, scope=SCOPE)
        for user, i in uses:
            user.set_operand(i, total)
    fx.commit()


def _column(product: Node, ranks: int) -> Node:
    """P_r·x, or the sum over several matrices that it is part of, with their types made those of a share."""
    product.type = _rows(product, ranks)
    (packed,) = product.uses
    if packed.op.name != "MakeTuple":
        return product
    (total,) = packed.uses
    packed.type = infer(packed.op, packed.operands)
    total.type = TensorType(tensor_type(product).dtype, tensor_type(product).shape)
    return total


def _summed(graph: Graph, products: Iterable[Node], group: str) -> list[tuple[list[tuple[Node, int]], Node]]:
    nodes = list(products)
    uses = [list(node.use_sites()) for node in nodes]
    return list(zip(uses, sum_over_ranks(graph, nodes, group, scope=SCOPE), strict=True))


def _rows(value: Value, ranks: int) -> TensorType:
    type_ = tensor_type(value)
    return TensorType(type_.dtype, (math.ceil(type_.shape[0] / ranks), *type_.shape[1:]))


def _pick(rows: int, rank: int, ranks: int) -> TensorValue:
    import numpy as np

    return TensorValue(*from_numpy(share_of(np.eye(rows, dtype=np.float32), rank, ranks)))


def _matmul(graph: Graph, a: Value, b: Value, *, transposed: bool) -> Node:
    shape = (tensor_type(a).shape[1 if transposed else 0], tensor_type(b).shape[1])
    flags = [graph.constant(transposed), graph.constant(False)]
    return graph.create("MatMul", [a, b, *flags], TensorType(tensor_type(b).dtype, shape), scope=SCOPE)
