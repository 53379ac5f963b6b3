"""Writes a graph and its state as MindIR.

Messages are emitted as wire format: each name, type, primitive and set of marks is encoded once, and the bytes of
parameters and large constants go from their mappings straight into the file. Cost: linear in nodes and operands.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import cache
from io import BytesIO
from itertools import count
from pathlib import Path
from typing import Any, BinaryIO

from ...core.attributes import Attribute, TensorValue, bits
from ...core.data import Data
from ...core.errors import Error, VerifyError
from ...core.graph import Constant, Graph, GraphRef, Node, Value
from ...core.naming import UniqueNames
from ...core.op import CALL, Op
from ...core.program import StateVariable
from ...core.types import UNKNOWN, TensorType, Type
from ...files.atomic import explained, replacing_file, sync_directory
from ...files.disk_space import check_room
from ...files.protobuf import delimited, tag, text_field, varint
from . import schema as s
from .codec import TENSOR_NAME, encode_type, encode_value, encode_value_info, put_tensor_type
from .external import ALIGNMENT, FRONT

Chunk = bytes | Data
INLINE_LIMIT = 1 << 30
"""Bytes of parameters above which they go into a data file, as in mindspore.export (a protobuf file ends at 2 GB)."""
DATA_FILES = "data_[0-9]*"
"""The files in the directory ``NAME_variables``."""
SPLICED = 64 * 1024
"""Constant tensors larger than this are copied from their mapping into the file, never into a message."""
DEFAULT_HEADER: Mapping[str, Any] = {"ir_version": "1.1", "producer_name": "MindSpore", "model_version": "2.10.0"}
MIND_IR_VERSION = 3


def write_mindir(
    path: str | os.PathLike[str],
    graph: Graph,
    state: Mapping[str, StateVariable],
    metadata: Mapping[str, Any],
    *,
    stateless: bool = False,
    external: int | None = None,
) -> None:
    """Writes ``graph`` with its functions and the ``state`` that they use; atomically, leaving nothing on failure.

    ``stateless``: the graph's states become its last inputs, in the order of ``graph.states``. Otherwise they become
    parameters in the order of ``state``, with their bytes in the file, or, above ``external`` bytes together (default
    1 GB), in ``NAME_variables/data_N`` beside it. ``metadata``: header fields, as ``read_mindir`` gives them.
    Raises VerifyError for a graph that has no MindIR form, Error for a place that cannot be written.
    """
    path = Path(path)
    if path.name.endswith("_graph.mindir"):
        raise Error(
            f"{path}: MindSpore expects a legacy data directory beside files named *_graph.mindir; choose another name"
        )
    limit = INLINE_LIMIT if external is None else external
    parameters = [] if stateless else [v for name, v in state.items() if name in graph.states]
    check_room(path, [v.data for v in parameters])
    if sum(v.nbytes for v in parameters) <= limit:
        with replacing_file(path) as file:
            _write(file, _Emitter(graph, state, stateless, "").model(metadata))
        return
    with explained(path), _data_file(path) as place, replacing_file(path) as file:
        _write(file, _Emitter(graph, state, stateless, f"{place.parent.name}/{place.name}").model(metadata))
        with open(place, "xb") as data:
            data.write(b"\x01".ljust(FRONT, b"\0"))
            for variable in parameters:
                _write(data, [variable.data, bytes(-variable.nbytes % ALIGNMENT)])
            data.flush()
            os.fsync(data.fileno())
        sync_directory(place.parent)


def stateless_bytes(graph: Graph, state: Mapping[str, StateVariable], metadata: Mapping[str, Any]) -> bytes:
    """What :func:`write_mindir` writes where ``stateless``, in memory."""
    file = BytesIO()
    _write(file, _Emitter(graph, state, True, "").model(metadata))
    return file.getvalue()


@contextmanager
def _data_file(path: Path) -> Iterator[Path]:
    """A new name in ``NAME_variables``: an older file there belongs to the older MindIR as long as that one stands.
    It goes when the block ends well."""
    directory = path.with_name(f"{path.stem}_variables")
    if directory.exists() and not (directory.is_dir() and any(directory.glob(DATA_FILES))):
        raise Error(f"{directory}: is in the way of the parameters' data; move it or choose another name")
    directory.mkdir(exist_ok=True)
    before = set(directory.glob(DATA_FILES))
    place = next(file for file in (directory / f"data_{i}" for i in count()) if file not in before)
    try:
        yield place
    except BaseException:
        with suppress(OSError):
            place.unlink(missing_ok=True)
            directory.rmdir()  # unless it is the older one's
        raise
    for file in before:
        with suppress(OSError):
            file.unlink()


def _write(file: BinaryIO, chunks: Iterable[Chunk]) -> None:
    for chunk in chunks:
        if isinstance(chunk, bytes):
            file.write(chunk)
        else:
            chunk.write_to(file)


class _Emitter:
    """One graph, with its functions, on its way into a file."""

    def __init__(self, graph: Graph, state: Mapping[str, StateVariable], stateless: bool, location: str):
        self._graph = graph
        self._state = state
        self._stateless = stateless
        self._location = location
        name = str(graph.info.get("name") or graph.name)
        while name in graph.functions:
            name += "_main"
        self._main_name = name
        self._unique = UniqueNames()
        self._unique.taken.update((name, *graph.functions))
        self._constants: dict[str, list[tuple[Attribute, str]]] = {}
        self._states: dict[str, str] = {}
        self._primitives: list[bytes] = []
        self._ops: dict[Op, bytes] = {}
        self._types: dict[int, tuple[Type, bytes]] = {}
        self._scopes: dict[str, bytes] = {"": b""}
        self._maps: dict[int, tuple[Mapping[str, Attribute], bytes]] = {}

    def model(self, metadata: Mapping[str, Any]) -> list[Chunk]:
        main = self._function(self._graph, self._main_name)
        functions = [self._function(f, f.name) for f in self._graph.functions.values()]
        before, after = _header(metadata)
        chunks: list[Chunk] = [before]
        for number, body in [(s.MODEL_GRAPH, main), *((s.MODEL_FUNCTIONS, f) for f in functions)]:
            chunks.append(tag(number) + varint(_size(body)))
            chunks += body
        chunks += [delimited(s.MODEL_PRIMITIVES, p) for p in self._primitives]
        chunks.append(after)
        return chunks

    # -- graphs ------------------------------------------------------------------------------------------------------

    def _function(self, graph: Graph, name: str) -> list[Chunk]:
        main = graph is self._graph
        prefix = name + ":"
        names: dict[Value, str] = {}
        uses: dict[Value, bytes] = {}
        parameters: list[Chunk] = []

        def define(value: Value, full: str) -> None:
            names[value] = full
            uses[value] = text_field(s.NODE_INPUT, full)

        # States first: their names are what users know, so they are never the ones to yield in a clash.
        for state in graph.states.values():
            if main:
                self._states[state.name] = self._unique.claim(prefix + state.name)
            elif self._stateless or state.name not in self._states:
                raise VerifyError(
                    f"function '{graph.name}' uses state '{state.name}' directly: pass it in as an argument"
                )
            define(state, self._states[state.name])
        for value in graph.inputs:
            define(value, self._unique.claim(prefix + value.name))
        arguments: list[Value] = [*graph.inputs]
        if main and self._stateless:
            arguments += graph.states.values()
        elif main:
            parameters = self._parameters(graph)
        inputs = [delimited(s.GRAPH_INPUT, encode_value_info(names[v], v.type)) for v in arguments]
        chunks = self._nodes(graph, prefix, names, uses)
        if not graph.has_result:
            raise VerifyError(f"graph '{graph.name}' has no result")
        result = graph.result
        if result not in uses:
            self._outer(graph, result, names, uses, chunks)
        chunks.append(text_field(s.GRAPH_NAME, name))
        chunks += parameters
        info = graph.info
        if "doc_string" in info:
            chunks.append(text_field(s.GRAPH_DOC, str(info["doc_string"])))
        chunks += inputs
        chunks.append(delimited(s.GRAPH_OUTPUT, encode_value_info(names[result], result.type)))
        if "bprop_hash" in info:
            chunks.append(text_field(s.GRAPH_BPROP_HASH, str(info["bprop_hash"])))
        chunks += [delimited(s.GRAPH_ATTRIBUTE, encode_value(k, v)) for k, v in graph.attributes.items()]
        if "bprop_filepath" in info:
            chunks.append(text_field(s.GRAPH_BPROP_PATH, str(info["bprop_filepath"])))
        return chunks

    def _parameters(self, graph: Graph) -> list[Chunk]:
        chunks: list[Chunk] = []
        types: dict[TensorType, bytes] = {}
        offset = FRONT
        missing = [name for name in graph.states if name not in self._state]
        if missing:
            raise VerifyError(f"graph '{graph.name}' uses state '{missing[0]}', which the program does not have")
        for name, variable in self._state.items():
            if name not in graph.states:
                continue
            if variable.data.nbytes != variable.type.nbytes:
                raise VerifyError(f"state '{name}' is {variable.type} but has {variable.data.nbytes} bytes")
            # A message may come in parts: the type is the same in many of them.
            type_ = types.get(variable.type)
            if type_ is None:
                part = s.TensorProto()
                put_tensor_type(part, replace(variable.type, ref=""))
                type_ = types[variable.type] = part.SerializeToString(deterministic=True)
            proto = s.TensorProto(name=self._states[name])
            _put_notes(proto, variable)
            if self._location:
                length = variable.data.nbytes
                proto.external_data.location = self._location
                proto.external_data.offset, proto.external_data.length = offset, length
                offset += length + -length % ALIGNMENT
            encoded = type_ + proto.SerializeToString(deterministic=True)
            tensor = [encoded] if self._location else _tensor(encoded, variable.data)
            chunks += _message(s.GRAPH_PARAMETER, tensor)
        return chunks

    def _nodes(self, graph: Graph, prefix: str, names: dict[Value, str], uses: dict[Value, bytes]) -> list[Chunk]:
        chunks: list[Chunk] = []
        types, maps, ops, scopes, taken = self._types, self._maps, self._ops, self._scopes, self._unique.taken
        node_tag, output_tag, name_tag = tag(s.GRAPH_NODE), tag(s.NODE_OUTPUT), tag(s.NODE_NAME)
        primal_tag = tag(s.NODE_PRIMAL)
        for node in graph:
            operands = node._operands
            op = node.op
            try:
                body = [uses[v] for v in operands]
            except KeyError:
                for v in operands:
                    if v not in uses:
                        self._outer(graph, v, names, uses, chunks)
                body = [uses[v] for v in operands]
            if op is CALL:
                if not operands:
                    raise VerifyError(f"call {node!r} in graph '{graph.name}' has no operand to call")
                op_field = text_field(s.NODE_OP, "REF::" + names[operands[0]])
                del body[0]
            else:
                op_field = ops.get(op) or self._primitive(op)
            full = prefix + node.name
            if full in taken:
                full = self._unique.claim(full)
            taken.add(full)
            encoded = full.encode("utf-8", "surrogatepass")
            field = varint(len(encoded)) + encoded
            uses[node] = b"\n" + field
            names[node] = full
            type_ = node.type
            known = types.get(id(type_))
            scope = scopes.get(node.scope)
            if scope is None:
                scope = scopes[node.scope] = text_field(s.NODE_DOMAIN, node.scope)
            body += (
                output_tag + field,
                name_tag + field,
                op_field,
                self._type(type_) if known is None else known[1],
                scope,
            )
            if node.marks:
                found = maps.get(id(node.marks))
                body.append(self._shared(node.marks) if found is None else found[1])
            for key, value in node.primal.items():
                attribute = _attribute(key, value)
                body += (primal_tag, varint(len(attribute)), attribute)
            joined = b"".join(body)
            chunks.append(node_tag + varint(len(joined)) + joined)
        return chunks

    def _outer(
        self, graph: Graph, value: Value, names: dict[Value, str], uses: dict[Value, bytes], chunks: list[Chunk]
    ) -> None:
        """Makes a value known that is no node, input or state of this graph; emits a constant that was not yet."""
        if isinstance(value, Constant):
            name = self._constant(value, chunks)
        elif isinstance(value, GraphRef) and self._graph.functions.get(value.graph.name) is value.graph:
            name = value.graph.name
        elif isinstance(value, GraphRef):
            raise VerifyError(
                f"graph '{graph.name}' refers to function '{value.graph.name}', which the program does not have"
            )
        elif isinstance(value, Node) and value.graph is graph:
            raise VerifyError(f"graph '{graph.name}' uses {value!r} before it is computed: sort the graph")
        else:
            raise VerifyError(
                f"graph '{graph.name}' uses {value!r}, which is defined outside: pass it in as an argument"
            )
        names[value] = name
        uses[value] = text_field(s.NODE_INPUT, name)

    def _constant(self, constant: Constant, chunks: list[Chunk]) -> str:
        """The name of a constant's node; the same one for the same constant of another graph."""
        value = constant.value
        alike = self._constants.setdefault(constant.name, [])
        for other, name in alike:
            if other is value or (type(other) is type(value) and bits(other) == bits(value)):
                return name
        name = self._unique.claim(constant.name)
        alike.append((value, name))
        fields = text_field(s.NODE_OUTPUT, name) + text_field(s.NODE_NAME, name) + text_field(s.NODE_OP, "Constant")
        if isinstance(value, TensorValue) and value.data.nbytes > SPLICED:
            proto = s.TensorProto(name=TENSOR_NAME)
            put_tensor_type(proto, value.type)
            attribute: list[Chunk] = [
                text_field(s.ATTRIBUTE_NAME, "value"),
                *_message(s.ATTRIBUTE_TENSORS, _tensor(proto.SerializeToString(deterministic=True), value.data)),
                tag(s.ATTRIBUTE_TYPE, 0) + varint(s.AttributeKind["TENSORS"]),
            ]
            chunks += _message(s.GRAPH_NODE, [fields, *_message(s.NODE_ATTRIBUTE, attribute)])
        else:
            chunks.append(delimited(s.GRAPH_NODE, fields + delimited(s.NODE_ATTRIBUTE, encode_value("value", value))))
        return name

    # -- what nodes share --------------------------------------------------------------------------------------------

    def _primitive(self, op: Op) -> bytes:
        n = len(self._ops) + 1
        while f"{op.name}:{n}" in self._unique.taken:
            n += 1
        name = self._unique.claim(f"{op.name}:{n}")
        encoded = text_field(1, name) + text_field(2, op.name)
        encoded += b"".join([delimited(3, encode_value(k, v)) for k, v in op.attributes.items()])
        encoded += text_field(4, op.instance)
        if op.kind:
            encoded += tag(5, 0) + varint(op.kind)
        self._primitives.append(encoded)
        field = self._ops[op] = text_field(s.NODE_OP, "REF::" + name)
        return field

    def _type(self, type_: Type) -> bytes:
        encoded = b"" if type_ == UNKNOWN else delimited(s.NODE_ATTRIBUTE, encode_type(type_, "shape"))
        self._types[id(type_)] = (type_, encoded)
        return encoded

    def _shared(self, marks: Mapping[str, Attribute]) -> bytes:
        encoded = b"".join([delimited(s.NODE_MARKS, _attribute(k, v)) for k, v in marks.items()])
        self._maps[id(marks)] = (marks, encoded)
        return encoded


