"""In which operands a primitive is linear: one rule each, for whoever follows the derivative of the loss.

A rule lists alternatives, each of operand positions: the result is multiplied by s (a power of two: bit for bit) if
*all* operands of one alternative are, the others unchanged. So sums have one alternative with all their terms, and
products one for each factor. Positions that a node does not have, and terms that are zero, do not count.

Sources: the operand names in ``mindspore.ops.auto_generate`` and ``mindspore.ops.operations`` 2.10, and the algebra of
each primitive. ``tests/ir/analysis/derivative/test_linear_operands.py`` runs what has a CPU kernel and lists what has
none.
"""

from __future__ import annotations

_RULES = {
    "0": (
        "Neg Cast Identity Reshape View Transpose TransposeView Squeeze ExpandDims ExpandDimsView Flatten "
        "FlattenExt FlattenGrad TensorMove Copy Contiguous Clone BroadcastTo BroadcastToView Expand Tile Repeat "
        "RepeatInterleaveInt RepeatInterleaveTensor RepeatInterleaveGrad ReduceSum SumExt ReduceMean MeanExt CumSum "
        "CumsumExt Trace TraceExt TraceGrad TraceV2 TraceV2Grad Tril Triu TrilExt Diag DiagExt DiagPart Diagonal "
        "DiagonalView Slice SliceExt SliceExtView StridedSlice StridedSliceGrad SliceGrad Narrow NarrowView "
        "SelectExtView SelectView AsStrided Split SplitWithSize SplitWithSizeView SplitTensor SplitTensorView "
        "SplitV Unstack UnstackExtView Chunk ChunkView Concat Stack StackExt Meshgrid Pad MirrorPad MirrorPadGrad "
        "PadV3Grad ReflectionPad1D ReflectionPad2D ReflectionPad3D ReplicationPad1D ReplicationPad2D "
        "ReplicationPad3D ReverseV2 ReverseSequence Roll Gather GatherD GatherNd GatherNdExt IndexSelect Index "
        "MaskedSelect Take UnsortedSegmentSum SegmentSum SegmentMean Im2ColExt Im2Col Col2ImExt Col2Im Col2ImGrad "
        "SpaceToDepth DepthToSpace SpaceToBatchND BatchToSpaceND BatchToSpaceNDV2 PixelShuffle ChannelShuffle "
        "UpsampleNearest1D UpsampleNearest2D UpsampleNearest3D Conj Real Imag FFT IFFT RFFT IRFFT FFT2 IFFT2 RFFT2 "
        "IRFFT2 FFTN IFFTN RFFTN IRFFTN DCT IDCT FFTWithSize Muls Divs InplaceMuls InplaceDivs AddN AccumulateNV2 "
        "RealDiv Div DivNoNan Xdivy Xlogy InplaceDiv ConvolutionGrad ConvolutionStrGrad GmmBackward GmmV2Backward "
        "GmmBackwardFusion GmmV2BackwardFusion ReluGrad ReluGradV2 ReLU6Grad SeluGrad EluGrad EluGradExt "
        "LeakyReLUGradExt GeLUGrad GeluGradExt FastGeLUGrad SiLUGrad HSwishGrad HSigmoidGrad HShrinkGrad "
        "SoftShrinkGrad SoftplusGrad SoftplusGradExt MishGradExt HardtanhGrad ThresholdGrad LogSigmoidGrad "
        "LogitGrad PReLUGrad GluGrad SwigluGrad MvlgammaGrad DropoutGrad DropoutGradExt DropoutDoMask "
        "DropoutDoMaskExt CdistGrad PdistGrad MedianGrad AffineGridGrad LstsqV2Grad SoftmaxBackward KLDivLossGrad "
        "KLDivGrad BinaryCrossEntropyWithLogitsBackward MSELossGradExt L1LossBackwardExt CTCLossV2Grad "
        "MultilabelMarginLossGrad MultiMarginLossGrad NLLLoss2dGrad BiasAddGrad BatchNormGrad BatchNormGradExt "
        "SyncBatchNormGrad InstanceNormGrad InstanceNormV2Grad GroupNormGrad RmsNormGrad LayerNormGradExt "
        "BNTrainingUpdateGrad LRNGrad BatchNormReduceGrad AvgPool2DGrad AvgPool3DGradExt AdaptiveAvgPool2DGrad "
        "AdaptiveAvgPool2DGradExt AdaptiveAvgPool3DGrad AdaptiveAvgPool3DGradExt AdaptiveMaxPool2DGrad "
        "AdaptiveMaxPool3DGrad ResizeBilinearGrad ResizeBicubicGrad ResizeNearestNeighborGrad "
        "ResizeNearestNeighborV2Grad ResizeLinear1DGrad ResizeV2Grad ParallelResizeBilinearGrad "
        "UpsampleNearest1DGrad UpsampleNearest2DGrad UpsampleNearest3DGrad UpsampleLinear1DGrad "
        "UpsampleBilinear2DGrad UpsampleBicubic2DGrad UpsampleTrilinear3DGrad ReflectionPad1DGrad "
        "ReflectionPad2DGrad ReflectionPad3DGrad ReplicationPad1DGrad ReplicationPad2DGrad ReplicationPad3DGrad "
        "GridSampler2DGrad GridSampler3DGrad ROIAlignGrad PsROIPoolingGrad ScaleAndTranslateGrad "
        "CropAndResizeGradImage CropAndResizeGradBoxes DeformableOffsetsGrad EmbeddingDenseBackward "
        "EmbeddingLookupCommGrad SparseSegmentMeanGrad SparseSegmentSumGrad SparseSegmentSqrtNGrad SparseAddGrad "
        "SparseSliceGrad BasicLSTMCellInputGrad NsaSelectAttentionGrad NsaCompressGrad RotaryPositionEmbedding "
        "RotaryPositionEmbeddingGrad MoeTokenPermuteGrad AllReduce AllGather ReduceScatter Broadcast AlltoAll "
        "NeighborExchange NeighborExchangeV2 NeighborExchangeV2Grad CollectiveScatter CollectiveGather"
    ),
    "0 1": (
        "Add Sub AddExt SubExt AddScalar SubScalar InplaceAddExt InplaceSubExt InplaceAddsExt InplaceSubScalar Lerp "
        "LerpScalar MatrixSetDiagV3 TensorCopySlices IndexPut BiasAdd Addcdiv LuUnpackGrad"
    ),
    "1 2": "Select BasicLSTMCellCStateGrad",
    "0 2": (
        "MaskedFill MaskedFillScalar InplaceMaskedFillTensor InplaceMaskedFillScalar MaskedScatter ConstantPadND "
        "PadV3 TensorScatterUpdate TensorScatterAdd TensorScatterSub TensorScatterElements InplaceIndexPut IndexAdd "
        "MatrixDiagPartV3"
    ),
    "0 3": (
        "Scatter ScatterValue ScatterAddExt IndexAddExt IndexFillTensor IndexFillScalar InplaceScatterAdd "
        "InplaceScatterSrc InplaceScatterValue InplaceIndexAddExt IndexFill"
    ),
    "0 4": "MatrixDiagV3 CrossEntropyLossGrad",
    "1": (
        "ScatterNd InplaceCopy EinsumGrad TanhGrad SigmoidGrad SqrtGrad RsqrtGrad ReciprocalGrad InvGrad AbsGrad "
        "AtanGrad ACosGrad AsinGrad AsinhGrad AcoshGrad CholeskyGrad LogSoftmaxGrad SoftmaxGrad NLLLossGrad "
        "LayerNormGrad LayerNormGradV3 MaxPoolGradWithMask MaxPoolGradWithIndices MaxPoolGradWithArgmax "
        "MaxPoolGradWithArgmaxV2 MaxPool3DGradWithArgmax MaxPoolGradGradWithArgmax MaxUnpool2DGrad MaxUnpool3DGrad "
        "AvgPoolGradV1 AvgPoolGradVm AvgPoolGradGe AvgPool3DGrad FractionalMaxPoolGradWithFixedKsize "
        "FractionalAvgPoolGrad FractionalMaxPool3DGradWithFixedKsize SparseFillEmptyRowsGrad MoeTokenUnpermuteGrad"
    ),
    "0 | 1": (
        "Mul InplaceMul MatMul MatMulExt BatchMatMul BatchMatMulExt Mm Mv Dot Outer Ger Cross Conv2D Conv3D "
        "Conv2DBackpropInput Conv2DBackpropFilter Conv3DBackpropInput Conv3DBackpropFilter Conv2DTranspose "
        "Conv3DTranspose DepthwiseConv2dNative"
    ),
    "0 1 | 0 2": "Addcmul Addmm Addmv Baddbmm",
    "1 | 3": "SparseTensorDenseMatmul",
    "0 2 | 1 2": "Dense",
    "2": (
        "DepthwiseConv2dNativeBackpropInput DepthwiseConv2dNativeBackpropFilter MaximumGrad MinimumGrad "
        "MaskedSelectGrad L2NormalizeGrad BinaryCrossEntropyGrad SmoothL1LossGrad SigmoidCrossEntropyWithLogitsGrad "
        "SoftMarginLossGrad AvgPoolGrad MaxPoolGrad MaxPoolGradV1 MaxPool3DGrad MaxPoolGradGrad MaxPool3DGradGrad "
        "FractionalMaxPoolGrad Dilation2DBackpropInput Dilation2DBackpropFilter BasicLSTMCellWeightGrad "
        "LightningIndexerGrad"
    ),
    "0 6": "AddLayerNormGrad",
    "0 5 6": "BatchNormElemtGrad",
    "5 6 7": "BatchNormGradGrad LayerNormGradGrad",
    "2 3": "MaximumGradGrad MinimumGradGrad",
    "3": "GatherDGradV2 FlashAttentionScoreGrad SpeedFusionAttentionGrad",
    "7 8 9": "LSTMGrad",
    "6 7": "GRUV2Grad DynamicGRUV2Grad",
    "8 9 10": "DynamicRNNGrad",
    "4": "SparseFlashAttentionGrad WKVGrad",
    "5": "MultiScaleDeformableAttnGrad",
}
NAMED = {
    name: tuple(tuple(map(int, positions.split())) for positions in rule.split("|"))
    for rule, names in _RULES.items()
    for name in names.split()
}
