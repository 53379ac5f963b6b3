"""Gradients of rows (``sparse=True`` of an embedding): a pass that needs a whole gradient refuses them by name."""

from __future__ import annotations

from collections.abc import Iterable

from ...ir.analysis.training.stages import GradientPath
from ...ir.analysis.training.weights import WeightInfo
from ...ir.core.errors import PassError


def refuse_sparse(gradients: Iterable[GradientPath], what: str) -> None:
    """PassError for the first gradient of rows. ``what``: why it is refused, as a relative clause."""
    for path in gradients:
        if path.sparse:
            _refuse(path.weight, what)


def refuse_sparse_weights(weights: Iterable[WeightInfo], what: str) -> None:
    """As :func:`refuse_sparse`, for weights whose gradients have no path yet."""
    for info in weights:
        if info.sparse:
            _refuse(info.name, what)


def _refuse(weight: str, what: str) -> None:
    raise PassError(
        f"weight '{weight}' has a sparse gradient (rows, and indices of their places), {what}: export the network with "
        "sparse=False in its embeddings (nn.EmbeddingLookup)"
    )