def _attribute(name: str, value: Attribute) -> bytes:
    if value.__class__ is str:
        encoded = value.encode("utf-8", "surrogatepass")
        return _string(name) + varint(len(encoded)) + encoded + b"\x80\x01\x08"
    return encode_value(name, value)


@cache
def _string(name: str) -> bytes:
    """How an attribute that is a string begins."""
    return text_field(s.ATTRIBUTE_NAME, name) + tag(s.ATTRIBUTE_STRING)


def _size(chunks: Iterable[Chunk]) -> int:
    return sum([len(c) if isinstance(c, bytes) else c.nbytes for c in chunks])


def _put_notes(proto: Any, variable: StateVariable) -> None:
    info = variable.info
    with _suited(f"the notes on state '{variable.name}'"):
        proto.ref_key = str(info.get("ref_key", variable.name))
        proto.compression_type = int(info.get("compression_type", 0))
        for q in info.get("quant_params", ()):
            _parse(q, proto.quant_params.add())


def _parse(value: Any, message: Any) -> None:
    from google.protobuf import json_format

    try:
        json_format.ParseDict(value, message)
    except json_format.ParseError as error:
        raise ValueError(str(error)) from None


@contextmanager
def _suited(what: str) -> Iterator[None]:
    """VerifyError for what protobuf does not take for a field: notes of a text or a document may be anything."""
    try:
        yield
    except (TypeError, ValueError, AttributeError) as error:
        raise VerifyError(f"{what} cannot be written to MindIR: {error}") from None


