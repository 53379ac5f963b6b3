"""What is measured of gradients, as passes write it: the test whether all are finite, and the sum of their squares.
Both are found, and replaced by what gives the same. And products with numbers, which scale gradients.
"""

from __future__ import annotations

from collections.abc import Mapping

from ...ir.analysis.effects.state_access import state_behind
from ...ir.builders.reduce import all_true
from ...ir.core.attributes import TensorValue
from ...ir.core.graph import Constant, Graph, Node, Value, tensor_type
from ...ir.core.inference import infer
from ...ir.core.names import SQUARES
from ...ir.core.primitives import VIEWS
from ...ir.core.types import DType, TensorType
from ...ir.core.walk import through, walk


def is_finite_test(node: Node) -> bool:
    """Whether a node is IsFinite of a float32 tensor of known shape, all of whose answers are joined into one."""
    if node.op.name != "IsFinite":
        return False
    type_ = node.operand(0).type
    fixed = isinstance(type_, TensorType) and type_.is_static and type_.dtype is DType.FLOAT32
    return fixed and bool(node.uses) and all(_joins_all(user) for user in node.uses)


def _joins_all(node: Node) -> bool:
    axes = node.operand(1) if node.op.name == "ReduceAll" else None
    keep = node.operand(2) if axes is not None else None
    return isinstance(axes, Constant) and axes.value in ((), None) and isinstance(keep, Constant) and not keep.value


def square_sum_from(node: Node) -> tuple[Node, ...]:
    """The nodes from ``node`` to the sum of squares of its operand, which a clip of this compiler adds to others (see
    :func:`square_sum`); none where it begins no such sum. What the file adds up keeps its order."""
    chain = _square_sum(node)
    terms = _only_user(chain[-1]) if chain else None
    added = _only_user(terms) if terms is not None and terms.op.name == "MakeTuple" else None
    return chain if added is not None and SQUARES in added.marks else ()


def whole_square_sum_from(node: Node) -> tuple[Node, ...]:
    """As :func:`square_sum_from`, also where :func:`add_once` left nothing to add."""
    chain = _square_sum(node)
    return chain if chain and SQUARES in chain[-1].marks else square_sum_from(node)


def _square_sum(node: Node) -> tuple[Node, ...]:
    before = node.operand(0) if node.op.name == "Square" else None
    if isinstance(before, Node) and before.op.name == "Reshape" and _only_user(before) is node:
        return ()  # it begins there
    squares = _only_user(node) if node.op.name == "Reshape" else node
    if squares is None or squares.op.name != "Square":
        return ()
    chain = list(dict.fromkeys((node, squares)))
    total = _only_user(squares)
    while total is not None and total.op.name == "ReduceSum":
        chain.append(total)
        if tensor_type(total).shape == ():
            return tuple(chain)
        total = _only_user(total)
    return ()


def places_of_sums(graph: Graph) -> dict[Value, int]:
    """The place of each sum of squares among those that are added: the order of gradients, however passes were
    written."""
    tuples = [node.operand(0) for node in graph if SQUARES in node.marks]
    return {v: i for terms in tuples if isinstance(terms, Node) for i, v in enumerate(terms.operands)}


def _only_user(node: Node) -> Node | None:
    """Who takes a node, once, where nobody else does."""
    uses = list(node.use_sites())
    return uses[0][0] if len(uses) == 1 else None


def conjunctions_of(graph: Graph) -> dict[Node, Node]:
    """For each scalar answer the conjunction that it is a part of, and nothing else takes: itself where there is
    none."""
    whole: dict[Node, Node] = {}
    for node in reversed(graph):
        if node.op.name in ("ReduceAll", "LogicalAnd"):
            users = list(node.use_sites())
            joins = len(users) == 1 and users[0][0].op.name == "LogicalAnd"
            whole[node] = whole[users[0][0]] if joins else node
    return whole


def ask_once(graph: Graph, whole: Node, wholes: Mapping[Node, Node], answers: Mapping[Value, Value]) -> None:
    """Makes a conjunction of what takes the place of its parts, each once."""
    if whole in answers:
        whole.replace_uses(answers[whole])
        return

    def joins(node: Node) -> list[Node]:
        return [v for v in node.operands if isinstance(v, Node) and v.op is whole.op and wholes[v] is whole]

    inner = dict.fromkeys(walk([whole], joins))
    parts = [v for node in inner for v in node.operands if v not in inner]
    whole.replace_uses(all_true(graph, list(dict.fromkeys(answers.get(v, v) for v in parts)), scope=whole.scope))
    graph.erase_all(inner)


def add_once(graph: Graph, terms: Node, sums: Mapping[Value, Value]) -> None:
    """Lets a tuple of terms, which are added, have what takes the place of some of them, each once."""
    new = dict.fromkeys(sums[v] for v in terms.operands if v in sums)
    terms.set_operands([*(v for v in terms.operands if v not in sums), *new])
    terms.type = infer(terms.op, terms.operands)
    if terms.num_operands == 1:
        (total,) = terms.uses
        whole = terms.operand(0)
        if isinstance(whole, Node):
            whole.marks = {**whole.marks, SQUARES: True}
        total.replace_uses(whole)
        graph.erase_all([total, terms])


def is_scaling(node: Node) -> bool:
    """Whether a node multiplies its first operand by a number, or divides it."""
    if node.op.name not in ("Mul", "MulNoNan", "RealDiv"):
        return False
    by, value = node.operand(1).type, node.operand(0).type
    if not (isinstance(by, TensorType) and isinstance(value, TensorType) and by.shape == ()):
        return False
    return node.type == TensorType(value.dtype, value.shape)


def reads_state(value: Value) -> bool:
    """Whether a value is the memory of a state: a token waits for all who read it, and knows no new readers."""
    return state_behind(through(value, VIEWS)) is not None


def is_constant(value: Value) -> bool:
    """Whether a value is a constant tensor of one number."""
    if not (isinstance(value, Constant) and isinstance(value.value, TensorValue)):
        return False
    return isinstance(value.type, TensorType) and value.type.size == 1
