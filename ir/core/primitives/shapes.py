"""Primitives that move elements and compute nothing.

``view`` was found by running them (MindSpore 2.10, CPU): a state is read through the primitive, then overwritten, and
the result shows which value the reader got. Every primitive that has a CPU kernel and takes a tensor was tried so
(``tests/ir/core/test_views.py`` repeats it for those listed and their neighbours). Reshape, ExpandDims,
Squeeze, Flatten and Identity copy on the CPU and are views elsewhere. A primitive that is marked and copies costs an
order that nothing needs; one that is missing lets a write overtake its readers.
"""

from __future__ import annotations

from .definition import Facts, Family, Table, each, family

TABLE: Table = {
    **each("Identity StopGradient Contiguous", Facts(Family.COPY, view=True)),
    **family(Family.COPY, "TensorMove Clone Copy"),
    "Cast": Facts(Family.CAST),
    **each("Reshape ExpandDims Squeeze Flatten", Facts(Family.RESHAPE, view=True)),
    **each("ExpandDimsView View ViewAs", Facts(Family.RESHAPE, view=True)),
    "FlattenExt": Facts(Family.RESHAPE),
    "Transpose": Facts(Family.TRANSPOSE),
    **each("TransposeView TransposeExtView", Facts(Family.TRANSPOSE, view=True)),
    **each(
        "Chunk ChunkView Narrow NarrowView SelectExtView SelectView SliceExtView SplitTensorView SplitWithSizeView"
        " UnstackExtView DiagonalView",
        Facts(Family.SLICE, view=True),
    ),
    **family(Family.SLICE, "Slice SliceExt StridedSlice Split SplitWithSize SplitTensor SplitV Unstack Diagonal"),
    "BroadcastToView": Facts(Family.REPEAT, view=True),
    **family(Family.REPEAT, "BroadcastTo Tile"),
    **family(Family.JOIN, "Concat Stack StackExt Pack"),
    **each("AsStrided ImagView RealView ViewDtype", Facts(view=True)),
    **family(Family.LOOKUP, "Gather GatherNd GatherD SparseGatherV2 EmbeddingLookup IndexSelect Take"),
    **each(
        "TensorScatterAdd TensorScatterSub TensorScatterUpdate TensorScatterMul TensorScatterDiv TensorScatterMax"
        " TensorScatterMin",
        Facts(rows=2),
    ),
    "ScatterNd": Facts(rows=1),
    **each("UnsortedSegmentSum UnsortedSegmentMax UnsortedSegmentMin UnsortedSegmentProd", Facts(rows=0)),
    # It scales rows that are longer than max_norm before it looks them up.
    "Embedding": Facts(Family.LOOKUP, writes=(1,), any_tensor=True),
}