def _message(number: int, chunks: list[Chunk]) -> list[Chunk]:
    return [tag(number) + varint(_size(chunks)), *chunks]


def _tensor(encoded: bytes, data: Data) -> list[Chunk]:
    """A serialized TensorProto, completed by its bytes."""
    return [encoded + tag(s.TENSOR_RAW) + varint(data.nbytes), data]


def _header(metadata: Mapping[str, Any]) -> tuple[bytes, bytes]:
    """The header's fields that stand before the graph in field order, and those after it."""
    before, after = s.ModelProto(), s.ModelProto()
    known = s.ModelProto.DESCRIPTOR.fields_by_name
    for key, value in {**DEFAULT_HEADER, **metadata}.items():
        if key in ("mind_ir_version", "little_endian") or key not in known:
            continue
        target = before if known[key].number < s.MODEL_GRAPH else after
        with _suited(f"the program's metadata '{key}'"):
            if key == "user_info":
                for k, v in value.items():
                    target.user_info.add(key=k, value=v)
            elif key in ("parallel", "preprocessor"):
                _parse(value, getattr(target, key))
            else:
                setattr(target, key, value)
    after.little_endian = True
    after.mind_ir_version = MIND_IR_VERSION
    return tuple(bytes(m.SerializeToString(deterministic=True)) for m in (before, after))  # type: ignore[return-value]
