"""Constant folding, by the reference evaluator of the onnx package."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ....core.errors import FormatError
from ..vocabulary import Unsupported

if TYPE_CHECKING:
    import numpy as np

LIMIT = 1 << 26
"""Elements of the largest constant that is computed: a hostile file asks for more than there is memory."""
_SUMMARY = 1024
"""Elements up to which an input's values are shown to shape inference."""


def fold(node: Any, inputs: Sequence[np.ndarray | None], opset: int) -> list[np.ndarray]:
    """The outputs of a node all of whose inputs are known. FormatError where it cannot be evaluated."""
    from onnx.reference import ReferenceEvaluator

    model = _alone(node, inputs, opset)
    _check_size(model, node)
    feeds = {name: array for name, array in zip(node.input, inputs, strict=True) if name and array is not None}
    try:
        evaluator = ReferenceEvaluator(model)
        results = evaluator.run(None, feeds)
    except NotImplementedError as error:
        raise Unsupported(f"the onnx package cannot evaluate it: {error}") from None
    except (Exception, SystemError) as error:
        raise FormatError(f"it cannot be evaluated: {error}") from None
    import numpy as np

    return [np.asarray(result) for result in results]


def _alone(node: Any, inputs: Sequence[np.ndarray | None], opset: int) -> Any:
    """A model of this node alone."""
    from onnx import helper, numpy_helper

    infos, small = [], []
    for name, array in dict(zip(node.input, inputs, strict=True)).items():
        if name and array is not None:
            element = helper.np_dtype_to_tensor_dtype(array.dtype)
            infos.append(helper.make_tensor_value_info(name, element, array.shape))
            if array.size <= _SUMMARY:
                small.append(numpy_helper.from_array(array, name))
    outputs = [helper.make_empty_tensor_value_info(name) for name in node.output if name]
    graph = helper.make_graph([node], "constant", infos, outputs, initializer=small)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)])


def _check_size(model: Any, node: Any) -> None:
    from onnx import shape_inference

    try:
        inferred = shape_inference.infer_shapes(model, data_prop=True)
    except Exception as error:
        raise FormatError(f"the shape of its result cannot be told: {error}") from None
    for info in [*inferred.graph.value_info, *inferred.graph.output]:
        if info.type.HasField("tensor_type"):
            dims = [d.dim_value for d in info.type.tensor_type.shape.dim]
            if math.prod(dims) > LIMIT:
                raise FormatError(f"{node.op_type} makes a constant of shape {dims}, more than {LIMIT} elements")
