"""Views: primitives whose result may be the memory of an operand, for what must wait and for what takes memory.

Found by running them (MindSpore 2.10, CPU): a state is read through the primitive, then overwritten, and the result
shows which value the reader got. Every primitive that has a CPU kernel and takes a tensor was tried so
(``tests/ir/core/test_views.py`` repeats it for those listed and their neighbours). Reshape, ExpandDims, Squeeze,
Flatten and Identity copy on the CPU and are views elsewhere. A primitive that is listed and copies costs an order that
nothing needs; one that is missing lets a write overtake its readers.
"""

from __future__ import annotations

PASSING = frozenset({"Depend", "MakeTuple", "MakeList", "TupleGetItem", "ListGetItem"})
"""Views that touch no data: only those who use their result do."""
BINDING = frozenset({"Partial", "Switch"})
"""Closures: what they bind is read by who calls them."""
VIEWS = PASSING | BINDING | {
    "Load",
    # no kernel on some device: the memory of the operand, in another shape or split in one
    "Reshape", "ExpandDims", "Squeeze", "Flatten", "Identity", "StopGradient", "Contiguous", "Chunk",
    # strides over the memory of the operand
    "AsStrided", "BroadcastToView", "ChunkView", "DiagonalView", "ExpandDimsView", "ImagView", "Narrow", "NarrowView",
    "RealView", "SelectExtView", "SelectView", "SliceExtView", "SplitTensorView", "SplitWithSizeView", "SqueezeView",
    "TransposeExtView", "TransposeView", "UnstackExtView", "UnstackView", "View", "ViewAs", "ViewDtype",
}  # fmt: skip
"""Primitives whose result is an operand, or part of it, seen in another way."""
