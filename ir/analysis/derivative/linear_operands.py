"""In which operands a primitive is linear: what an analysis needs that follows the derivative of the loss through the
backward part.

An entry lists alternatives, each a tuple of operand positions: the result is multiplied by s (a power of two: bit for
bit) if *all* operands of one alternative are, the others unchanged. Sums have one alternative with all their terms,
products one for each factor. Positions that a node does not have, and terms that are zero, do not count.

Sources: the operand names in ``mindspore.ops.auto_generate`` and ``mindspore.ops.operations`` 2.10, and the algebra of
each primitive. ``tests/ir/analysis/derivative/test_linear_operands.py`` runs what has a CPU kernel and lists what has
none.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from ...core.graph import Constant, Node
from ...core.types import TupleType

Alternatives = tuple[tuple[int, ...], ...]


def _at(position: int, names: Iterable[str]) -> dict[str, Alternatives]:
    return dict.fromkeys(names, ((position,),))


def _jointly(positions: tuple[int, ...], names: Iterable[str]) -> dict[str, Alternatives]:
    return dict.fromkeys(names, (positions,))


LINEAR_IN: Mapping[str, Alternatives] = {
    # Moving, selecting and adding up elements of the first operand
    **_at(0, (
        "Neg", "Cast", "Identity", "Reshape", "View", "Transpose", "TransposeView", "Squeeze", "ExpandDims",
        "ExpandDimsView", "Flatten", "FlattenExt", "FlattenGrad", "TensorMove", "Copy", "Contiguous", "Clone",
        "BroadcastTo", "BroadcastToView", "Expand", "Tile", "Repeat", "RepeatInterleaveInt", "RepeatInterleaveTensor",
        "RepeatInterleaveGrad", "ReduceSum", "SumExt", "ReduceMean", "MeanExt", "CumSum", "CumsumExt", "Trace",
        "TraceExt", "TraceGrad", "TraceV2", "TraceV2Grad", "Tril", "Triu", "TrilExt", "Diag", "DiagExt", "DiagPart",
        "Diagonal", "DiagonalView", "Slice", "SliceExt", "SliceExtView", "StridedSlice", "StridedSliceGrad",
        "SliceGrad", "Narrow", "NarrowView", "SelectExtView", "SelectView", "AsStrided", "Split", "SplitWithSize",
        "SplitWithSizeView", "SplitTensor", "SplitTensorView", "SplitV", "Unstack", "UnstackExtView", "Chunk",
        "ChunkView", "Concat", "Stack", "StackExt", "Meshgrid", "Pad", "MirrorPad", "MirrorPadGrad", "PadV3Grad",
        "ReflectionPad1D", "ReflectionPad2D", "ReflectionPad3D", "ReplicationPad1D", "ReplicationPad2D",
        "ReplicationPad3D", "ReverseV2", "ReverseSequence", "Roll", "Gather", "GatherD", "GatherNd", "GatherNdExt",
        "IndexSelect", "Index", "MaskedSelect", "Take", "UnsortedSegmentSum", "SegmentSum", "SegmentMean", "Im2ColExt",
        "Im2Col", "Col2ImExt", "Col2Im", "Col2ImGrad", "SpaceToDepth", "DepthToSpace", "SpaceToBatchND",
        "BatchToSpaceND", "BatchToSpaceNDV2", "PixelShuffle", "ChannelShuffle", "UpsampleNearest1D",
        "UpsampleNearest2D", "UpsampleNearest3D", "Conj", "Real", "Imag", "FFT", "IFFT", "RFFT", "IRFFT", "FFT2",
        "IFFT2", "RFFT2", "IRFFT2", "FFTN", "IFFTN", "RFFTN", "IRFFTN", "DCT", "IDCT", "FFTWithSize", "Muls", "Divs",
        "InplaceMuls", "InplaceDivs",
    )),
    # Sums
    **_at(0, ("AddN", "AccumulateNV2")),
    **_jointly((0, 1), (
        "Add", "Sub", "AddExt", "SubExt", "AddScalar", "SubScalar", "InplaceAddExt", "InplaceSubExt", "InplaceAddsExt",
        "InplaceSubScalar", "Lerp", "LerpScalar", "MatrixSetDiagV3", "TensorCopySlices", "IndexPut",
    )),
    "BiasAdd": ((0, 1),),
    **_jointly((1, 2), ("Select",)),
    **_jointly((0, 2), (
        "MaskedFill", "MaskedFillScalar", "InplaceMaskedFillTensor", "InplaceMaskedFillScalar", "MaskedScatter",
        "ConstantPadND", "PadV3", "TensorScatterUpdate", "TensorScatterAdd", "TensorScatterSub",
        "TensorScatterElements", "InplaceIndexPut", "IndexAdd", "MatrixDiagPartV3",
    )),
    **_jointly((0, 3), (
        "Scatter", "ScatterValue", "ScatterAddExt", "IndexAddExt", "IndexFillTensor", "IndexFillScalar",
        "InplaceScatterAdd", "InplaceScatterSrc", "InplaceScatterValue", "InplaceIndexAddExt",
    )),
    "IndexFill": ((0, 3),),
    "MatrixDiagV3": ((0, 4),),
    **_at(1, ("ScatterNd", "InplaceCopy")),
    # Products and quotients
    **dict.fromkeys(
        (
            "Mul", "InplaceMul", "MatMul", "MatMulExt", "BatchMatMul", "BatchMatMulExt", "Mm", "Mv", "Dot", "Outer",
            "Ger", "Cross", "Conv2D", "Conv3D", "Conv2DBackpropInput", "Conv2DBackpropFilter", "Conv3DBackpropInput",
            "Conv3DBackpropFilter", "Conv2DTranspose", "Conv3DTranspose", "DepthwiseConv2dNative",
        ),
        ((0,), (1,)),
    ),
    **dict.fromkeys(("Addcmul", "Addmm", "Addmv", "Baddbmm"), ((0, 1), (0, 2))),
    "SparseTensorDenseMatmul": ((1,), (3,)),
    "Dense": ((0, 2), (1, 2)),
    "Addcdiv": ((0, 1),),
    **_at(2, ("DepthwiseConv2dNativeBackpropInput", "DepthwiseConv2dNativeBackpropFilter")),
    **_at(0, (
        "RealDiv", "Div", "DivNoNan", "Xdivy", "Xlogy", "InplaceDiv", "ConvolutionGrad", "ConvolutionStrGrad",
        "GmmBackward", "GmmV2Backward", "GmmBackwardFusion", "GmmV2BackwardFusion",
    )),
    "EinsumGrad": ((1,),),
    "LuUnpackGrad": ((0, 1),),
    # Derivatives of elementwise functions
    **_at(0, (
        "ReluGrad", "ReluGradV2", "ReLU6Grad", "SeluGrad", "EluGrad", "EluGradExt", "LeakyReLUGradExt", "GeLUGrad",
        "GeluGradExt", "FastGeLUGrad", "SiLUGrad", "HSwishGrad", "HSigmoidGrad", "HShrinkGrad", "SoftShrinkGrad",
        "SoftplusGrad", "SoftplusGradExt", "MishGradExt", "HardtanhGrad", "ThresholdGrad", "LogSigmoidGrad",
        "LogitGrad", "PReLUGrad", "GluGrad", "SwigluGrad", "MvlgammaGrad",
    )),
    **_at(1, (
        "TanhGrad", "SigmoidGrad", "SqrtGrad", "RsqrtGrad", "ReciprocalGrad", "InvGrad", "AbsGrad", "AtanGrad",
        "ACosGrad", "AsinGrad", "AsinhGrad", "AcoshGrad", "CholeskyGrad",
    )),
    **_at(2, ("MaximumGrad", "MinimumGrad", "MaskedSelectGrad", "L2NormalizeGrad")),
    **_at(0, (
        "DropoutGrad", "DropoutGradExt", "DropoutDoMask", "DropoutDoMaskExt", "CdistGrad", "PdistGrad", "MedianGrad",
        "AffineGridGrad", "LstsqV2Grad",
    )),
    # Softmax, losses
    **_at(0, (
        "SoftmaxBackward", "KLDivLossGrad", "KLDivGrad", "BinaryCrossEntropyWithLogitsBackward", "MSELossGradExt",
        "L1LossBackwardExt", "CTCLossV2Grad", "MultilabelMarginLossGrad", "MultiMarginLossGrad", "NLLLoss2dGrad",
    )),
    **_at(1, ("LogSoftmaxGrad", "SoftmaxGrad", "NLLLossGrad")),
    **_at(2, (
        "BinaryCrossEntropyGrad", "SmoothL1LossGrad", "SigmoidCrossEntropyWithLogitsGrad", "SoftMarginLossGrad",
    )),
    "CrossEntropyLossGrad": ((0, 4),),
    # Normalisation
    **_at(0, (
        "BiasAddGrad", "BatchNormGrad", "BatchNormGradExt", "SyncBatchNormGrad", "InstanceNormGrad",
        "InstanceNormV2Grad", "GroupNormGrad", "RmsNormGrad", "LayerNormGradExt", "BNTrainingUpdateGrad", "LRNGrad",
        "BatchNormReduceGrad",
    )),
    **_at(1, ("LayerNormGrad", "LayerNormGradV3")),
    "AddLayerNormGrad": ((0, 6),),
    "BatchNormElemtGrad": ((0, 5, 6),),
    "BatchNormGradGrad": ((5, 6, 7),),
    "LayerNormGradGrad": ((5, 6, 7),),
    # Pooling and resizing
    **_at(0, (
        "AvgPool2DGrad", "AvgPool3DGradExt", "AdaptiveAvgPool2DGrad", "AdaptiveAvgPool2DGradExt",
        "AdaptiveAvgPool3DGrad", "AdaptiveAvgPool3DGradExt", "AdaptiveMaxPool2DGrad", "AdaptiveMaxPool3DGrad",
        "ResizeBilinearGrad", "ResizeBicubicGrad", "ResizeNearestNeighborGrad", "ResizeNearestNeighborV2Grad",
        "ResizeLinear1DGrad", "ResizeV2Grad", "ParallelResizeBilinearGrad", "UpsampleNearest1DGrad",
        "UpsampleNearest2DGrad", "UpsampleNearest3DGrad", "UpsampleLinear1DGrad", "UpsampleBilinear2DGrad",
        "UpsampleBicubic2DGrad", "UpsampleTrilinear3DGrad", "ReflectionPad1DGrad", "ReflectionPad2DGrad",
        "ReflectionPad3DGrad", "ReplicationPad1DGrad", "ReplicationPad2DGrad", "ReplicationPad3DGrad",
        "GridSampler2DGrad", "GridSampler3DGrad", "ROIAlignGrad", "PsROIPoolingGrad", "ScaleAndTranslateGrad",
        "CropAndResizeGradImage", "CropAndResizeGradBoxes", "DeformableOffsetsGrad",
    )),
    **_at(1, (
        "MaxPoolGradWithMask", "MaxPoolGradWithIndices", "MaxPoolGradWithArgmax", "MaxPoolGradWithArgmaxV2",
        "MaxPool3DGradWithArgmax", "MaxPoolGradGradWithArgmax", "MaxUnpool2DGrad", "MaxUnpool3DGrad", "AvgPoolGradV1",
        "AvgPoolGradVm", "AvgPoolGradGe", "AvgPool3DGrad", "FractionalMaxPoolGradWithFixedKsize",
        "FractionalAvgPoolGrad", "FractionalMaxPool3DGradWithFixedKsize",
    )),
    **_at(2, (
        "AvgPoolGrad", "MaxPoolGrad", "MaxPoolGradV1", "MaxPool3DGrad", "MaxPoolGradGrad", "MaxPool3DGradGrad",
        "FractionalMaxPoolGrad", "Dilation2DBackpropInput", "Dilation2DBackpropFilter",
    )),
    "MaximumGradGrad": ((2, 3),),
    "MinimumGradGrad": ((2, 3),),
    # Embedding and gather
    **_at(0, (
        "EmbeddingDenseBackward", "EmbeddingLookupCommGrad", "SparseSegmentMeanGrad", "SparseSegmentSumGrad",
        "SparseSegmentSqrtNGrad", "SparseAddGrad", "SparseSliceGrad",
    )),
    "SparseFillEmptyRowsGrad": ((1,),),
    "GatherDGradV2": ((3,),),
    # Recurrent layers: derivatives of the output and of the last states
    "LSTMGrad": ((7, 8, 9),),
    "GRUV2Grad": ((6, 7),),
    "DynamicRNNGrad": ((8, 9, 10),),
    "DynamicGRUV2Grad": ((6, 7),),
    "BasicLSTMCellCStateGrad": ((1, 2),),
    "BasicLSTMCellWeightGrad": ((2,),),
    "BasicLSTMCellInputGrad": ((0,),),
    # Fused attention and mixtures of experts
    **_at(3, ("FlashAttentionScoreGrad", "SpeedFusionAttentionGrad")),
    **_at(4, ("SparseFlashAttentionGrad", "WKVGrad")),
    "LightningIndexerGrad": ((2,),),
    "MultiScaleDeformableAttnGrad": ((5,),),
    **_at(0, (
        "NsaSelectAttentionGrad", "NsaCompressGrad", "RotaryPositionEmbedding", "RotaryPositionEmbeddingGrad",
        "MoeTokenPermuteGrad",
    )),
    "MoeTokenUnpermuteGrad": ((1,),),
    # Between ranks
    **_at(0, (
        "AllReduce", "AllGather", "ReduceScatter", "Broadcast", "AlltoAll", "NeighborExchange", "NeighborExchangeV2",
        "NeighborExchangeV2Grad", "CollectiveScatter", "CollectiveGather",
    )),
}  # fmt: skip

SHAPE_ONLY = frozenset({
    "ZerosLike", "ZerosLikeExt", "OnesLike", "OnesLikeExt", "FullLike", "Shape", "TensorShape", "DynamicShape", "Rank",
    "Size", "DType", "DTypeId", "RandLikeExt", "RandnLike", "NewZeros", "NewOnes",
})  # fmt: skip
"""Primitives that look at the shape and the element type of their operands only; see :func:`sees_shape_only`."""

ZEROS = frozenset({"ZerosLike", "ZerosLikeExt", "Zeros", "NewZeros"})
FILLS = frozenset({"FillV2", "FillScalar", "FillTensor", "FullLike"})
"""Primitives whose result is operand 1 everywhere."""

HIDDEN = frozenset({"LSTMGradWeight", "GruGradWeight"})
"""They take derivatives from a workspace that another primitive left: no operand shows them."""


def sees_shape_only(node: Node, i: int) -> bool:
    """Whether a node looks at no element of operand ``i``. Of ShapeCalc, which computes sizes and axes, the exporter
    says it operand by operand."""
    if node.op.name in SHAPE_ONLY:
        return True
    said = node.op.attributes.get("only_depend_shape")
    return isinstance(said, (tuple, list)) and i < len(said) and said[i] is True


def linear_in(node: Node) -> Alternatives | None:
    """The alternatives of a node; None where its primitive is not known to be linear in anything."""
    name = node.op.name
    if name in ("AllReduce", "ReduceScatter") and node.op.attributes.get("op", "sum") not in ("sum", "avg"):
        return None
    if name in ("Scatter", "ScatterValue", "TensorScatterElements") and not _adds_or_replaces(node):
        return None
    if name in ("AddN", "Concat", "Stack") and not isinstance(node.operand(0).type, TupleType):
        return (tuple(range(node.num_operands)),)
    return LINEAR_IN.get(name)


def _adds_or_replaces(node: Node) -> bool:
    """Whether a scatter with a choice of reductions, its operand 4, does not multiply."""
    reduction = node.operand(4) if node.num_operands > 4 else None
    return isinstance(reduction, Constant) and reduction.value in (0, 1)
