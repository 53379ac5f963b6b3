"""How each primitive moves the batch.

Two rules for a kind of primitive: ``propagate``, which axes of the result hold the batch, given the operands; and
``grow``, what its operands must hold so that the result holds the batch where a user needs it. A primitive without a
rule can be followed only where no operand holds the batch. Sources: the operand order that ``mindspore.export`` 2.10
writes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from ...core.graph import Constant, Graph, Node, State
from ...core.op import CALL, MAKE_TUPLE
from ...core.predicates import is_effect
from ...core.primitives import BINDING, PRIMITIVES, Family, named
from ...core.sites import site
from ...core.types import TensorType, TupleType
from .products import PRODUCT_GROWS, PRODUCT_RULES
from .shapes import SHAPE_GROWS, SHAPE_RULES
from .spans import NONE, Axes, Span, Stuck, joined
from .sweep import Analysis, Batch, Label, element, holds, shape_of, tensors

Rule = Callable[[Analysis, Node], Label]

ELEMENTWISE = frozenset(
    {name for name, known in PRIMITIVES.items() if known.elementwise and (known.any_tensor or not known.writes)}
    | named(Family.COPY, Family.CAST, Family.DROPOUT)
    | {
        "Pow", "PowTensorScalar", "PowScalarTensor", "FloorDiv", "FloorMod", "Mod", "ReLU", "ReLU6", "ReluGrad",
        "ReLU6Grad", "GeLU", "GeLUGrad", "FastGeLU", "FastGeLUGrad", "SiLU", "SiLUGrad", "HSwish", "HSwishGrad",
        "HSigmoid", "HSigmoidGrad", "Elu", "EluGrad", "EluExt", "EluGradExt", "SeLU", "SeluGrad", "LeakyReLUExt",
        "LeakyReLUGradExt", "Sigmoid", "SigmoidGrad", "Tanh", "TanhGrad", "Softplus", "SoftplusGrad", "Mish",
        "MishGradExt", "Erf", "Erfc", "Sin", "Cos", "Tan", "Sinh", "Cosh", "Asin", "ACos", "Atan", "Floor", "Ceil",
        "Round", "Rint", "Log1p", "Expm1", "SqrtGrad", "RsqrtGrad", "ReciprocalGrad", "AbsGrad", "Inv", "InvGrad",
        "SquaredDifference", "MaximumGrad", "MinimumGrad", "EqScalar", "NeScalar", "LessScalar",
        "GreaterEqualScalar", "MaskedFill", "MaskedFillScalar", "ZerosLikeExt", "OnesLikeExt", "Softmax",
        "SoftmaxBackward", "SoftmaxGrad", "LogSoftmax", "LogSoftmaxGrad", "DropoutGrad", "DropoutGradExt",
        "DropoutDoMask", "InplaceCopy", "InplaceMaskedFillTensor", "InplaceMaskedFillScalar", "Triu", "Tril",
        "TrilExt", "BitwiseAnd", "BitwiseOr", "Lerp", "LerpScalar", "CumSum", "CumsumExt",
        "BinaryCrossEntropy", "BinaryCrossEntropyGrad", "BCEWithLogitsLoss", "BinaryCrossEntropyWithLogitsBackward",
        "KLDivLoss", "KLDivLossGrad", "KLDiv", "SmoothL1Loss", "SmoothL1LossGrad", "MSELossExt", "MSELossGradExt",
        "L1LossExt", "L1LossBackwardExt", "SigmoidCrossEntropyWithLogits", "SigmoidCrossEntropyWithLogitsGrad",
        "SoftMarginLoss", "SoftMarginLossGrad", "LogSigmoidGrad", "L2Normalize", "L2NormalizeGrad", "Bernoulli",
        "CeLU", "Softsign", "LogSigmoid", "HShrink", "HShrinkGrad", "SoftShrink", "SoftShrinkGrad", "Asinh",
        "AsinhGrad", "Acosh", "AcoshGrad", "Atanh", "AsinGrad", "ACosGrad", "AtanGrad", "Atan2", "Erfinv", "Trunc",
        "Xlogy", "Xdivy", "Hypot", "IsClose", "BitwiseXor", "LeftShift", "RightShift", "NanToNum", "Addcmul",
        "Addcdiv", "CumProd", "Cummax", "Cummin", "LogicalXor",
    }
)  # fmt: skip
"""Element by element, numpy's broadcasting; a kernel may reduce the result to a number. Also what works along one axis
and leaves the shape as it is: it does so at any extent."""

ROWS = frozenset({
    "ScatterAdd", "ScatterSub", "ScatterUpdate", "ScatterMul", "ScatterMax", "ScatterMin", "FusedSparseAdam",
    "FusedSparseLazyAdam", "FusedSparseFtrl", "FusedSparseProximalAdagrad", "SparseApplyAdagrad",
    "SparseApplyAdagradV2", "SparseApplyFtrl", "SparseApplyFtrlV2", "SparseApplyProximalAdagrad",
})  # fmt: skip
"""Writes some rows of a state: their number is free."""

_AT_AXIS: dict[tuple[int, tuple[int, ...], tuple[int, ...]], tuple[str, ...]] = {
    # (axis, operands that have the batch there, elements of the result that have it)
    (0, (0,), (0,)): (
        "Conv2D", "Conv3D", "Conv2DBackpropInput", "Conv2DTranspose", "MaxPool", "AvgPool", "BatchNorm", "BiasAdd",
        "PReLU", "AvgPool2D", "LRN", "AvgPool3D", "MaxPool3D", "AdaptiveAvgPool2D", "AdaptiveAvgPool2DGrad",
        "AdaptiveAvgPool2DExt", "ResizeNearestNeighbor", "ResizeNearestNeighborGrad", "ResizeNearestNeighborV2",
        "ResizeNearestNeighborV2Grad", "ResizeBilinear", "ResizeBilinearV2", "ResizeBicubic", "UpsampleBilinear2D",
        "UpsampleBilinear2DGrad", "Im2Col", "Col2Im", "ExtractImagePatches",
    ),
    (0, (1,), (0,)): ("Conv3DBackpropInput", "AvgPool3DGrad"),
    (0, (0, 1), ()): ("Conv3DBackpropFilter", "Conv2DBackpropFilter"),
    (0, (0, 1, 2), (0,)): (
        "MaxPoolGrad", "AvgPoolGrad", "MaxPoolGradWithMask", "LRNGrad", "MaxPool3DGrad", "MaxPool3DGradWithArgmax",
        "AdaptiveMaxPool2DGrad",
    ),
    (0, (0, 1), (0,)): (
        "BatchNormGrad", "PReLUGrad", "SparseSoftmaxCrossEntropyWithLogits", "AvgPool2DGrad",
        "AdaptiveAvgPool2DGradExt", "ResizeBilinearGrad", "ResizeBicubicGrad",
    ),
    (0, (0,), ()): ("BiasAddGrad",),
    (0, (0, 1), (0, 1)): ("SoftmaxCrossEntropyWithLogits",),
    (0, (0,), (0, 1)): ("MaxPoolWithMask", "MaxPool3DWithArgmax", "AdaptiveMaxPool2D"),
    (0, (0,), (0, 1, 2)): ("GroupNorm",),
    (0, (0, 1, 2, 3), (0,)): ("GroupNormGrad",),
    (1, (0, 1, 2), (0, 1, 2)): ("LSTM",),
    (1, (0, 1, 2, 4, 5, 6, 7, 8, 9), (0, 1, 2)): ("LSTMGrad",),
}  # fmt: skip
AT_AXIS = {name: places for places, names in _AT_AXIS.items() for name in names}


def batch_of(graph: Graph, inputs: Mapping[str, int], size: int) -> Batch:
    """The batch of a main graph, its functions included. ``inputs``: by name, the axis that is the batch, of ``size``
    elements. Linear in nodes for each sweep; there are two, and one more for each chain of constants that must grow."""
    return Analysis(graph, inputs, size, (propagate, grow)).run()


def propagate(a: Analysis, node: Node) -> Label:
    """The label of a node's result. Stuck where the batch cannot be followed."""
    name = node.op.name
    if name == "UpdateState":
        return NONE
    if node.op is CALL:
        return _call(a, node)
    if name == "Depend" or name == "Load":
        return a.label(node.operand(0))
    if name in MAKE_TUPLE:
        label = tuple(
            a.label(v) if not isinstance(v, Constant) else a.of(node, i) for i, v in enumerate(node._operands)
        )
        return label if holds(label) else NONE
    if name == "TupleGetItem" or name == "list_getitem":
        index = node.operand(1)
        assert isinstance(index, Constant)
        return element(a.label(node.operand(0)), index.value)
    if name in BINDING or name == "Print":
        return NONE
    for i, _, _ in tensors(node):
        if a.of(node, i) or holds(a.label(node.operand(i))):
            break
    else:
        return NONE  # nothing that it takes holds the batch
    if name in ELEMENTWISE:
        return _elementwise(a, node)
    if name in AT_AXIS:
        return _at_axis(a, node)
    if name in ROWS:
        return _rows(a, node)
    rule = SHAPE_RULES.get(name) or PRODUCT_RULES.get(name)
    if rule is None:
        raise Stuck(_unknown(node))
    return rule(a, node)


