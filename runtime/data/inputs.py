"""Checks a micro-batch against the types of a graph's inputs and makes MindSpore Tensors of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

import numpy as np

from ...ir.core.errors import RuntimeFailure
from ...ir.core.graph import Graph, Input
from ...ir.core.types import DType, TensorType
from ...ir.core.wording import counted


def to_tensors(graph: Graph, values: Sequence[Any], owned: bool = False) -> tuple[Any, ...]:
    """One Tensor for each input of ``graph``; they take the memory of arrays that are ``owned``: nobody else has them.

    ``values`` are numpy arrays, Tensors, or Python numbers and lists. Shape and dtype must be those of the input (a
    ``?`` dimension takes any size); integers of another width are taken where every value fits, Python numbers where
    their kind does. numpy has no bfloat16: such inputs take float32. Otherwise a :class:`RuntimeFailure` that names the
    input.
    """
    if len(values) != len(graph.inputs):
        expected = ", ".join(f"{i.name}: {i.type}" for i in graph.inputs)
        raise RuntimeFailure(
            f"graph '{graph.name}' takes {counted(len(graph.inputs), 'input')} ({expected}), got {len(values)}. "
            f"Pass them in this order, one array each."
        )
    return tuple(_to_tensor(graph, i, value, owned) for i, value in zip(graph.inputs, values, strict=True))


def _to_tensor(graph: Graph, input_: Input, value: Any, owned: bool) -> Any:
    import mindspore

    type_ = input_.type
    if not isinstance(type_, TensorType):
        return value
    wanted = np.dtype("float32" if type_.dtype is DType.BFLOAT16 else type_.dtype.value)
    if type(value) is not np.ndarray or value.dtype != wanted or value.shape != type_.shape:
        where = f"input '{input_.name}' of graph '{graph.name}'"
        if isinstance(value, mindspore.Tensor):
            if _name_of(value.dtype) == type_.dtype.value:
                _check_shape(where, type_, value.shape)
                return value
            value = value.asnumpy()
        if isinstance(value, Mapping):
            raise RuntimeFailure(
                f"{where} takes {type_}, got a {type(value).__name__}. Pass the arrays themselves, in the order of the "
                f"inputs."
            )
        given_dtype = isinstance(value, (np.ndarray, np.generic))
        try:
            value = np.asarray(value)
        except ValueError as e:
            raise RuntimeFailure(f"{where} takes {type_}, got rows of different lengths: {e}") from e
        _check_shape(where, type_, value.shape)
        value = cast(where + " takes", value, wanted, given_dtype)
    if type_.dtype is DType.BFLOAT16:
        return mindspore.Tensor(value, mindspore.bfloat16)
    # A copy: the step may still be running when the caller fills its buffer anew.
    return mindspore.Tensor.from_numpy(value if owned else value.copy())


@cache
def _name_of(dtype: Any) -> str:
    """numpy's name of a type of MindSpore."""
    return str(dtype).rsplit(".", 1)[-1].lower()


def _check_shape(where: str, type_: TensorType, shape: tuple[int, ...]) -> None:
    expected = type_.shape
    if expected in ((-2,), shape):
        return
    if len(expected) != len(shape) or any(e not in (-1, d) for e, d in zip(expected, shape, strict=True)):
        hint = ""
        if len(expected) == len(shape) and expected[1:] == shape[1:]:
            hint = (
                f" The graph is made for a micro-batch of {expected[0]}: feed that many rows, or export or capture the "
                f"cell with Tensor(shape=[None, …]) for any number."
            )
        elif len(expected) == len(shape) + 1 and expected[1:] == shape:
            hint = " The batch dimension is missing."
        raise RuntimeFailure(f"{where} takes {type_}, got shape {list(shape)}.{hint}")


def cast(where: str, array: Any, wanted: Any, given_dtype: bool) -> Any:
    """``array`` with the dtype ``wanted``, or RuntimeFailure; ``where`` begins its message, up to "takes"."""
    if array.dtype == wanted:
        return array
    integers = array.dtype.kind in "iu" and wanted.kind in "iu"
    if integers:
        limits = np.iinfo(wanted)
        if array.size == 0 or (int(array.min()) >= limits.min and int(array.max()) <= limits.max):
            return array.astype(wanted)
        raise RuntimeFailure(f"{where} {wanted}, got {array.dtype} with values that do not fit in it.")
    if not given_dtype and (array.dtype.kind == wanted.kind or (array.dtype.kind in "iu" and wanted.kind == "f")):
        return array.astype(wanted)
    raise RuntimeFailure(f"{where} {wanted}, got {array.dtype}. Convert it: array.astype('{wanted}').")
