"""A model file as a program: parsed, checked, its functions inlined, its open sizes filled in."""

from __future__ import annotations

import hashlib
import math
import os
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ....core.data import MappedFile
from ....core.errors import FormatError, nearest
from ....core.graph import Graph
from ....core.interface import Interface, note_interface
from ....core.naming import printable
from ....core.program import Entry, Program, Schedule
from ....core.types import TensorType
from ....verify.graph import agree
from ..operators import ELEMENT_TYPES, OPSET
from .conversion import Conversion, safe_name
from .functions import inlined, without_functions
from .tensors import Tensors, declared_type


class OpenSizes(FormatError):
    """A model leaves sizes open that nobody has given."""


class ModelNote(UserWarning):
    """Warns of what an ONNX model says and is not taken as it says it."""


def read_onnx(path: str | os.PathLike[str], dimensions: Mapping[str, int] | None = None) -> Program:
    """The program of a forward model: one graph, ``step``, of MindSpore's primitives; floating-point initializers are
    state. ``dimensions``: sizes of the model's open dimensions, by name.

    FormatError for what is not a valid ONNX model; Error, listing all at once, for operators that have no translation.
    """
    path = Path(path)
    if not path.is_file():
        raise FormatError(f"{path}: no such file")
    try:
        view = MappedFile(path).view()
    except OSError as error:
        raise FormatError(f"{path}: cannot be read: {error.strerror}") from None
    try:
        model = _parsed(view)
        graph, conversion, interface = _converted(path, model, dimensions or {})
    except FormatError as error:
        message, python, command = (printable(text) for text in (error.message, error.python, error.command))
        raise type(error)(f"{path}: {message}", python=python, command=command) from None
    source = {"file": path.name, "sha256": hashlib.sha256(view).hexdigest()}
    schedule = Schedule((Entry("step"),))
    program = Program({"step": graph}, state=conversion.state, schedule=schedule, name=path.stem, source=source)
    note_interface(program, interface)
    return program


def _parsed(view: memoryview) -> Any:
    import onnx
    from google.protobuf.message import DecodeError

    try:
        model = onnx.ModelProto.FromString(bytes(view))
    except DecodeError as error:
        raise FormatError(f"not an ONNX model, or a damaged one ({error})") from None
    pending: list[Any] = [model]
    while pending:  # names that are not UTF-8, which protobuf hands out as bytes
        for field, value in pending.pop().ListFields():
            values = value if isinstance(value, Sequence) and not isinstance(value, (str, bytes)) else [value]
            if field.message_type is not None:
                pending.extend(values)
            elif field.type == field.TYPE_STRING and any(isinstance(text, bytes) for text in values):
                raise FormatError(f"a damaged ONNX model: its field '{field.name}' holds no UTF-8")
    if not model.graph.node or not model.graph.output:
        raise FormatError("not an ONNX model, or an empty one: it holds no graph with results")
    return model


def _converted(path: Path, model: Any, dimensions: Mapping[str, int]) -> tuple[Graph, Conversion, Interface]:
    found = opset_of(model)
    _promote_constants(model)
    initializers = _taken_out(model)
    first = _fill_sizes(model, dimensions, {proto.name for proto in initializers})
    if found < OPSET:
        model = newer(without_functions(model), found)
        warnings.warn(
            f"{path}: opset {found} was converted to {OPSET} by onnx.version_converter", ModelNote, stacklevel=2
        )
    _check(model)
    opset = max(found, OPSET)
    model = inlined(without_functions(model), opset)
    # A result's declared shape is taken out of the model: what a node computes is known from its inputs, and
    # onnxruntime too runs a model that declares another shape.
    declared = {info.name: declared_type(info.type) for info in model.graph.output}
    for info in model.graph.output:
        info.type.tensor_type.ClearField("shape")
    graph, batch = Graph("step"), {}
    conversion = Conversion(graph, opset, Tensors(path))
    conversion.constants([*initializers, *model.graph.initializer])
    for info in model.graph.input:
        if info.name in conversion.items:
            continue
        type_, name = declared_type(info.type), safe_name(info.name, f"input{len(graph.inputs)}")
        if type_ is None:
            raise FormatError(f"input '{info.name}' is not a tensor of a type that MindSpore has")
        value = conversion.items[info.name] = graph.add_input(name, type_)
        if info.name in first:
            batch[value.name] = first[info.name]
    conversion.nodes(model.graph.node)
    conversion.finish(list(declared))
    graph.outputs = tuple(safe_name(name, f"output{i}") for i, name in enumerate(declared))
    for name, said in declared.items():
        computed = conversion.use(conversion.items[name]).type
        if said is not None and isinstance(computed, TensorType) and not agree(computed, said):
            note = f"result '{name}' is declared as {said} and computed as {computed}, which is taken"
            warnings.warn(f"{path}: {note}", ModelNote, stacklevel=2)
    return graph, conversion, Interface(batch, graph.outputs)