def grow(a: Analysis, node: Node, axes: Axes, path: tuple[int, ...] = ()) -> None:
    """Makes the result of ``node`` hold the batch on ``axes``, though no input has brought it there."""
    name = node.op.name
    if name in MAKE_TUPLE and path:
        a.demand(node, path[0], axes, path[1:])
        return
    if name in ("TupleGetItem", "list_getitem"):
        index = node.operand(1)
        assert isinstance(index, Constant)
        a.demand(node, 0, axes, (index.value, *path))
        return
    if name == "Depend" or name == "Load":
        a.demand(node, 0, axes, path)
        return
    if node.op is CALL and node not in a.closures.open:
        a.grow_functions(node, axes, path)
        return
    if len(path) == 1 and isinstance(node.type, TupleType) and name in ELEMENTWISE:
        rank = len(shape_of(node.type.elements[path[0]]))
        _grow_elementwise(a, node, axes, rank)
        a.force(node, tuple(axes if len(shape_of(t)) == rank else NONE for t in node.type.elements))
        return
    if path or not isinstance(node.type, TensorType):
        raise Stuck(f"an element of %{node.name} ({name}) has the batch's extent but does not grow with it")
    if name in ELEMENTWISE:
        _grow_elementwise(a, node, axes, len(shape_of(node.type)))
    elif name in AT_AXIS and set(axes) == {AT_AXIS[name][0]}:
        a.demand(node, AT_AXIS[name][1][0], axes)
    else:
        rule = SHAPE_GROWS.get(name) or PRODUCT_GROWS.get(name)
        if rule is None:
            raise Stuck(f"%{node.name} ({name}) gives {node.type}, of the batch's extent, but does not grow with it")
        rule(a, node, axes)
    a.force(node, axes)


