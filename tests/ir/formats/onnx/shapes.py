"""The shapes of a program's inputs."""

from __future__ import annotations

import onnx


def shapes(model: onnx.ModelProto) -> dict[str, list[int | str]]:
    """Of inputs and outputs; open sizes by their names."""
    return {
        info.name: [d.dim_param or d.dim_value for d in info.type.tensor_type.shape.dim]
        for info in (*model.graph.input, *model.graph.output)
    }
