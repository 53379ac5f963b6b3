"""Matrix products, convolutions and recurrent layers.

Operands: ``init_prim_io_names`` and the signatures of MindSpore 2.10.
"""

from __future__ import annotations

from .definition import Facts, Family, Table, each, family

TABLE: Table = {
    **family(Family.MATMUL, "MatMul BatchMatMul MatMulExt BatchMatMulExt Mm"),
    "Dense": Facts(Family.AFFINE),
    **each("Addmm Addbmm Baddbmm", Facts(Family.AFFINE, factors=(1, 2))),
    **family(
        Family.CONVOLUTION,
        "Conv2D Conv3D Conv1DExt Conv2DExt Conv3DExt Conv1DPadding Conv2DPadding Conv3DPadding Convolution"
        " ConvolutionStr DepthwiseConv2dNative",
    ),
    **family(Family.TRANSPOSED_CONVOLUTION, "Conv2DTranspose Conv3DTranspose Conv2DBackpropInput ConvTranspose2D"),
    "Conv3DBackpropInput": Facts(Family.TRANSPOSED_CONVOLUTION, factors=(1, 0)),
    "DepthwiseConv2dNativeBackpropInput": Facts(Family.TRANSPOSED_CONVOLUTION, factors=(2, 1)),
    # Here the factors are the derivative and the data.
    "Conv2DBackpropFilter": Facts(Family.FILTER_GRADIENT),
    "Conv3DBackpropFilter": Facts(Family.FILTER_GRADIENT, factors=(1, 0)),
    "DepthwiseConv2dNativeBackpropFilter": Facts(Family.FILTER_GRADIENT, factors=(2, 0)),
    **family(Family.RECURRENT, "LSTM LSTMV2 GRUV2 DynamicRNN DynamicGRUV2 CudnnGRU"),
}
