"""How primitives treat the samples of a batch: one rule each, for whoever follows them (``ir/analysis/batch/``).

``=``: element by element, with broadcasting; ``= 1``: so, but for what it joins along the axis that operand 1 (or its
attribute) names. ``0 . > 0``: the axis of the samples in each operand and in each element of the result, where it has
one. Else the name of a rule there. ``+`` at the end: it adds up over axes that its result has no more, and ``mean``
takes their mean; anything else that drops the axis of the samples mixes them.
"""

from __future__ import annotations

from .definition import Family, Table

_RULES = {
    "=": "Pow PowTensorScalar PowScalarTensor FloorDiv FloorMod Mod ReLU ReLU6 ReluGrad ReLU6Grad GeLU GeLUGrad"
    " FastGeLU FastGeLUGrad SiLU SiLUGrad HSwish HSwishGrad HSigmoid HSigmoidGrad Elu EluGrad EluExt EluGradExt SeLU"
    " SeluGrad LeakyReLUExt LeakyReLUGradExt Sigmoid SigmoidGrad Tanh TanhGrad Softplus SoftplusGrad Mish MishGradExt"
    " Erf Erfc Sin Cos Tan Sinh Cosh Asin ACos Atan Floor Ceil Round Rint Log1p Expm1 SqrtGrad RsqrtGrad"
    " ReciprocalGrad AbsGrad Inv InvGrad SquaredDifference MaximumGrad MinimumGrad EqScalar NeScalar LessScalar"
    " GreaterEqualScalar MaskedFill MaskedFillScalar ZerosLikeExt OnesLikeExt DropoutGrad DropoutGradExt"
    " DropoutDoMask InplaceCopy InplaceMaskedFillTensor InplaceMaskedFillScalar BitwiseAnd BitwiseOr Lerp LerpScalar"
    " BinaryCrossEntropy BinaryCrossEntropyGrad BCEWithLogitsLoss BinaryCrossEntropyWithLogitsBackward KLDivLoss"
    " KLDivLossGrad KLDiv SmoothL1Loss SmoothL1LossGrad MSELossExt MSELossGradExt L1LossExt L1LossBackwardExt"
    " SigmoidCrossEntropyWithLogits SigmoidCrossEntropyWithLogitsGrad SoftMarginLoss SoftMarginLossGrad"
    " LogSigmoidGrad Bernoulli CeLU Softsign LogSigmoid HShrink HShrinkGrad SoftShrink SoftShrinkGrad Asinh AsinhGrad"
    " Acosh AcoshGrad Atanh AsinGrad ACosGrad AtanGrad Atan2 Erfinv Trunc Xlogy Xdivy Hypot IsClose BitwiseXor"
    " LeftShift RightShift NanToNum Addcmul Addcdiv LogicalXor",
    "= 1": "Softmax LogSoftmax LogSoftmaxExt CumSum CumsumExt CumProd Cummax Cummin L2Normalize LogSoftmaxGrad"
    " SoftmaxGrad",
    "= 2": "SoftmaxBackward",
    "= 3": "L2NormalizeGrad",
    "= last": "Triu Tril TrilExt",
    "0 > 0": "Conv2D Conv3D Conv2DBackpropInput Conv2DTranspose MaxPool AvgPool BiasAdd PReLU AvgPool2D LRN AvgPool3D"
    " MaxPool3D AdaptiveAvgPool2D AdaptiveAvgPool2DGrad AdaptiveAvgPool2DExt ResizeNearestNeighbor BatchNorm"
    " ResizeNearestNeighborGrad ResizeNearestNeighborV2 ResizeNearestNeighborV2Grad ResizeBilinearV2"
    " ResizeBicubic UpsampleBilinear2D UpsampleBilinear2DGrad Im2Col Col2Im ExtractImagePatches",
    ". 0 > 0": "Conv3DBackpropInput AvgPool3DGrad",
    "0 0 > . +": "Conv2DBackpropFilter Conv3DBackpropFilter",
    "0 > . +": "BiasAddGrad",
    "0 0 > 0": "BatchNormGrad PReLUGrad AvgPool2DGrad AdaptiveAvgPool2DGradExt ResizeBilinearGrad ResizeBicubicGrad",
    "0 0 > 0 mean": "SparseSoftmaxCrossEntropyWithLogits",
    "0 0 0 > 0": "MaxPoolGrad AvgPoolGrad MaxPoolGradWithMask LRNGrad MaxPool3DGrad MaxPool3DGradWithArgmax"
    " AdaptiveMaxPool2DGrad",
    "0 0 > 0 0": "SoftmaxCrossEntropyWithLogits",
    "0 0 > 0 .": "NLLLoss",
    "0 > 0 0": "MaxPoolWithMask MaxPool3DWithArgmax AdaptiveMaxPool2D",
    "0 > 0 0 0": "GroupNorm",
    "0 0 0 0 > 0": "GroupNormGrad",
    "1 0 0 0 > 0 0": "CTCLossV2",
    "0 1 0 0 0 0 0 > 1": "CTCLossV2Grad",
    "1 1 1 > 1 1 1": "LSTM",
    "1 1 1 . 1 1 1 1 1 1 > 1 1 1": "LSTMGrad",
    "rows": "ScatterAdd ScatterSub ScatterUpdate ScatterMul ScatterMax ScatterMin FusedSparseAdam FusedSparseLazyAdam"
    " FusedSparseFtrl FusedSparseProximalAdagrad SparseApplyAdagrad SparseApplyAdagradV2 SparseApplyFtrl"
    " SparseApplyFtrlV2 SparseApplyProximalAdagrad",
    "matmul +": "MatMul BatchMatMul MatMulExt BatchMatMulExt Mm",
    "dense": "Dense",
    "einsum +": "Einsum EinsumGrad",
    "norm": "LayerNorm LayerNormGrad LayerNormExt LayerNormGradExt",
    "reduce +": "ReduceSum SumExt",
    "reduce mean": "ReduceMean MeanExt",
    "reduce": "ReduceMax ReduceMin Max Min Argmax Argmin ArgMaxWithValue ArgMinWithValue ReduceProd ProdExt ReduceAll"
    " ReduceAny",
    "all +": "L2Loss",
    "gather": "Gather EmbeddingLookup",
    "along 0 2": "GatherD",
    "reverse": "ReverseSequence",
    "along 0 2 3": "GatherDGradV2 Scatter InplaceScatterSrc",
    "top": "TopK",
    "hot": "OneHot",
    "segments +": "UnsortedSegmentSum",
    "scatter +": "ScatterNd",
    "picked": "MaskedSelect",
    "fill": "Zeros Ones FillV2 FillScalar UniformReal StandardNormal",
    "move": "Transpose ExpandDims Squeeze",
    "reshape": "Reshape Flatten",
    "tile": "Tile BroadcastTo",
    "concat": "Concat",
    "stack": "Stack",
    "split": "Unstack Split SplitWithSize SplitTensor",
    "slice": "StridedSlice StridedSliceGrad Slice SliceGrad",
    "pad": "Pad PadV3 PadV3Grad MirrorPad MirrorPadGrad Roll ReverseV2",
}
NAMED = {name: rule for rule, names in _RULES.items() for name in names.split()}


def samples_of(table: Table, name: str) -> str:
    """The rule of a primitive, "" for one that has none."""
    known = table.get(name)
    if name in NAMED or known is None:
        return NAMED.get(name, "")
    broadcast = known.elementwise and (known.any_tensor or not known.writes)
    return "=" if broadcast or known.family in (Family.COPY, Family.CAST, Family.DROPOUT) else ""
