"""On CPU: what passes ask of gradients, whether all are finite and what their squares add up to, is asked of few
tensors.

A kernel has to be started however small its operands are, and for each gradient a finite test and a norm are five of
them. So small gradients are joined in a row, and the row is measured. In a job of several ranks each sum of squares
stays by itself: ranks which hold other gradients add up in one order.

Tensors are tested by their products with vectors of zeros: those of finite numbers are zero, those of an infinity or
NaN are NaN. MindSpore's CPU kernels of IsFinite and ReduceAll take 7 ns an element, its matrix product 0.3.

The squares of a big gradient are added up by its product with itself, which reads it once and writes one number, in
programs with convolutions: for these sessions run oneDNN without AVX-512, with which that product is slower than rows.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import gcd, prod

from ...ir.analysis.convolutions import convolves
from ...ir.analysis.effects.state_access import summarize
from ...ir.builders.nodes import Nodes
from ...ir.builders.packing import join, without_idle_reshape
from ...ir.builders.reduce import BIG, LONGEST_ROW, all_true, square_sum
from ...ir.core.attributes import TensorValue
from ...ir.core.data import ZeroData
from ...ir.core.graph import Graph, Node, Value, tensor_type
from ...ir.core.inference import infer
from ...ir.core.names import SQUARES
from ...ir.core.primitives import CPU
from ...ir.core.types import DType, TensorType
from ...ir.core.walk import through, unpacked, walk
from ...ir.core.wording import counted
from ...ir.rewrite.effects.editing import Effects
from .context import Context

EXACT = 1 << 24
"""Elements of which a product, that adds up in another order than rows, is off by less than 1e-4 (docs/mindir.md)."""
Measured = dict[Node, Value]
"""What measures a tensor, and the tensor."""


def applies(graph: Graph, context: Context) -> bool:
    return context.target == CPU and any(_tests(part) or _sums(part, context) for part in graph.all_graphs())


def run(graph: Graph, context: Context) -> str:
    known, measured = summarize(graph), 0
    for part in graph.all_graphs():
        tests, sums = _tests(part), _sums(part, context)
        if tests or sums:
            fx, rows = Effects(part, known), _Rows(part)
            for whole, asked in tests.items():
                _ask_together(part, whole, asked, rows)
            for added, asked in sums.items():
                _add_together(part, added, asked, rows)
            fx.commit()
            measured += len({value for asked in (*tests.values(), *sums.values()) for value in asked.values()})
    return f"{counted(measured, 'gradient')} measured together"


class _Rows:
    """The small ones of tensors as one, with zeros behind them that make it a whole number of rows. What scales all of
    them scales the row."""

    def __init__(self, graph: Graph) -> None:
        self._graph = graph
        self._made: dict[tuple[Value, ...], Value] = {}

    def joined(self, values: Iterable[Value]) -> Value:
        small = tuple(dict.fromkeys(values))
        if small not in self._made:
            rest = -sum(tensor_type(value).size for value in small) % LONGEST_ROW
            zeros = [_zeros(self._graph, rest)] if rest else []
            scaled = _scaled_alike(small)
            terms = [node.operand(0) for node in scaled] or small
            row: Node = join(self._graph, [*terms, *zeros], scope="")
            for term in unpacked([row.operand(0)]):
                without_idle_reshape(self._graph, term)
            if scaled:
                row = self._graph.create(scaled[0].op, [row, scaled[0].operand(1)], row.type, scope=scaled[0].scope)
            self._made[small] = row
        return self._made[small]


def _scaled_alike(values: Sequence[Value]) -> list[Node]:
    """The values, where all of them are multiplied or divided by one number; none where they are not."""
    nodes = [v for v in values if isinstance(v, Node) and v.op.name in ("Mul", "RealDiv")]
    if len(nodes) < len(values) or len({(node.op, node.operand(1)) for node in nodes}) > 1:
        return []
    number = nodes[0].operand(1).type == TensorType(DType.FLOAT32, ())
    alike = all(_is_float(v) and tensor_type(v).shape == tensor_type(n).shape for n in nodes for v in [n.operand(0)])
    return nodes if number and alike else []


def _is_small(value: Value) -> bool:
    return tensor_type(value).size < BIG


def _is_float(value: Value) -> bool:
    type_ = value.type
    return isinstance(type_, TensorType) and type_.is_static and type_.dtype is DType.FLOAT32 and type_.size > 0


def _depends(asked: Measured) -> bool:
    """Whether a tensor is computed from what measures another."""
    values = set(asked.values())
    return any(node in values for node in walk(asked, lambda node: node.users))


def _tests(graph: Graph) -> dict[Node, Measured]:
    """By the conjunction of all their answers, the finite tests of tensors that are several, or big."""
    whole: dict[Node, Node] = {}
    found: dict[Node, Measured] = {}
    for node in reversed(graph):
        if node.op.name in ("ReduceAll", "LogicalAnd"):
            users = list(node.use_sites())
            joined = len(users) == 1 and users[0][0].op.name == "LogicalAnd"
            whole[node] = whole[users[0][0]] if joined else node
        if node.op.name == "ReduceAll" and node.operand(1).literal in ((), None) and node.operand(2).literal is False:
            test = node.operand(0)
            if isinstance(test, Node) and test.op.name == "IsFinite" and _is_float(test.operand(0)):
                found.setdefault(whole[node], {})[node] = test.operand(0)
    found = {key: dict(reversed(asked.items())) for key, asked in found.items()}
    several = {key: asked for key, asked in found.items() if len(asked) > 1 or not all(map(_is_small, asked.values()))}
    return {key: asked for key, asked in several.items() if not _depends(asked)}


def _ask_together(graph: Graph, whole: Node, asked: Measured, rows: _Rows) -> None:
    values = dict.fromkeys(asked.values())
    small, big = ([v for v in values if _is_small(v) is wanted] for wanted in (True, False))
    tensors = [*([rows.joined(small)] if len(small) > 1 else small), *big]
    n = Nodes(graph, whole.scope)
    numbers = [_between_zeros(graph, value) for value in tensors]
    total = numbers[0] if len(numbers) == 1 else n.op("AddN", n.op("MakeTuple", *numbers))
    finite = n.op("IsFinite", n.reshape(total))
    inner = set(walk([whole], lambda node: [v for v in node.operands if isinstance(v, Node) and v.op is whole.op]))
    others = [v for node in inner for v in node.operands if v not in inner and v not in asked]
    others = [] if whole in asked else list(dict.fromkeys(others))
    whole.replace_uses(all_true(graph, [finite, *others], scope=whole.scope))


def _between_zeros(graph: Graph, value: Value) -> Value:
    """A tensor as a matrix, with a vector of zeros on one side at least: one number, in a matrix. The longer side is
    added up first, so that few elements remain."""
    shape = tensor_type(value).shape or (1,)
    columns = prod(shape[1:]) if len(shape) > 1 else gcd(shape[0], LONGEST_ROW)
    rows = prod(shape) // columns
    n = Nodes(graph, "")
    value = n.reshape(value, rows, columns)
    if rows > columns:
        value, rows = n.matmul(_zeros(graph, 1, rows), value), 1
        return value if columns == 1 else n.matmul(value, _zeros(graph, columns, 1))
    value = n.matmul(value, _zeros(graph, columns, 1))
    return value if rows == 1 else n.matmul(_zeros(graph, 1, rows), value)


def _zeros(graph: Graph, *shape: int) -> Value:
    type_ = TensorType(DType.FLOAT32, shape)
    return graph.constant(TensorValue(type_, ZeroData(type_.nbytes)))


def _sums(graph: Graph, context: Context) -> dict[Node, Measured]:
    """By what adds them up, the sums of squares of small tensors that are several, and of big ones."""
    found: dict[Node, Measured] = {}
    largest = EXACT if any(map(convolves, context.program.graphs.values())) else BIG
    for node in graph if context.ranks == 1 else ():
        terms = node.operand(0) if SQUARES in node.marks else None
        if isinstance(terms, Node):
            sums = {v: x for v in terms.operands if isinstance(v, Node) and (x := _squared(v)) and len(v.uses) == 1}
            once = {v: x for v, x in sums.items() if terms.operands.count(v) == 1 and tensor_type(x).size < largest}
            if (len(once) > 1 or not all(map(_is_small, once.values()))) and not _depends(once):
                found[node] = once
    return found


def _squared(total: Node) -> Value | None:
    """The tensor of whose squares a value is the sum, as :func:`square_sum` writes it; None of any other."""
    squares = total.operand(0) if total.op.name == "ReduceSum" and tensor_type(total).shape == () else None
    squares = None if squares is None else through(squares, ("ReduceSum",))
    if not (isinstance(squares, Node) and squares.op.name == "Square" and _is_float(squares.operand(0))):
        return None
    return through(squares.operand(0), ("Reshape",))


def _add_together(graph: Graph, added: Node, asked: Measured, rows: _Rows) -> None:
    terms, n = added.operand(0), Nodes(graph, added.scope)
    assert isinstance(terms, Node)
    small, big = ([v for v in asked.values() if _is_small(v) is wanted] for wanted in (True, False))
    columns = [n.reshape(value, tensor_type(value).size, 1) for value in big]
    totals = [n.reshape(n.matmul(column, column, transpose_a=True)) for column in columns]
    totals += [square_sum(graph, rows.joined(small), scope=added.scope)] if small else []
    terms.set_operands([*(v for v in terms.operands if v not in asked), *totals])
    terms.type = infer(terms.op, terms.operands)
    if terms.num_operands == 1:
        added.replace_uses(totals[0])
