"""One graph as an ONNX model that viewers open."""

from __future__ import annotations

from importlib.metadata import version
from pathlib import Path

from ...ir.core.errors import OptionError
from ...ir.formats.onnx.writer import write_onnx
from .shown import Shown


def write_onnx_of(shown: Shown, output: str) -> None:
    """Writes the model, and its large tensors beside it. OptionError for a program of several graphs."""
    graphs = shown.program.graphs
    if len(graphs) > 1:
        names = " or ".join(graphs)
        raise OptionError(f"an ONNX model holds one graph, {shown.file} has {len(graphs)}: take --graph {names}")
    (graph,) = graphs.values()
    write_onnx(
        Path(output), graph, shown.program.state, lambda node: {"part": shown.part(node)}, version("boost-compile")
    )