def opset_of(model: Any) -> int:
    from onnx import defs

    newest = defs.onnx_opset_version()
    found = next((int(o.version) for o in model.opset_import if o.domain in ("", "ai.onnx")), None)
    if found is None:
        raise FormatError("the model does not say which opset it uses")
    if not 1 <= found <= newest:
        raise FormatError(f"opset {found}; 1 to {newest} are known: export again")
    return found


def newer(model: Any, found: int) -> Any:
    """The model in the oldest opset that the rules know, as the onnx package converts it."""
    from onnx import version_converter

    try:
        return version_converter.convert_version(model, OPSET)
    except Exception as error:  # a C++ exception of several kinds
        said = f"opset {found}, which onnx.version_converter cannot make {OPSET}: {_first_line(error)}. Export again"
        raise FormatError(said) from None


def _check(model: Any) -> None:
    from onnx import checker

    try:
        checker.check_model(model.SerializeToString())
    except (checker.ValidationError, ValueError) as error:
        raise FormatError(f"not a valid ONNX model: {_first_line(error)}") from None


def _first_line(error: Exception) -> str:
    return (str(error).strip().splitlines() or ["no reason given"])[0]


def _promote_constants(model: Any) -> None:
    """Makes initializers of the tensors that stand in Constant nodes, in a model without a weight among its
    initializers: paddle2onnx writes all weights so. In others they are constants of the computation."""

    def is_learned(proto: Any) -> bool:
        dtype = ELEMENT_TYPES.get(proto.data_type)
        return dtype is not None and dtype.is_float

    if any(is_learned(proto) and math.prod(proto.dims) > 1 for proto in model.graph.initializer):
        return
    for node in list(model.graph.node):
        named = {attribute.name: attribute for attribute in node.attribute}
        if node.op_type == "Constant" and list(named) == ["value"] and len(node.output) == 1:
            tensor = named["value"].t
            if tensor.dims and is_learned(tensor):
                model.graph.initializer.add().CopyFrom(tensor)
                model.graph.initializer[-1].name = node.output[0]
                model.graph.node.remove(node)


def _taken_out(model: Any) -> list[Any]:
    """The initializers, in whose place inputs stand: what checks and converts the model need not carry their bytes."""
    from onnx import TensorProto, helper

    if model.graph.sparse_initializer:
        raise FormatError("sparse initializers, which MindSpore has no state for")
    taken = [TensorProto.FromString(proto.SerializeToString()) for proto in model.graph.initializer]
    have = {info.name for info in model.graph.input}
    infos = [helper.make_tensor_value_info(p.name, p.data_type, p.dims) for p in taken if p.name not in have]
    model.graph.input.extend(infos)
    del model.graph.initializer[:]
    return taken


def _fill_sizes(model: Any, dimensions: Mapping[str, int], initialized: set[str]) -> dict[str, str]:
    """Open dimensions of the inputs get the sizes given, by their names or as INPUT.AXIS; what the model says of other
    values is left to inference. Returns the names of the first dimensions that were open, by input."""
    missing: dict[str, None] = {}
    known: dict[str, None] = {}
    first: dict[str, str] = {}
    for info in model.graph.input:
        if info.name in initialized or not info.type.HasField("tensor_type"):
            continue
        if not info.type.tensor_type.HasField("shape"):
            raise FormatError(f"input '{info.name}' has no shape: export with one")
        for i, dim in enumerate(info.type.tensor_type.shape.dim):
            if dim.HasField("dim_value") and dim.dim_value >= 0:
                continue
            place, named = f"{info.name}.{i}", _is_name(dim.dim_param)
            name = dim.dim_param if named else place
            known.update(dict.fromkeys((name, place, dim.dim_param)))
            if i == 0:
                first[info.name] = name if named else "batch"
            size = next((dimensions[key] for key in (place, name, dim.dim_param) if key in dimensions), None)
            if size is None:
                missing[name] = None
            else:
                dim.dim_value = size
    if missing:
        name = next(iter(missing))
        raise OpenSizes(
            f"the model leaves sizes open: {', '.join(missing)}.",
            python=f"Say what they are: dimensions={{'{name}': 8}}",
            command=f"Say what they are: boost-inspect --dim {name}=8, or boost-compile --dim {name}=8 --loss … "
            "--optimizer …, which makes a program that the other commands take",
        )
    wrong = [name for name in dimensions if name not in known]
    if wrong:
        have = nearest(wrong[0], list(known)) if known else " (all its sizes are set)"
        raise FormatError(f"the inputs of the model leave no size '{wrong[0]}' open{have}")
    del model.graph.value_info[:]
    for info in model.graph.output:
        for dim in info.type.tensor_type.shape.dim if info.type.HasField("tensor_type") else ():
            if not _is_name(dim.dim_param) and not dim.dim_value > 0:
                dim.Clear()
            elif dim.dim_param in dimensions:
                dim.dim_value = dimensions[dim.dim_param]
    return first


def _is_name(dimension: str) -> bool:
    """Whether a name tells its dimension from others: exporters write "?" or nothing for what they do not know."""
    return any(c.isalnum() for c in dimension)
