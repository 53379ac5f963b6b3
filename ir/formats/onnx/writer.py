"""One graph as an ONNX model, for viewers. MindSpore's primitives stand in a domain of their own, :data:`DOMAIN`, so no
ONNX runtime can execute the model, and none is meant to.

State and constant tensors are initializers: the small ones in the model, the bytes of the large ones in a file beside
it (ONNX's external data), where all that start from zero share one stretch of zeros. Constant operands that are no
tensors are attributes (``operand_2``). Functions are model-local functions. What has no tensor type (tokens, tuples,
closures) has no type in the model but the one noted with its node, under ``metadata_props``, as are scope, part and
pass.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from ...analysis.functions.calls import targets
from ...core.attributes import Number, TensorValue
from ...core.data import Data, ZeroData
from ...core.graph import Constant, Graph, GraphRef, Node, State, Value
from ...core.naming import UniqueNames
from ...core.op import CALL
from ...core.program import StateVariable
from ...core.types import DType, TensorType, Type
from ...files.atomic import replacing_file
from ...files.disk_space import check_room
from ...text.spelling import Spelling
from .vocabulary import NUMBERS

DOMAIN = "mindspore"
FUNCTIONS = "functions"
"""The domain of the program's own functions."""
OPSET = 1
INLINE = 1024
"""Bytes up to which a tensor stands in the model itself."""
Notes = Callable[[Node], Mapping[str, str]]


def write_onnx(path: Path, graph: Graph, state: Mapping[str, StateVariable], notes: Notes, producer: str) -> None:
    """Writes ``path``, and ``path`` + ``.data`` if there are large tensors. ``notes``: more to say of a node."""
    check_room(path, [variable.data for variable in state.values()])
    external = _External(path.with_name(path.name + ".data"))
    model = _Writer(graph, state, notes, external).model(producer)
    external.write()
    with replacing_file(path) as stream:
        stream.write(model.SerializeToString())


class _External:
    """The bytes of large tensors, in the order in which they stand in the file."""

    def __init__(self, path: Path):
        self.path = path
        self.pieces: list[Data] = []
        self.size = 0
        self.zeros = 0

    def place(self, data: Data) -> tuple[int, int]:
        """Offset and length. Zeros stand in front, as many as the largest that needs them; so their size must be known
        before any other is placed (:meth:`reserve`)."""
        if isinstance(data, ZeroData):
            return 0, data.nbytes
        at = self.size
        self.pieces.append(data)
        self.size += math.ceil(data.nbytes / 64) * 64
        return at, data.nbytes

    def reserve(self, zeros: int) -> None:
        self.zeros = self.size = math.ceil(zeros / 64) * 64

    def write(self) -> None:
        if not self.size:
            return
        with replacing_file(self.path) as stream:
            ZeroData(self.zeros).write_to(stream)
            for piece in self.pieces:
                stream.write(piece.view())
                stream.write(bytes(-piece.nbytes % 64))


