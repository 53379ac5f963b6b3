"""What the onnx package says of one node: the types of its results, and the results where all its inputs are known."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ....core.errors import FormatError
from ....core.graph import Value
from ....core.types import TensorType
from ..operators import NUMBERS, Unsupported
from .call import Item, Weight, type_of
from .tensors import declared_type

LIMIT = 1 << 26
"""Elements of the largest constant that is computed: a hostile file asks for more than there is memory."""
_SHOWN = 1024
"""Elements up to which an input's values are shown to shape inference."""


def result_types(node: Any, inputs: Sequence[Item | None], opset: int, strict: bool) -> list[TensorType | None]:
    """None for what inference does not know, or what MindSpore has no type for. FormatError, if ``strict``, where the
    inputs do not fit the operator."""
    from onnx import defs, helper, numpy_helper, shape_inference

    types, data = {}, {}
    for name, item in zip(node.input, inputs, strict=True):
        if item is None:
            continue
        type_ = type_of(item)
        types[name] = helper.make_tensor_type_proto(NUMBERS[type_.dtype], type_.shape)
        if not isinstance(item, Value) and type_.size <= _SHOWN:
            data[name] = numpy_helper.from_array(item.array if isinstance(item, Weight) else item, name)
    try:
        found = shape_inference.infer_node_outputs(
            defs.get_schema(node.op_type, opset), node, types, data, opset_imports=[helper.make_opsetid("", opset)]
        )
    except Exception as error:  # a C++ exception of several kinds
        if strict:
            raise FormatError(f"the shape of its result cannot be told: {error}") from None
        return [None] * len(node.output)
    return [declared_type(found[name]) if name in found else None for name in node.output]


def fold(node: Any, inputs: Sequence[Any], types: Sequence[TensorType | None], opset: int) -> list[np.ndarray]:
    """The outputs of a node all of whose inputs are known. FormatError where it cannot be evaluated."""
    from onnx import helper
    from onnx.reference import ReferenceEvaluator

    for type_ in types:
        if type_ is not None and type_.size > LIMIT:
            shape = list(type_.shape)
            raise FormatError(f"{node.op_type} makes a constant of shape {shape}, more than {LIMIT} elements")
    feeds = {name: array for name, array in zip(node.input, inputs, strict=True) if name and array is not None}
    infos = [
        helper.make_tensor_value_info(n, helper.np_dtype_to_tensor_dtype(a.dtype), a.shape) for n, a in feeds.items()
    ]
    results = [helper.make_empty_tensor_value_info(name) for name in node.output if name]
    graph = helper.make_graph([node], "constant", infos, results)
    try:
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)])
        return [np.asarray(result) for result in ReferenceEvaluator(model).run(None, feeds)]
    except NotImplementedError as error:
        raise Unsupported(f"the onnx package cannot evaluate it: {error}") from None
    except (Exception, SystemError) as error:
        raise FormatError(f"it cannot be evaluated: {error}") from None
