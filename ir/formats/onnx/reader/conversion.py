"""Walks the nodes of a model: computes what is constant, asks the rules for the rest."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from ....core.attributes import MonadValue
from ....core.errors import Error, FormatError
from ....core.graph import Graph, Value, tensor_type
from ....core.naming import UniqueNames
from ....core.program import StateVariable
from ....core.types import UMONAD, TensorType
from ....core.wording import agreed, counted
from ....verify.graph import agree
from ...mindir.codec import NUMBERS
from ..call import Call, Item, Weight, type_of
from ..emitter import Emitter
from ..operators import Unsupported, listed
from ..table import FOLDED_ONLY, READ
from .functions import defaults
from .tensors import Tensors, declared_type

LIMIT = 1 << 26
"""Elements of the largest constant that is computed: a hostile file asks for more than there is memory."""
_SHOWN = 1024
"""Elements up to which an input's values are shown to shape inference."""
_UNSAFE = re.compile(r"[^A-Za-z0-9_.\-/]")


def safe_name(name: str, otherwise: str) -> str:
    """A name that every format holds: what is not a letter, digit or one of ``_.-/`` becomes an underscore."""
    return _UNSAFE.sub("_", name[:200]).strip("/") or otherwise


class Conversion:
    """One model on its way into ``graph``."""

    def __init__(self, graph: Graph, opset: int, tensors: Tensors):
        self.graph = graph
        self.opset = opset
        self.tensors = tensors
        self.emitter = Emitter(graph)
        self.items: dict[str, Item] = {}
        self.unknown: set[str] = set()
        """Names that an unsupported node should have given."""
        self.unsupported: list[str] = []
        self.state: dict[str, StateVariable] = {}
        self._names = UniqueNames()
        self._loads: list[Value] = []
        self._token = graph.constant(MonadValue("umonad"), "u")

    # -- items ---------------------------------------------------------------------------------------------------------

    def constants(self, protos: Iterable[Any]) -> None:
        """Initializers: floating-point tensors with axes become weights where they are used, others are constants."""
        for proto in protos:
            type_, data = self.tensors.read(proto, f"initializer '{proto.name}'")
            weight = Weight(proto.name, type_, data)
            learned = type_.dtype.is_float and type_.shape and type_.size
            if learned and type_.dtype.value != "bfloat16":
                with np.errstate(all="ignore"):
                    learned = np.isfinite(weight.array).all()
            self.items[proto.name] = weight if learned else weight.array

    def use(self, item: Item, learned: bool = False) -> Value:
        """A value of the graph: a weight, loaded once; a constant, as one number is unless ``learned`` (a bias)."""
        if isinstance(item, Value):
            return item
        if not isinstance(item, Weight):
            return self.emitter.constant(item)
        if item.value is None and item.type.size == 1 and not learned:
            return self.emitter.constant(item.array)
        if item.value is None:
            name = self._names.claim(safe_name(item.name, "weight"))
            variable = self.state[name] = StateVariable(name, item.type, item.data)
            state = self.graph.state(name, TensorType(item.type.dtype, item.type.shape, ref=name))
            item.value = self.emitter.emit("Load", [state, self._token], item.type)
            self._loads.append(item.value)
            variable.trainable = not item.is_statistic
            variable.role = "statistic" if item.is_statistic else "weight"
        return item.value

    def finish(self, outputs: Sequence[str]) -> None:
        """Sets the graph's result, behind the loads of the state as an export has them."""
        if self.unsupported:
            raise Error(
                f"{counted(len(self.unsupported), 'node')} of the model "
                f"{agreed(len(self.unsupported), 'has', 'have')} no translation to MindSpore's primitives:"
                f"{listed(self.unsupported)}\n"
                "  Export the model without them, or replace them with operators that docs/onnx.md lists."
            )
        values = [self.use(self._find(name, "the model's results")) for name in outputs]
        result: Value = values[0] if len(values) == 1 else self.emitter.tuple_of(values)
        self.emitter.scope = "Default"
        if self._loads:
            loads = self.emitter.tuple_of(self._loads) if len(self._loads) > 1 else self._loads[0]
            token = self.emitter.emit("UpdateState", [self._token, loads], UMONAD)
            result = self.emitter.emit("Depend", [result, token], result.type)
        self.graph.result = result

    def _find(self, name: str, where: str) -> Item:
        if name not in self.items:
            raise FormatError(f"{where}: '{name}' is not defined before it is used")
        return self.items[name]

    # -- nodes ---------------------------------------------------------------------------------------------------------

    def nodes(self, protos: Iterable[Any]) -> None:
        for node in protos:
            where = f"{node.op_type} '{node.name or ', '.join(node.output)}'"
            self.emitter.scope = "Default/" + safe_name(node.name, node.op_type)
            try:
                self._node(node, where)
            except Unsupported as error:
                self.unsupported.append(f"{where}: {error}")
                self.unknown.update(node.output)
            except FormatError as error:
                said = str(error)
                raise FormatError(said if said.startswith(where) else f"{where}: {said}") from None
            except (Error, RecursionError, MemoryError) as error:
                raise FormatError(f"{where}: {error or type(error).__name__}") from None
            except (LookupError, TypeError, ValueError, AttributeError, ArithmeticError, AssertionError) as error:
                # The rules take a node to be as its operator's definition says.
                raise FormatError(f"{where}: not as ONNX defines the operator ({error})") from None

    def _node(self, node: Any, where: str) -> None:
        if node.domain not in ("", "ai.onnx"):
            raise Unsupported(f"domain '{node.domain}'")
        if node.op_type not in READ and node.op_type not in FOLDED_ONLY:
            raise Unsupported("no rule for this operator")
        if self.unknown.intersection(filter(None, node.input)):
            self.unknown.update(node.output)
            return
        inputs = [self._find(name, where) if name else None for name in node.input]
        results: Sequence[Item | None]
        if node.op_type == "If":
            results = self._if(node, inputs)
        elif node.op_type == "Constant" and node.attribute[0].name == "value":
            results = [self.tensors.array(node.attribute[0].t, where)]
        elif node.op_type == "Constant" and re.search("string|sparse", node.attribute[0].name):
            raise Unsupported("a sparse tensor or strings")
        else:
            results = self._computed(node, inputs)
        for name, item in zip(node.output, [*results, *[None] * len(node.output)], strict=False):
            if name and name not in self.unknown:
                if item is None:
                    raise Unsupported(f"its output '{name}'")
                self.items[name] = item

    def _computed(self, node: Any, inputs: Sequence[Item | None]) -> Sequence[Item | None]:
        varies = any(isinstance(item, (Value, Weight)) for item in inputs)
        types = self._result_types(node, inputs, strict=varies)
        if not varies:
            return self._folded(node, inputs, types)
        if node.op_type not in READ:
            raise Unsupported("its inputs are computed at run time and must be constant")
        attributes = defaults(node.op_type, self.opset) | {a.name: a for a in node.attribute}
        values = {name: _plain(attribute) for name, attribute in attributes.items()}
        results = READ[node.op_type](Call(node, values, inputs, types, self.emitter, self.use))
        results = results if isinstance(results, (list, tuple)) else [results]
        for name, found, item in zip(node.output, types, results, strict=False):
            if name and found is not None and isinstance(item, Value) and not agree(tensor_type(item), found):
                raise FormatError(f"its output '{name}' is {tensor_type(item)} here, ONNX says {found}")
        return results

    def _result_types(self, node: Any, inputs: Sequence[Item | None], strict: bool) -> list[TensorType | None]:
        """None for what inference does not know, or what MindSpore has no type for. FormatError, if ``strict``, where
        the inputs do not fit the operator."""
        from onnx import defs, helper, numpy_helper, shape_inference

        types, data = {}, {}
        for name, item in zip(node.input, inputs, strict=True):
            if item is not None:
                type_ = type_of(item)
                types[name] = helper.make_tensor_type_proto(NUMBERS[type_.dtype], type_.shape)
                if not isinstance(item, Value) and type_.size <= _SHOWN:
                    data[name] = numpy_helper.from_array(item.array if isinstance(item, Weight) else item, name)
        opsets = [helper.make_opsetid("", self.opset)]
        try:
            schema = defs.get_schema(node.op_type, self.opset)
            found = shape_inference.infer_node_outputs(schema, node, types, data, opset_imports=opsets)
        except Exception as error:  # a C++ exception of several kinds
            if strict:
                raise FormatError(f"the shape of its result cannot be told: {error}") from None
            return [None] * len(node.output)
        return [declared_type(found[name]) if name in found else None for name in node.output]

    def _folded(self, node: Any, inputs: Sequence[Any], types: Sequence[TensorType | None]) -> list[np.ndarray | None]:
        """The outputs of a node all of whose inputs are known. FormatError where it cannot be evaluated."""
        from onnx import helper
        from onnx.reference import ReferenceEvaluator

        for type_ in types:
            if type_ is not None and type_.size > LIMIT:
                shape = list(type_.shape)
                raise FormatError(f"{node.op_type} makes a constant of shape {shape}, more than {LIMIT} elements")
        feeds = {name: array for name, array in zip(node.input, inputs, strict=True) if array is not None}
        infos = [helper.make_tensor_value_info(n, NUMBERS[type_of(a).dtype], a.shape) for n, a in feeds.items()]
        results = [helper.make_empty_tensor_value_info(name) for name in node.output if name]
        try:
            graph = helper.make_graph([node], "constant", infos, results)
            model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", self.opset)])
            found = iter(ReferenceEvaluator(model).run(None, feeds))
            return [np.asarray(next(found)) if name else None for name in node.output]
        except NotImplementedError as error:
            raise Unsupported(f"the onnx package cannot evaluate it: {error}") from None
        except (Exception, SystemError) as error:
            raise FormatError(f"it cannot be evaluated: {error}") from None

    def _if(self, node: Any, inputs: Sequence[Any]) -> list[Item]:
        """The branch that the condition chooses; it must be known now."""
        (condition,) = inputs
        if isinstance(condition, (Value, Weight)):
            raise Unsupported("its condition is computed at run time")
        name = "then_branch" if bool(condition.reshape(-1)[0]) else "else_branch"
        (branch,) = (a.g for a in node.attribute if a.name == name)
        self.constants(branch.initializer)
        self.nodes(branch.node)
        if self.unknown.intersection(output.name for output in branch.output):
            self.unknown.update(node.output)
            return []
        return [self._find(output.name, f"{name} of If") for output in branch.output]


def _plain(attribute: Any) -> Any:
    """An attribute as Python has it; strings decoded."""
    from onnx import helper

    value = helper.get_attribute_value(attribute)
    if isinstance(value, bytes):
        return value.decode("utf-8", "replace")
    if attribute.type == attribute.STRINGS:
        return [v.decode("utf-8", "replace") for v in value]
    return list(value) if attribute.type in (attribute.INTS, attribute.FLOATS) else value