class _Writer:
    def __init__(self, graph: Graph, state: Mapping[str, StateVariable], notes: Notes, external: _External) -> None:
        import onnx

        self.onnx = onnx
        self.graph = graph
        self.state = state
        self.notes = notes
        self.external = external
        self.spell = Spelling()
        self.names: dict[Value, str] = {}
        self.unique = UniqueNames()
        self.constants: set[Constant] = set()
        """Those that the body at hand has defined."""

    def model(self, producer: str) -> Any:
        data = [self.state[s].data for s in self.graph.states if s in self.state]
        zeros = (d.nbytes for d in data if isinstance(d, ZeroData) and d.nbytes > INLINE)
        self.external.reserve(max(zeros, default=0))
        made = self.onnx.ModelProto(ir_version=10, producer_name="boost-compile", producer_version=producer)
        made.opset_import.add(domain=DOMAIN, version=OPSET)
        made.opset_import.add(domain="", version=21)
        if self.graph.functions:
            made.opset_import.add(domain=FUNCTIONS, version=OPSET)
        proto = made.graph
        proto.name = self.graph.name
        for state in self.graph.states.values():
            self._initializer(proto, state)
        for value in self.graph.inputs:
            self._input(proto, value)
        self._nodes(proto.node, self.graph, proto.initializer, proto.value_info)
        self._outputs(proto)
        for name, function in self.graph.functions.items():
            self._function(made.functions.add(), name, function)
        return made

    def _name(self, value: Value) -> str:
        name = self.names.get(value)
        if name is None:
            name = self.names[value] = self.unique.claim(value.name or "value")
        return name

    # -- values ------------------------------------------------------------------------------------------------

    def _input(self, proto: Any, value: Value) -> None:
        if isinstance(value.type, TensorType):
            self._describe(proto.input.add(), self._name(value), value.type)
        else:
            # A graph's inputs must have a type, and ONNX has none for this one.
            node = proto.node.add(op_type="Input", domain=DOMAIN, name=self._name(value), output=[self._name(value)])
            node.metadata_props.add(key="type", value=str(value.type))

    def _describe(self, info: Any, name: str, type_: TensorType) -> None:
        info.name = name
        tensor = info.type.tensor_type
        tensor.elem_type = NUMBERS[type_.dtype]
        if -2 in type_.shape:
            return
        tensor.shape.SetInParent()
        for i, size in enumerate(type_.shape):
            dimension = tensor.shape.dim.add()
            if size < 0:
                dimension.dim_param = f"{name}_{i}"
            else:
                dimension.dim_value = size

    def _initializer(self, proto: Any, state: State) -> None:
        variable = self.state.get(state.name)
        if variable is None:
            self._input(proto, state)
            return
        tensor = proto.initializer.add()
        self._tensor(tensor, self._name(state), variable.type, variable.data)
        tensor.doc_string = f"state, {variable.role}"

    def _tensor(self, tensor: Any, name: str, type_: TensorType, data: Data) -> None:
        tensor.name = name
        tensor.data_type = NUMBERS[type_.dtype]
        tensor.dims.extend(type_.shape)
        if type_.dtype is DType.STRING:
            tensor.string_data.extend([b""] * type_.size)
        elif data.nbytes <= INLINE:
            tensor.raw_data = bytes(data.view())
        else:
            offset, length = self.external.place(data)
            tensor.data_location = tensor.EXTERNAL
            for key, value in (("location", self.external.path.name), ("offset", offset), ("length", length)):
                tensor.external_data.add(key=key, value=str(value))

    def _outputs(self, proto: Any) -> None:
        if not self.graph.has_result:
            return
        result = self.graph.result
        names = self.graph.outputs
        values = list(result._operands) if isinstance(result, Node) and result.op.name == "MakeTuple" else [result]
        for i, value in enumerate(values):
            made = proto.node.add(op_type="Return", domain=DOMAIN, input=[self._operand(value, proto.node, None)])
            name = self.unique.claim(names[i] if len(names) == len(values) else f"result.{i}")
            made.name = name
            made.output.append(name)
            if isinstance(value.type, TensorType):
                self._describe(proto.output.add(), name, value.type)
            else:
                self._untyped(proto.output.add(), name, value.type)

    def _untyped(self, info: Any, name: str, type_: Type) -> None:
        """A graph's outputs must have a type: a tuple is given as a sequence of its first element's kind."""
        info.name = name
        info.type.sequence_type.elem_type.tensor_type.elem_type = 1
        info.doc_string = str(type_)

    # -- nodes -------------------------------------------------------------------------------------------------

    def _nodes(self, into: Any, body: Graph, initializers: Any, infos: Any) -> None:
        for node in body:
            called = self._called(node)
            plain: dict[str, Any] = {}
            inputs: list[str] = []
            for i, value in enumerate(node._operands[1:] if called else node._operands):
                if called or not _is_plain(value):
                    inputs.append(self._operand(value, into, initializers))
                else:  # not a tensor: an attribute, and the input's place stays empty
                    inputs.append("")
                    plain[f"operand_{i}"] = value.graph.name if isinstance(value, GraphRef) else value.literal
            while inputs and not inputs[-1]:
                inputs.pop()
            made = into.add(name=self._name(node), input=inputs, output=[self._name(node)])
            made.op_type, made.domain = (called, FUNCTIONS) if called else (node.op.name, DOMAIN)
            for key, value in {**node.attributes, **plain}.items():
                self._attribute(made, key, value)
            for key, text in self._notes(node).items():
                made.metadata_props.add(key=key, value=text)
            if isinstance(node.type, TensorType):
                self._describe(infos.add(), self._name(node), node.type)

    def _called(self, node: Node) -> str:
        """The function that a call enters directly; empty for closures, which ONNX cannot call."""
        reached = targets(node) if node.op is CALL and isinstance(node.operand(0), GraphRef) else None
        return reached[0].function.name if reached else ""

    def _operand(self, value: Value, into: Any, initializers: Any) -> str:
        name = self._name(value)
        if not isinstance(value, Constant) or value in self.constants:
            return name
        self.constants.add(value)
        if isinstance(value.value, TensorValue) and initializers is not None:
            self._tensor(initializers.add(), name, value.value.type, value.value.data)
        else:
            made = into.add(op_type="Constant", domain=DOMAIN, name=name, output=[name])
            if isinstance(value.value, TensorValue):
                tensor = self.onnx.TensorProto()
                self._tensor(tensor, name, value.value.type, value.value.data)
                made.attribute.append(self.onnx.helper.make_attribute("value", tensor))
            else:
                self._attribute(made, "value", value.value)
        return name

    def _attribute(self, made: Any, key: str, value: Any) -> None:
        """As ONNX's own kinds where they hold the value, else as the text form spells it."""
        helper = self.onnx.helper
        if isinstance(value, Number):
            value = value.value
        if isinstance(value, bool):
            value = int(value)
        whole = isinstance(value, int) and abs(value) < 2**63
        if whole or isinstance(value, (float, str, bytes)) or _is_uniform(value):
            made.attribute.append(helper.make_attribute(key, list(value) if isinstance(value, tuple) else value))
        else:
            made.attribute.append(helper.make_attribute(key, self.spell.value(value)))

    def _notes(self, node: Node) -> dict[str, str]:
        notes = {"scope": node.scope, "type": str(node.type)}
        if node.origin:
            notes |= {"passes": ", ".join(node.origin.passes), "sources": ", ".join(node.origin.sources)}
        return {key: text for key, text in {**notes, **self.notes(node)}.items() if text}

    # -- functions ---------------------------------------------------------------------------------------------

    def _function(self, made: Any, name: str, function: Graph) -> None:
        made.name, made.domain = name, FUNCTIONS
        self.constants = set()
        made.opset_import.add(domain=DOMAIN, version=OPSET)
        made.opset_import.add(domain=FUNCTIONS, version=OPSET)
        made.input.extend(self._name(v) for v in function.inputs)
        for state in function.states.values():
            node = made.node.add(op_type="State", domain=DOMAIN, name=self._name(state), output=[self._name(state)])
            self._attribute(node, "state", state.name)
        self._nodes(made.node, function, None, made.value_info)
        if function.has_result:
            made.output.append(self._operand(function.result, made.node, None))


def _is_plain(value: Value) -> bool:
    return isinstance(value, GraphRef) or (isinstance(value, Constant) and not isinstance(value.value, TensorValue))


def _is_uniform(value: Any) -> bool:
    """Whether a sequence is one of ONNX's: integers, floats or strings alone."""
    if not isinstance(value, (tuple, list)) or not value:
        return False
    kinds = {type(v) for v in value}
    return kinds in ({float}, {str}) or (kinds == {int} and all(abs(v) < 2**63 for v in value))
