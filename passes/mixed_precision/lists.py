"""Which primitives compute in half precision at each level: the lists of ``mindspore.amp``, by primitive.

Source: ``mindspore/train/amp.py`` of MindSpore 2.10 (``AMP_WHITE_LIST``, ``AMP_BLACK_LIST``). Its lists name primitives
and cells; a graph holds no cells, so each stands here with the primitives that it computes by.
``tests/passes/mixed_precision/test_lists.py`` holds this page against the installed package.
"""

from __future__ import annotations

from collections.abc import Mapping

WHITE_CELLS: Mapping[str, tuple[str, ...]] = {
    "Conv1d": ("Conv2D", "BiasAdd"),
    "Conv2d": ("Conv2D", "BiasAdd"),
    "Conv3d": ("Conv3D", "BiasAdd"),
    "Conv1dTranspose": ("Conv2DBackpropInput", "BiasAdd"),
    "Conv2dTranspose": ("Conv2DTranspose", "Conv2DBackpropInput", "BiasAdd"),
    "Conv3dTranspose": ("Conv3DTranspose", "BiasAdd"),
    "Dense": ("MatMul", "BiasAdd"),
    "LSTMCell": ("MatMul", "BiasAdd"),
    "RNNCell": ("MatMul", "BiasAdd"),
    "GRUCell": ("MatMul", "BiasAdd"),
}
"""O1: cells that compute in half precision, with their products and what is added to these. The gates of recurrent
cells stay in float32 here, for nothing in a graph tells them from other arithmetic."""
WHITE_PRIMITIVES = (
    "Conv2D", "Conv3D", "Conv2DTranspose", "Conv3DTranspose", "Conv2DBackpropInput", "MatMul", "BatchMatMul", "PReLU",
    "ReLU", "Ger",
)  # fmt: skip
"""O1: primitives that compute in half precision wherever they stand."""
BLACK_CELLS: Mapping[str, tuple[str, ...]] = {
    "BatchNorm1d": ("BatchNorm",),
    "BatchNorm2d": ("BatchNorm",),
    "BatchNorm3d": ("BatchNorm",),
    "LayerNorm": ("LayerNorm",),
}
"""O2: cells that compute in float32; all else computes in half precision. O3 has no exceptions."""

WHITE = frozenset(WHITE_PRIMITIVES) | {name for names in WHITE_CELLS.values() for name in names}
ADDED = frozenset({"BiasAdd"})
"""Of the white cells: what is in half precision because the product is to which it adds."""
BLACK = frozenset(name for names in BLACK_CELLS.values() for name in names)

FLOAT_OPERANDS: Mapping[str, tuple[int, ...]] = {
    "BatchNorm": (1, 2, 3, 4),
    "BatchNormGrad": (2, 3, 4, 5),
    "LayerNormGrad": (2, 3),
}
"""Operands that kernels of half precision take in float32 all the same: parameters and statistics of normalisations."""
FLOAT_RESULTS: Mapping[str, tuple[int, ...]] = {
    "BatchNorm": (1, 2, 3, 4),
    "BatchNormGrad": (1, 2),
    "LayerNorm": (1, 2),
}
"""Elements of the result that stay float32 for the same reason."""

BY_TARGET = {"cpu": "O2", "gpu": "O2", "ascend": "O3"}
"""``level=auto``. Source: ``amp_level="auto"`` of MindSpore's ``Model``, which is O2 on GPU and O3 on Ascend; a CPU,
of which it says nothing, takes the level that keeps normalisations in float32."""

NO_HALF = frozenset({
    "Betainc", "CTCGreedyDecoder", "CTCLossV2", "CTCLossV2Grad", "CholeskySolve", "Complex", "Eig", "ExtractGlimpse",
    "FFTWithSize", "FractionalAvgPool", "FractionalAvgPoolGrad", "FractionalMaxPool", "FractionalMaxPoolGrad", "Hypot",
    "Igamma", "IgammaGradA", "Igammac", "LinSpace", "MatrixInverse", "MatrixTriangularSolve", "Mvlgamma",
    "MvlgammaGrad", "NextAfter", "Orgqr", "Polar", "STFT", "Svd", "Zeta",
})  # fmt: skip
"""MindSpore checks the element types of these before it looks for a kernel, and refuses half precision on any target,
where the list of Ascend's kernels tells no types. Found by running them with 2.10, as a test does."""
NO_BFLOAT16 = frozenset({
    "AvgPool", "AvgPoolGrad", "BatchNorm", "BatchNormGrad", "MaxPool", "MaxPoolGrad", "ReLU6", "ReLU6Grad",
    "SparseSoftmaxCrossEntropyWithLogits",
})  # fmt: skip
"""The same of bfloat16 alone: found by running the test networks in the simulation of Ascend (tests/devices)."""
