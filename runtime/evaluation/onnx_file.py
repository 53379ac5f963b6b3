"""The evaluation network of a session as standard ONNX."""

from __future__ import annotations

import os
from collections.abc import Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Any, Literal

from ...ir.core.program import Program
from ...ir.formats.onnx.standard import export_onnx
from ...ir.rewrite.evaluation import evaluation


def export_network(
    program: Program,
    state: Mapping[str, Any],
    path: str | os.PathLike[str],
    result: str | None,
    batch: int | Literal["any"] | None,
) -> str:
    """Writes the network of ``program`` with the weights in ``state``; says what was written. The rest is as
    ``Session.export_onnx`` takes it."""
    network = evaluation(program, result).with_values(state, "the session")
    if batch is not None:
        network = network.resized(None if batch == "any" else batch, runs=False)
    return f"exported {export_onnx(Path(path), network, version('boost-compile'))}"
