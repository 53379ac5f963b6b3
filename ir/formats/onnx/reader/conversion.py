"""Walks the nodes of a model: folds what is constant, asks the rules for the rest."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Any

from ....core.attributes import MonadValue
from ....core.errors import Error, FormatError
from ....core.graph import Graph, Value, tensor_type
from ....core.naming import UniqueNames
from ....core.program import StateVariable
from ....core.types import UMONAD, TensorType
from ....core.wording import agreed, counted
from ..operators import CLASS, Unsupported, listed
from .call import Call, Item, Weight
from .emitter import Emitter
from .folding import fold, result_types
from .functions import defaults
from .table import FOLDED_ONLY, RULES
from .tensors import Tensors

_UNSAFE = re.compile(r"[^A-Za-z0-9_.\-/]")
_RANDOM = frozenset(("RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike", "Bernoulli",
                     "Multinomial"))  # fmt: skip


def safe_name(name: str, otherwise: str) -> str:
    """A name that every format holds: what is no letter, digit or one of ``_.-/`` becomes an underscore."""
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
            item.value = self.emitter.emit("Load", [state, self._token], item.type, kind=CLASS)
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
            several = len(self._loads) > 1
            loads = self.emitter.tuple_of(self._loads) if several else self._loads[0]
            token = self.emitter.emit("UpdateState", [self._token, loads], UMONAD, kind=CLASS)
            result = self.emitter.emit("Depend", [result, token], result.type, kind=CLASS)
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
        if node.op_type != "Constant" and node.op_type not in RULES and node.op_type not in FOLDED_ONLY:
            raise Unsupported("no rule for this operator")
        if any(name in self.unknown for name in node.input if name):
            self.unknown.update(node.output)
            return
        inputs: list[Any] = [self._find(name, where) if name else None for name in node.input]
        if node.op_type == "Constant":
            results: Any = self._constant(node, where)
        elif node.op_type == "If":
            results = self._if(node, inputs)
            if results is None:
                return
        else:
            varies = node.op_type in _RANDOM or any(isinstance(item, (Value, Weight)) for item in inputs)
            types = result_types(node, inputs, self.opset, strict=varies)
            if varies:
                if node.op_type not in RULES:
                    raise Unsupported("its inputs are computed at run time and must be constant")
                attributes = defaults(node.op_type, self.opset) | {a.name: a for a in node.attribute}
                values = {name: _plain(attribute) for name, attribute in attributes.items()}
                call = Call(node, values, inputs, types, self.emitter, self.use)
                results = RULES[node.op_type](call)
            else:
                results = fold(node, inputs, types, self.opset)
            results = results if isinstance(results, (list, tuple)) else [results]
            self._compare(node, types, results)
        for name, item in zip(node.output, [*results, *[None] * len(node.output)], strict=False):
            if name and item is None:
                raise Unsupported(f"its output '{name}'")
            self.items[name] = item

    def _compare(self, node: Any, types: Sequence[TensorType | None], results: Sequence[Item | None]) -> None:
        """FormatError where a result has another type than ONNX says."""
        for name, found, item in zip(node.output, types, results, strict=False):
            if name and found is not None and isinstance(item, Value):
                own = tensor_type(item)
                same = len(own.shape) == len(found.shape) and all(
                    f in (-1, d) for d, f in zip(own.shape, found.shape, strict=True)
                )
                if own.dtype is not found.dtype or not same:
                    raise FormatError(f"its output '{name}' is {own} here, ONNX says {found}")

    def _constant(self, node: Any, where: str) -> Any:
        import numpy as np

        (attribute,) = node.attribute
        if attribute.name == "value":
            return [self.tensors.array(attribute.t, where)]
        if attribute.name == "sparse_value" or "string" in attribute.name:
            raise Unsupported("a sparse tensor or strings")
        value = _plain(attribute)
        return [np.array(value, np.float32 if "float" in attribute.name else np.int64)]

    def _if(self, node: Any, inputs: Sequence[Item | None]) -> list[Item] | None:
        """The branch that the condition chooses; it must be known now."""
        (condition,) = inputs
        if isinstance(condition, (Value, Weight)):
            raise Unsupported("its condition is computed at run time")
        name = "then_branch" if bool(condition.reshape(-1)[0]) else "else_branch"  # type: ignore[union-attr]
        (branch,) = (a.g for a in node.attribute if a.name == name)
        self.constants(branch.initializer)
        self.nodes(branch.node)
        if any(output.name in self.unknown for output in branch.output):
            self.unknown.update(node.output)
            return None
        return [self._find(output.name, f"{name} of If") for output in branch.output]

    def constants(self, protos: Iterable[Any]) -> None:
        """Initializers: floating-point tensors with axes become weights where they are used, others are constants."""
        import numpy as np

        for proto in protos:
            what = f"initializer '{proto.name}'"
            type_, data = self.tensors.read(proto, what)
            weight = Weight(proto.name, type_, data)
            if type_.dtype.is_float and type_.shape and type_.size:
                with np.errstate(all="ignore"):
                    finite = type_.dtype.value == "bfloat16" or bool(np.isfinite(weight.array).all())
                if finite:
                    self.items[proto.name] = weight
                    continue
            self.items[proto.name] = weight.array


def _plain(attribute: Any) -> Any:
    """An attribute as Python has it; strings decoded."""
    from onnx import helper

    value = helper.get_attribute_value(attribute)
    if isinstance(value, bytes):
        return value.decode("utf-8", "replace")
    if attribute.type in (attribute.INTS, attribute.FLOATS):
        return list(value)
    if attribute.type == attribute.STRINGS:
        return [v.decode("utf-8", "replace") for v in value]
    return value
