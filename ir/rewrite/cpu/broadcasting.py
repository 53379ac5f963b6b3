"""On CPU: arithmetic whose kernels would keep the place of every element does without.

A kernel that broadcasts an operand keeps, for each element of its result, the places of both operands: 16 bytes an
element, for as long as the graph exists. Div keeps them always, and is ten times slower than RealDiv. Sums and products
in half precision keep them always too. So a big operand is repeated by Tile first, Div of floats becomes RealDiv, half
precision is computed in float32, and the gradient of Softmax is written out, as MindSpore would do, for its difference
to be changed like others. The bits are the same (docs/memory.md).
"""

from __future__ import annotations

from dataclasses import replace

from ...analysis.cost.kernel_memory import PLACES_IN_HALF, PLACES_TO_BROADCAST
from ...builders.cast import cast
from ...core.attributes import scalar_tensor
from ...core.graph import Constant, Graph, Node, Value
from ...core.predicates import written_operands
from ...core.primitives import CPU, Family, facts
from ...core.types import DType, TensorType, is_monad
from ...core.wording import counted
from ..in_place import forward_without_writes
from .target import Target

SMALLEST = 1 << 16
"""Elements of a result below which places take less than a megabyte."""
_KERNELS = {Family.SUM: "Add", Family.DIFFERENCE: "Sub", Family.PRODUCT: "Mul"}
_REPEATED = PLACES_TO_BROADCAST - {"MaskedFill"}


def applies(graph: Graph, context: Target) -> bool:
    return context.target == CPU and any(is_lowered(n) for part in graph.all_graphs() for n in part)


def is_lowered(node: Node) -> bool:
    """Whether the lowering changes a node, which then keeps no places."""
    return _is_slow(node) or _is_softmax_gradient(node) or _is_in_half(node) or bool(_repeats(node))


def run(graph: Graph, context: Target) -> str:
    for part in graph.all_graphs():
        if in_place := {n for n in part if written_operands(n) and _is_in_half(n)}:
            forward_without_writes(part, in_place)
    found = [(part, n) for part in graph.all_graphs() for n in part if is_lowered(n) and not written_operands(n)]
    for part, node in found:
        for written in _written_out(part, node):
            plain = _in_float32(part, written) if _is_in_half(written) else written
            for i, multiples in _repeats(plain):
                with part.inserting_before(plain):
                    repeated = part.create(
                        "Tile", [plain.operand(i), part.constant(multiples)], plain.type, scope=plain.scope,
                        sources=[plain],
                    )  # fmt: skip
                plain.set_operand(i, repeated)
    graph.sort()
    return f"{counted(len(found), 'operation')} without lists of places"


def _written_out(graph: Graph, node: Node) -> list[Node]:
    """What stands for a node, in primitives that the lowering changes further."""
    if _is_slow(node):
        return [_divided(graph, node)]
    return _softmax_gradient(graph, node) if _is_softmax_gradient(node) else [node]


def _is_in_half(node: Node) -> bool:
    """Whether a node is big arithmetic in half precision, which always keeps places."""
    if node.op.name not in PLACES_IN_HALF or not _is_big(node) or not _is_half(node):
        return False
    first, second, *rest = node.operands
    scaled = any(v.literal != 1 for v in rest if not is_monad(v.type))
    return _is_half(first) and (_is_half(second) or isinstance(second.literal, float)) and not scaled


def _is_half(value: Value) -> bool:
    return isinstance(value.type, TensorType) and value.type.dtype is DType.FLOAT16


def _in_float32(graph: Graph, node: Node) -> Node:
    """Arithmetic of float16 in float32, rounded again: what it is by definition, since float32 holds more than twice as
    many digits. A cast waits for both operands, or one of a forward value would be there from the forward part on."""
    first, second = node.operands[:2]
    with graph.inserting_before(node):
        if isinstance(second.literal, float):
            second = graph.constant(scalar_tensor("float16", second.literal))
        wide = [_wide(graph, value, other, node) for value, other in ((first, second), (second, first))]
        kind = replace(node.type, dtype=DType.FLOAT32)  # type: ignore[type-var]
        made = graph.create(_KERNELS[facts(node.op).family], wide, kind, scope=node.scope, sources=[node])
        narrow = cast(graph, made, DType.FLOAT16, scope=node.scope)
    graph.substitute(node, narrow)
    return made


