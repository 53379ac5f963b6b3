"""Multiplying the derivative of the loss at its seeds (:mod:`ir.analysis.derivative.linearity` finds them)."""

from __future__ import annotations

from collections.abc import Sequence

from ..analysis.derivative.linearity import Seed
from ..builders.cast import cast
from ..core.errors import AnatomyError
from ..core.graph import Graph, Node, Value
from ..core.sites import site
from ..core.types import DType, TensorType


def scale_seeds(graph: Graph, seeds: Sequence[Seed], factor: Value, *, scope: str) -> list[Node]:
    """Multiplies every seed by ``factor``, a float32 scalar tensor of the main graph, and returns the Muls.

    Half-precision seeds are multiplied in float32, where the factor itself cannot overflow, and cast back; for float64
    seeds the factor is cast.
    """
    made: list[Node] = []
    for seed in seeds:
        if not isinstance(seed.value.type, TensorType):
            raise AnatomyError(f"seed {site(seed.value)} is no tensor: it cannot be multiplied")
        dtype = seed.value.type.dtype
        # A constant stands nowhere: what it is multiplied with decides.
        with graph.inserting_after(seed.value if isinstance(seed.value, Node) else factor):
            wide = DType.FLOAT64 if dtype is DType.FLOAT64 else DType.FLOAT32
            value = cast(graph, seed.value, wide, scope=scope)
            by = cast(graph, factor, wide, scope=scope)
            product = graph.create("Mul", [value, by], scope=scope, sources=[seed.value])
            scaled = cast(graph, product, dtype, scope=scope)
        made.append(product)
        for user, i in seed.uses:
            user.set_operand(i, scaled)
    if isinstance(factor, Node):
        graph.sort()  # the factor may have stood behind a seed
    return made
