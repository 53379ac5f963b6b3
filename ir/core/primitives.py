"""One table of facts about primitives: what passes, the verifier and the emitter need to know of each.

A primitive that is not listed is judged by what the file says of it: an effect-token operand or a ``side_effect_*``
attribute makes it effectful (and a write to every state operand), else it counts as pure, as in MindSpore itself.
Operand positions and prim types: as MindSpore 2.10 exports them.

Targets: "Supported Platforms" in the documentation of ``mindspore.ops`` 2.10, checked for CPU by running and for GPU
against the kernels in the plug-in that its package ships. A target is left out only where both agree that it has no
kernel; so a primitive is refused only if it cannot run.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from .attributes import Attribute
from .op import CALL, NO_ATTRIBUTES, Op

CPU, GPU, ASCEND = "cpu", "gpu", "ascend"
EVERYWHERE = frozenset({CPU, GPU, ASCEND})


@dataclass(frozen=True, slots=True)
class OpFacts:
    """``writes``: operand positions written in place. ``gradient``: the operand that is the gradient, for optimizers.

    ``rate``: the operand that is the learning rate, for optimizers that take it as they come.

    ``random``: never merged or duplicated. ``hidden``: has a side effect that no token orders (random state).
    ``kind``: MindSpore prim type (1 class, 2 function), used when a pass makes the node. ``targets``: where kernels
    exist, as far as is known.
    """

    writes: tuple[int, ...] = ()
    gradient: int | None = None
    rate: int | None = None
    random: bool = False
    ordering: bool = False
    kind: int = 2
    targets: frozenset[str] = EVERYWHERE
    attributes: Mapping[str, Attribute] = field(default_factory=lambda: NO_ATTRIBUTES)
    elementwise: bool = False


MEM: Mapping[str, Attribute] = {"side_effect_mem": True}
PROPAGATE: Mapping[str, Attribute] = {"side_effect_propagate": 1}
ACCELERATORS = frozenset({GPU, ASCEND})
ONLY_GPU = frozenset({GPU})
ONLY_ASCEND = frozenset({ASCEND})


def _elementwise(*names: str) -> dict[str, OpFacts]:
    fact = OpFacts(elementwise=True)
    return dict.fromkeys(names, fact)


def _optimizer(
    writes: int | tuple[int, ...], gradient: int, targets: frozenset[str] = EVERYWHERE, rate: int | None = None
) -> OpFacts:
    where = tuple(range(writes)) if isinstance(writes, int) else writes
    return OpFacts(writes=where, gradient=gradient, rate=rate, targets=targets, attributes=MEM)


OPS: dict[str, OpFacts] = {
    # Structure and order
    "MakeTuple": OpFacts(kind=1),
    "TupleGetItem": OpFacts(kind=1),
    "Load": OpFacts(ordering=True, kind=1),
    "UpdateState": OpFacts(ordering=True, kind=1),
    "Depend": OpFacts(ordering=True, kind=1, attributes=PROPAGATE),
    "Partial": OpFacts(kind=1, attributes=PROPAGATE),
    "Switch": OpFacts(kind=1),
    # In-place on state
    "Assign": OpFacts(writes=(0,), attributes=MEM),
    "AssignAdd": OpFacts(writes=(0,), attributes=MEM),
    "AssignSub": OpFacts(writes=(0,), attributes=MEM),
    "BatchNorm": OpFacts(writes=(3, 4), attributes=MEM),
    "InstanceNorm": OpFacts(writes=(1, 2, 3, 4), attributes=MEM, kind=1, targets=ONLY_GPU),
    "InstanceNormGrad": OpFacts(kind=1, targets=ONLY_GPU),
    # Optimizers: the first written operand is the weight, the others its slots; the gradient's position is a fact of
    # each
    "SGD": _optimizer((0, 3, 5), 1, rate=2),
    "ApplyGradientDescent": _optimizer(1, 2),
    "ApplyMomentum": _optimizer(2, 3, rate=2),
    "ApplyKerasMomentum": _optimizer(2, 3, ONLY_ASCEND),
    "ApplyAdagrad": _optimizer(2, 3, rate=2),
    "ApplyAdagradV2": _optimizer(2, 3),
    "ApplyFtrl": _optimizer(3, 3, rate=4),
    "ApplyAdagradDA": _optimizer(3, 3),
    "ApplyRMSProp": _optimizer(3, 4, rate=3),
    "ApplyCenteredRMSProp": _optimizer(4, 4, rate=5),
    "ApplyProximalGradientDescent": _optimizer(1, 4),
    "ApplyProximalAdagrad": _optimizer(2, 5, rate=2),
    "ApplyAdadelta": _optimizer(3, 6, rate=3),
    "ApplyAddSign": _optimizer(2, 6),
    "ApplyPowerSign": _optimizer(2, 6),
    "ApplyAdamWithAmsgrad": _optimizer(4, 7),
    "ApplyAdamWithAmsgradV2": _optimizer(4, 10, rate=6),
    "ApplyAdaMax": _optimizer(3, 8, rate=4),
    "AdamWeightDecay": _optimizer(3, 8, rate=3),
    "AdamNoUpdateParam": _optimizer(2, 8),
    "Adam": _optimizer(3, 9, rate=5),
    "FusedSparseLazyAdam": _optimizer(3, 9),
    "FusedSparseAdam": _optimizer(3, 9),
    "FusedSparseFtrl": _optimizer(3, 3),
    "FusedSparseProximalAdagrad": _optimizer(2, 5),
    "SparseApplyAdadelta": _optimizer(3, 5),
    "SparseApplyAdagrad": _optimizer(2, 2),
    "SparseApplyAdagradV2": _optimizer(2, 2),
    "SparseApplyAdagradDA": _optimizer(3, 3),
    "SparseApplyFtrl": _optimizer(3, 3),
    "SparseApplyFtrlV2": _optimizer(3, 3),
    "SparseApplyProximalAdagrad": _optimizer(2, 5),
    "SparseApplyProximalGradientDescent": _optimizer(1, 4),
    "SparseApplyRMSProp": _optimizer(3, 4),
    "SparseApplyCenteredRMSProp": _optimizer(4, 8),
    "FusedAdaFactor": _optimizer((7, 8, 9, 10, 11), 6),
    "FusedAdaFactorWithGlobalNorm": _optimizer((7, 8, 9, 10, 11), 6),
    "FusedWeightScaleApplyMomentum": _optimizer((2, 3), 5, ONLY_GPU),
    "Lamb": _optimizer(3, 9, ACCELERATORS),
    "LARSUpdate": OpFacts(gradient=1, targets=ONLY_ASCEND, kind=1),
    # Random
    **dict.fromkeys(
        (
            "Dropout", "Dropout2D", "Dropout3D", "DropoutGenMask", "DropoutGenMaskV3", "DropoutExt",
            "DropoutGenMaskExt", "StandardNormal", "StandardLaplace", "UniformReal", "UniformInt", "RandomNormal",
            "Uniform", "Gamma", "Poisson", "Bernoulli", "BernoulliExt", "Multinomial", "MultinomialExt",
            "RandomChoiceWithMask", "RandomCategorical", "RandpermV2", "Randperm", "RandomShuffle",
            "TruncatedNormal", "ParameterizedTruncatedNormal", "RandomPoisson", "RandomGamma",
            "LogUniformCandidateSampler", "UniformCandidateSampler", "RandExt", "RandnLike", "RandLikeExt",
            "RandInt", "RandIntLike", "NormalFloatFloat", "NormalFloatTensor", "NormalTensorFloat",
            "NormalTensorTensor", "InplaceNormal", "InplaceUniform", "RReLU", "UniformExt", "GenerateEodMask",
            "Randn",
        ),
        OpFacts(random=True),
    ),
    # Collectives
    **dict.fromkeys(
        ("AllReduce", "AllGather", "ReduceScatter", "Broadcast", "Send", "Receive", "AlltoAll", "NeighborExchange"),
        OpFacts(kind=1),
    ),
    # Overflow state
    **dict.fromkeys(
        (
            "NPUGetFloatStatus", "NPUClearFloatStatus", "NPUAllocFloatStatus",
            "NPUGetFloatStatusV2", "NPUClearFloatStatusV2",
        ),
        OpFacts(random=True, targets=ONLY_ASCEND),
    ),
    "FloatStatus": OpFacts(targets=ONLY_GPU, kind=1),
    "AllFinite": OpFacts(targets=ONLY_ASCEND),
    "Centralization": OpFacts(targets=ONLY_ASCEND, kind=1),
    "DropoutGrad": OpFacts(kind=1),
    # What passes insert
    **_elementwise(
        "Add", "Sub", "Mul", "Div", "RealDiv", "Maximum", "Minimum", "Equal", "NotEqual", "Less", "LessEqual",
        "Greater", "GreaterEqual", "LogicalAnd", "LogicalOr", "LogicalNot", "Reciprocal", "Neg", "Sqrt", "Rsqrt",
        "Square", "Abs", "Exp", "Log", "IsFinite", "IsNan", "IsInf", "ZerosLike", "OnesLike", "Select", "Sign",
    ),
    "AddN": OpFacts(kind=1),
    "Cast": OpFacts(),
    "Reshape": OpFacts(),
    "Transpose": OpFacts(),
    "ReduceAll": OpFacts(),
    "ReduceAny": OpFacts(),
    "ReduceSum": OpFacts(),
    "ReduceMean": OpFacts(),
    "ReduceMax": OpFacts(),
    "L2Loss": OpFacts(kind=1),
    "TensorMove": OpFacts(),
    "Slice": OpFacts(),
    "Concat": OpFacts(),
    "BroadcastTo": OpFacts(),
}  # fmt: skip

UNLISTED = OpFacts()


def facts(op: Op) -> OpFacts:
    return OPS.get(op.name, UNLISTED)


def make_op(name: str, attributes: Mapping[str, Attribute] = NO_ATTRIBUTES) -> Op:
    """The primitive as a pass would insert it: prim type and standing attributes from the table."""
    if name == CALL.name:
        return Op(name, attributes)
    fact = OPS.get(name, UNLISTED)
    return Op(name, {**fact.attributes, **attributes}, kind=fact.kind)


RUNS_CODE = frozenset({
    "PyExecute", "PyInterpret", "PyFunc", "Custom", "CustomExt", "HookBackward", "CellBackwardHook", "AotCustom",
    "Morph", "JitFallback", "InvokeFunction",
})  # fmt: skip
"""Primitives that run code which their attributes or operands name: neither run nor written as Python, since files are
not trusted."""
