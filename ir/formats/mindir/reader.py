"""Reads a MindIR file into a program.

The file is mapped and walked message by message: a node is parsed, turned into a value and forgotten, and bytes of
state and large constants stay in the file. Cost: linear in nodes and operands, whatever order the nodes stand in.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any

from google.protobuf.message import DecodeError, EncodeError

from ...analysis.training.results import default_names
from ...core.collector import paused_collector
from ...core.data import HeldFile, MappedFile
from ...core.errors import FormatError, VerifyError
from ...core.graph import Constant, Graph, Node, State, Value
from ...core.naming import printable
from ...core.op import CALL, Op
from ...core.program import Entry, Program, Schedule, StateVariable
from ...core.types import UNKNOWN, TensorType, Type
from ...core.wording import counted
from . import schema as s
from .codec import decode_value
from .decoder import Decoder
from .external import DataFiles
from .nodes import LARGE, raw_node
from .parameters import read_parameter
from .parts import Parts, divided, text
from .sniff import EXPORT_HINT, describe, encryption
from .source import hashing, map_file
from .wire import SMALL, elide

KNOWN_VERSIONS = (1, 2, 3)
_REF = b"REF::"
"""How an op_type begins that names a primitive of the table, or the value that is called."""


def read_mindir(path: str | os.PathLike[str]) -> Program:
    """The program in a MindIR file: one graph, ``step``; its functions; its parameters as state, in file order.

    ``metadata`` holds the header fields; ``source`` the file's name and the sha256 of its bytes (computed beside the
    reading, about 0.7 ms a megabyte). The graph's name in the file, if it is another, is ``graph.info["name"]``; state
    bytes stay mapped.
    Raises FormatError, with path, place and remedy, for whatever is no complete, unencrypted, little-endian MindIR.
    """
    file = map_file(path)
    with hashing(file) as digest:
        reader = Reader(file)
        graph = reader.read()
    return Program(
        graphs={"step": graph},
        state=reader.state,
        schedule=Schedule((Entry("step"),)),
        name=file.path.stem,
        metadata=reader.metadata,
        source={"file": file.path.name, "sha256": digest[0]},
        file=file,
    )


def read_bytes(data: bytes, name: str) -> Program:
    """The program in a MindIR that stands in memory; ``name`` is what messages call it."""
    reader = Reader(HeldFile(data, name))
    graph = reader.read()
    return Program({"step": graph}, reader.state, Schedule((Entry("step"),)), name, metadata=reader.metadata)


def read_stateless(path: str | os.PathLike[str], name: str, states: Mapping[str, TensorType]) -> Graph:
    """The graph of a file whose last inputs stand for these states, in this order."""
    reader = Reader(map_file(path), name, list(states.items()))
    graph = reader.read()
    if reader.state:
        raise FormatError(f"{path}: a graph of a program holds no parameters, this one has {len(reader.state)}")
    return graph


class Reader:
    """One reading of a file. ``name``: the graph's; ``states``: names and types of the last inputs, which are state."""

    def __init__(self, file: MappedFile, name: str = "step", states: Sequence[tuple[str, TensorType]] = ()):
        self.path = file.path
        self.file = file
        self.view = file.view()
        self.state: dict[str, StateVariable] = {}
        self.metadata: dict[str, Any] = {}
        self._name = name
        self._inputs_as_state = states
        self._data = DataFiles(file.path.parent)
        self._ops: dict[bytes, Op] = {}
        """Primitives by the op_type of a node that applies them."""
        self._main: Graph
        self._parameters: dict[str, State] = {}
        self._constants: dict[str, Constant] = {}
        self._functions: dict[str, Graph] = {}
        self._pending: list[tuple[Graph, dict[str, Value], Node, list[str]]] = []
        self._unsorted: list[Graph] = []
        self._decoder = Decoder(file)
        self._scopes: dict[bytes, str] = {}

    def read(self) -> Graph:
        head = bytes(self.view[:4096])
        mode = encryption(head)
        if mode:
            raise FormatError(
                f"{self.path}: an encrypted MindIR ({mode}), which cannot be rewritten; "
                "export it again without enc_key and enc_mode"
            )
        try:
            with paused_collector():
                return self._model()
        except (DecodeError, EncodeError, UnicodeDecodeError) as error:
            raise FormatError(f"{self.path}: {self._damage(head)} ({printable(str(error))})") from None
        except FormatError as error:
            said = str(error)
            if describe(head):
                said = self._damage(head)
            elif said.startswith("byte "):
                said = f"{self._damage(head)} ({said})"
            raise FormatError(f"{self.path}: {printable(said)}") from None

    def _damage(self, head: bytes) -> str:
        what = describe(head)
        if what:
            return f"not a MindIR; it seems to be {what}: {EXPORT_HINT}"
        if b"MindSpore" in head[:64]:
            return "a damaged or truncated MindIR: copy or export it again"
        return f"not a MindIR, or a damaged one: {EXPORT_HINT}"

    # -- the model ---------------------------------------------------------------------------------------------------

    def _model(self) -> Graph:
        view = self.view
        primitives: list[tuple[int, int]] = []
        graphs: list[tuple[int, int]] = []
        functions: list[tuple[int, int]] = []
        places = {s.MODEL_GRAPH: graphs, s.MODEL_FUNCTIONS: functions, s.MODEL_PRIMITIVES: primitives}
        self._header(divided(view, 0, len(view), places, s.MODEL_FIELDS, "the model"))
        if len(graphs) != 1:
            raise FormatError(f"the file holds {counted(len(graphs), 'main graph')}, not one; {EXPORT_HINT}")
        for a, b in primitives:
            self._primitive(a, b)
        main = Parts(view, *graphs[0])
        parts = [Parts(view, a, b) for a, b in functions]
        self._main = graph = Graph(self._name)
        if main.name != graph.name:
            graph.info["name"] = main.name
        for part in parts:
            if part.name in graph.functions or part.name == main.name:
                raise FormatError(f"two functions are named '{part.name}'")
            function = Graph(part.name, graph)
            graph.functions[part.name] = function
        self._functions = graph.functions
        self._graph(graph, main)
        for part in parts:
            self._graph(graph.functions[part.name], part)
        self._resolve_pending()
        graph.outputs = default_names(graph.result.type)
        return graph

    def _header(self, encoded: bytes) -> None:
        model = s.ModelProto.FromString(encoded)
        if model.HasField("little_endian") and not model.little_endian:
            raise FormatError("a big-endian MindIR; export it again on a little-endian machine")
        if model.mind_ir_version not in KNOWN_VERSIONS:
            shown = model.mind_ir_version if model.HasField("mind_ir_version") else "none"
            raise FormatError(f"MindIR version {shown}; versions {KNOWN_VERSIONS} are known: {EXPORT_HINT}")
        for field, value in model.ListFields():
            if field.name == "user_info":
                self.metadata["user_info"] = {text(e.key, "user_info"): text(e.value, "user_info") for e in value}
            elif field.name in ("parallel", "preprocessor"):
                from google.protobuf import json_format

                self.metadata[field.name] = json_format.MessageToDict(value, preserving_proto_field_name=True)
            else:
                self.metadata[field.name] = text(value, field.name) if field.cpp_type == field.CPPTYPE_STRING else value

    def _primitive(self, start: int, end: int) -> None:
        proto = s.PrimitiveProto.FromString(bytes(self.view[start:end]))
        name = text(proto.name, "primitive name")
        reference = _REF + name.encode()
        if reference in self._ops:
            raise FormatError(f"two primitives are named '{name}'")
        kind = proto.prim_type if proto.HasField("prim_type") else 0
        attributes = self._decoder.attributes(proto.attribute, f"primitive '{name}'")
        self._ops[reference] = Op(text(proto.op_type, name), attributes, text(proto.instance_name, name), kind)

    # -- a graph -----------------------------------------------------------------------------------------------------

    def _graph(self, graph: Graph, parts: Parts) -> None:
        prefix = parts.name + ":"
        env: dict[str, Value] = {}
        graph.info.update(parts.notes)
        graph.attributes.update(self._decoder.attributes(parts.attributes, f"graph '{parts.name}'"))
        self._inputs(graph, env, parts, prefix)
        for a, b in parts.parameters:
            self._parameter(graph, env, a, b, prefix)
        forward = self._nodes(graph, env, parts, prefix)
        if len(parts.outputs) != 1:
            raise FormatError(
                f"graph '{parts.name}' has {counted(len(parts.outputs), 'output')}, not one; {EXPORT_HINT}"
            )
        output = s.ValueInfoProto.FromString(bytes(self.view[slice(*parts.outputs[0])]))
        result = self._lookup(graph, env, text(output.name, "output name"))
        if result is None:
            raise FormatError(f"graph '{parts.name}' returns '{output.name}', which nothing in it defines")
        graph.result = result
        if forward:
            self._unsorted.append(graph)

    def _inputs(self, graph: Graph, env: dict[str, Value], parts: Parts, prefix: str) -> None:
        infos = [s.ValueInfoProto.FromString(bytes(self.view[a:b])) for a, b in parts.inputs]
        stateful = self._inputs_as_state if graph is self._main else ()
        if len(stateful) > len(infos):
            raise FormatError(
                f"the graph has {counted(len(infos), 'input')}, fewer than its {counted(len(stateful), 'state')}"
            )
        first_state = len(infos) - len(stateful)
        for i, info in enumerate(infos):
            full = text(info.name, "input name")
            name = full.removeprefix(prefix)
            type_ = self._decoder.value_info(info)
            value: Value
            if i < first_state:
                value = graph.add_input(name, type_)
            else:
                name, expected = stateful[i - first_state]
                if full.removeprefix(prefix) != name:
                    raise FormatError(f"input '{full}' stands where the program's state '{name}' should")
                if not isinstance(type_, TensorType) or (type_.dtype, type_.shape) != (expected.dtype, expected.shape):
                    raise FormatError(f"input '{full}' is {type_}, the program's state '{name}' is {expected}")
                value = graph.state(name, expected)
            if full in env:
                raise FormatError(f"two inputs of graph '{parts.name}' are named '{full}'")
            env[full] = value

    def _parameter(self, graph: Graph, env: dict[str, Value], start: int, end: int, prefix: str) -> None:
        if end - start < SMALL:  # less than an object that says where the bytes are
            message = bytes(self.view[start:end])
        else:
            message = elide(self.view, start, end, "tensor")
        proto = s.TensorProto.FromString(message)
        full = text(proto.name, "parameter name")
        name = full.removeprefix(prefix)
        if graph is not self._main:
            raise FormatError(
                f"parameter '{name}' belongs to function '{graph.name}'; only the main graph has parameters"
            )
        if full in env or name in self.state:
            raise FormatError(f"two parameters or inputs are named '{name}'")
        variable = self.state[name] = read_parameter(proto, name, self.file, self._data)
        variable.type = self._decoder.intern(variable.type)
        env[full] = self._parameters[full] = graph.state(name, variable.type)

    def _nodes(self, graph: Graph, env: dict[str, Value], parts: Parts, prefix: str) -> bool:
        """Reads the nodes; whether some operand stood after its user."""
        view, cut = self.view, len(prefix)
        ops, scopes, decoder = self._ops, self._scopes, self._decoder
        node_type = decoder.node_type
        forward = False
        for start, end in parts.nodes:
            inputs, outputs, op_type, domain, attributes, marks, primal = raw_node(view, start, end)
            if len(outputs) != 1:
                raise FormatError(
                    f"a node of graph '{parts.name}' has {counted(len(outputs), 'output')}, not one; {EXPORT_HINT}"
                )
            full = outputs[0].decode()
            if full in env:
                raise FormatError(f"'{full}' is defined twice in graph '{parts.name}'")
            large = end - start > LARGE
            if op_type == b"Constant":
                self._constant(graph, env, attributes, full, prefix, large)
                continue
            type_: Type = UNKNOWN
            extra: list[bytes] = []
            for encoded in attributes:
                known = node_type(encoded)
                if known is None:
                    extra.append(encoded)
                else:
                    type_ = known
            names = [name.decode() for name in inputs]
            op = ops.get(op_type)
            if op is None:
                op = self._op(op_type, full)
                if op is CALL:
                    names.insert(0, op_type[len(_REF) :].decode())
            if extra:
                op = Op(op.name, {**op.attributes, **decoder.encoded(extra, full, large)}, op.instance, op.kind)
            scope = scopes.get(domain)
            if scope is None:
                scope = scopes[domain] = domain.decode()
            node = Node(full[cut:] if full[:cut] == prefix else full, type_, op, scope)
            if marks:
                node.marks = decoder.shared(marks, full, large)
            if primal:
                node.primal = decoder.primal(primal, full, large)
            graph.insert(node)
            try:
                node.set_operands([env[n] for n in names])
            except KeyError:
                found = [self._lookup(graph, env, n) for n in names]
                if None in found:
                    self._pending.append((graph, env, node, names))
                    forward = True
                else:
                    node.set_operands(found)  # type: ignore[arg-type]
            env[full] = node
        return forward

    def _op(self, op_type: bytes, full: str) -> Op:
        """The op for an op_type that names no primitive of the table: a call, or a primitive without attributes."""
        if op_type.startswith(_REF):
            return CALL
        if not op_type:
            raise FormatError(f"node '{full}' has no op_type")
        return Op(op_type.decode())

    def _constant(
        self, graph: Graph, env: dict[str, Value], attributes: list[bytes], full: str, prefix: str, large: bool
    ) -> None:
        protos = [s.AttributeProto.FromString(encoded) for encoded in attributes]
        names = [a.name for a in protos]
        if names != ["value"]:
            raise FormatError(f"constant '{full}' has the attributes {names}, not one 'value'")
        value = self._decoder.large_value(protos[0]) if large else decode_value(protos[0])
        constant = Constant(full.removeprefix(prefix), value)
        constant.type = self._decoder.intern(constant.type)
        env[full] = constant
        self._constants.setdefault(full, constant)
        graph.adopt(constant)

    def _lookup(self, graph: Graph, env: dict[str, Value], name: str) -> Value | None:
        """The value that ``name`` stands for in ``graph``; None if it is not defined (yet)."""
        value = env.get(name)
        if value is not None:
            return value
        function = self._functions.get(name)
        if function is not None:
            value = graph.reference(function)
        elif name in self._constants:
            shared = self._constants[name]
            value = graph.adopt(Constant(shared.name, shared.value, shared.type))
        elif name in self._parameters:
            parameter = self._parameters[name]
            value = graph.state(parameter.name, parameter.type)
        else:
            return None
        env[name] = value
        return value

    def _resolve_pending(self) -> None:
        for graph, env, node, names in self._pending:
            operands: list[Value] = []
            for name in names:
                value = self._lookup(graph, env, name)
                if value is None:
                    raise FormatError(
                        f"graph '{graph.name}', node '{node.name}': '{name}' is defined nowhere in this graph; "
                        f"the file is damaged or holds only a part of a model: {EXPORT_HINT}"
                    )
                operands.append(value)
            node.set_operands(operands)
        for graph in self._unsorted:
            try:
                graph.sort()
            except VerifyError as error:
                raise FormatError(f"the nodes form a cycle ({error}); the file is damaged: {EXPORT_HINT}") from None