def _unknown(node: Node) -> str:
    if is_effect(node):
        written = [v.name for v in node._operands if isinstance(v, State)]
        if written:
            return f"it writes state '{written[0]}', which does not grow, with a value that holds the batch"
    return f"there is no rule for what {node.op.name} does to the batch"


def _elementwise(a: Analysis, node: Node) -> Label:
    found = list(tensors(node))
    rank = max(len(shape) for _, _, shape in found)
    axes: dict[int, Span] = {}
    for i, path, shape in found:
        shift = rank - len(shape)
        axes = joined(axes, {k + shift: s for k, s in a.of(node, i, path).items()})
    for i, path, shape in found:
        shift = rank - len(shape)
        have = a.of(node, i, path)
        missing = {
            k - shift: s for k, s in axes.items() if k >= shift and k - shift not in have and shape[k - shift] != 1
        }
        if missing:
            a.demand(node, i, missing, path)
    if isinstance(node.type, TupleType):
        return tuple(axes if len(shape_of(t)) == rank else NONE for t in node.type.elements)
    return axes if len(shape_of(node.type)) == rank else NONE


def _grow_elementwise(a: Analysis, node: Node, axes: Axes, rank: int) -> None:
    grown = False
    for i, path, shape in tensors(node):
        shift = rank - len(shape)
        taken = {k - shift: s for k, s in axes.items() if k >= shift and shape[k - shift] != 1}
        if taken:
            a.demand(node, i, taken, path)
            grown = True
    if not grown and a.size > 1:
        raise Stuck(f"{site(node)} has nothing that could grow with the batch")


def _at_axis(a: Analysis, node: Node) -> Label:
    axis, positions, results = AT_AXIS[node.op.name]
    span: Axes = NONE
    for i, _, _ in tensors(node):
        have = a.of(node, i)
        if not have:
            continue
        other = min(set(have) - {axis} if i in positions else have, default=None)
        if other is not None:
            raise Stuck(f"its operand {i} holds the batch on axis {other}, where {node.op.name} cannot have it")
        span = joined(span, have)
    for i, _, shape in tensors(node):
        if i in positions and shape[axis] == span[axis].extent(a.size):
            a.demand(node, i, span)
    if isinstance(node.type, TupleType):
        return tuple(span if k in results else NONE for k in range(len(node.type.elements)))
    return span if results and shape_of(node.type) else NONE


def _rows(a: Analysis, node: Node) -> Label:
    """Indices, of any shape, and updates that begin with that shape."""
    for i, _, _ in tensors(node):
        if set(a.of(node, i)) - {0}:
            raise Stuck("it writes rows of a state that hold more than one axis of the batch")
    return NONE


def _call(a: Analysis, node: Node) -> Label:
    carried = any(holds(a.label(v)) for v in node._operands)
    if node in a.closures.open:
        if carried:
            raise Stuck("it calls a function that cannot be told from the graph")
        return NONE
    functions = [f for f in a.closures.targets.get(node, {}) if f.has_result]
    labels = [a.label(f.result) for f in functions]
    if any(x is None for x in labels):
        return None
    known = merged(labels)
    if a.settled:  # before that, a function may not have been met yet: a loop calls itself
        for f in functions:
            a.demand_label(f.result, known)
    return known


def merged(labels: Sequence[Label]) -> Label:
    """The union of the labels; Stuck where two contradict each other."""
    if any(isinstance(x, tuple) for x in labels):
        count = max(len(x) for x in labels if isinstance(x, tuple))
        both = tuple(merged([element(x, k) for x in labels]) for k in range(count))
        return both if holds(both) else NONE
    axes: Axes = NONE
    for label in labels:
        axes = joined(axes, label)
    return axes