def _wide(graph: Graph, value: Value, other: Value, node: Node) -> Value:
    if isinstance(value, Node) and isinstance(other, Node) and value is not other:
        value = graph.create("Depend", [value, other], value.type, scope=node.scope, sources=[value])
    return cast(graph, value, DType.FLOAT32, scope=node.scope)


def _is_softmax_gradient(node: Node) -> bool:
    """Whether a node is the gradient of a big Softmax over the last axis."""
    if node.op.name != "SoftmaxBackward" or not _is_big(node) or not isinstance(node.type, TensorType):
        return False
    return node.operand(2).literal in (-1, len(node.type.shape) - 1)


def _softmax_gradient(graph: Graph, node: Node) -> list[Node]:
    """y · (dy − Σ y · dy), as MindSpore writes it; its difference broadcasts."""
    gradient, result = node.operands[:2]
    kind = node.type
    assert isinstance(kind, TensorType)

    def create(name: str, operands: list[Value], type_: TensorType) -> Node:
        return graph.create(name, operands, type_, scope=node.scope, sources=[node])

    with graph.inserting_before(node):
        product = create("Mul", [result, gradient], kind)
        summed = [graph.constant(value) for value in ((-1,), True, False)]
        total = create("ReduceSum", [product, *summed], replace(kind, shape=(*kind.shape[:-1], 1)))
        difference = create("Sub", [gradient, total], kind)
        made = create("Mul", [difference, result], kind)
    graph.substitute(node, made)
    return [product, difference, made]


def _is_slow(node: Node) -> bool:
    """Whether a node is a division of floats by Div, big enough to matter."""
    return node.op.name in ("Div", "Divs") and _is_big(node) and all(_divides(v, node) for v in node.operands)


def _divides(value: Value, node: Node) -> bool:
    """Whether a value is a tensor of the result's float type, or a number that the compiler knows."""
    if isinstance(value.type, TensorType) and isinstance(node.type, TensorType):
        return value.type.dtype is node.type.dtype and node.type.dtype.is_float
    return isinstance(value, Constant) and isinstance(value.value, int | float) and not isinstance(value.value, bool)


def _divided(graph: Graph, node: Node) -> Node:
    by = node.operand(1)
    if isinstance(by, Constant) and not isinstance(by.type, TensorType):
        assert isinstance(node.type, TensorType)
        by = graph.constant(scalar_tensor(str(node.type.dtype), float(by.value)))
    with graph.inserting_before(node):
        made = graph.create("RealDiv", [node.operand(0), by], node.type, scope=node.scope, sources=[node])
    graph.substitute(node, made)
    return made


def _repeats(node: Node) -> list[tuple[int, tuple[int, ...]]]:
    """The operands of a big operation to repeat, each with how often along each axis. One that would be repeated along
    axes in the middle is left: Tile takes longer there than the kernel does."""
    if node.op.name not in _REPEATED or not _is_big(node) or not isinstance(node.type, TensorType):
        return []
    found = []
    for i, operand in enumerate(node.operands[:2]):
        if not isinstance(operand.type, TensorType) or operand.type.size == 1 or operand.type.shape == node.type.shape:
            continue
        if operand.type.dtype is not node.type.dtype or not operand.type.is_static:
            return []
        shape = (1,) * (len(node.type.shape) - len(operand.type.shape)) + operand.type.shape
        multiples = tuple(all_ // own for all_, own in zip(node.type.shape, shape, strict=True))
        along = [axis for axis, times in enumerate(multiples) if times > 1]
        leading = along == list(range(len(along)))
        trailing = along == list(range(len(multiples) - len(along), len(multiples)))
        if not (leading or trailing):
            return []
        found.append((i, multiples))
    return found


def _is_big(node: Node) -> bool:
    kind = node.type
    return isinstance(kind, TensorType) and kind.is_static and kind.size >= SMALLEST
