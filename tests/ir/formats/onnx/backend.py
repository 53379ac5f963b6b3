"""ONNX's own tests of single operators, as the onnx package ships them, run through the reader and MindSpore."""

from __future__ import annotations

import importlib
import re
import warnings
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from boost_compile.ir.analysis.effects.state_access import state_behind
from boost_compile.ir.core.data import to_numpy
from boost_compile.ir.core.errors import Error, RuntimeFailure
from boost_compile.ir.core.graph import Constant, Node
from boost_compile.ir.core.walk import result_value
from boost_compile.ir.formats.onnx.operators import OPSET
from boost_compile.ir.formats.onnx.reader.functions import inlined, without_functions
from boost_compile.ir.formats.onnx.reader.model import newer
from boost_compile.ir.formats.onnx.table import FOLDED_ONLY, READ

import boost_compile as bc
from tests.forward import Results

OLDEST = 11
OPEN = "run time"
"""Part of what the reader says where MindSpore wants a constant."""


@dataclass(frozen=True)
class Outcome:
    """``status``: "passed", "refused" (by the reader), "not run" (by MindSpore) or "wrong"; ``bound``: inputs that were
    made constant, since ONNX lets them vary and MindSpore does not."""

    status: str
    reason: str = ""
    bound: tuple[str, ...] = ()


@cache
def cases(module: str = "") -> dict[str, Any]:
    """By name: models of operators with their data; with ``module``, of one of ONNX's modules and maybe more.

    ONNX computes the data of a module when it is imported.
    """
    from onnx.backend.test.case import node
    from onnx.backend.test.loader import load_node_model_tests

    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        if module:
            importlib.import_module(f"{node.__name__}.{module}")
        return {case.name: case for case in (node._NodeTestCases if module else load_node_model_tests())}


def operator(case: Any) -> str:
    """What the case tests: the operator it is named after, for those written out as other operators too."""
    nodes = case.model.graph.node
    return str(nodes[0].op_type) if len(nodes) == 1 else str(nodes[-1].op_type)


def is_expanded(case: Any) -> bool:
    """Whether the case is a function's body written out: the same data as the case of the function itself."""
    return "_expanded" in case.name


def is_float32(case: Any) -> bool:
    """Whether all of its floating-point tensors are float32, and all of its values are tensors of numbers."""
    for data in case.data_sets:
        for values in data:
            for value in values:
                dtype = getattr(value, "dtype", None)
                if dtype is None or dtype.kind not in "fiub" or (dtype.kind == "f" and dtype != np.float32):
                    return False
                if dtype.kind not in "fiub" or dtype.name in ("bfloat16", "float16"):
                    return False
    types = [i.type.tensor_type.elem_type for i in [*case.model.graph.input, *case.model.graph.output]]
    numbers = {1, 2, 3, 4, 5, 6, 7, 9, 12, 13}
    return 1 in types and set(types) <= numbers


def is_supported(case: Any) -> bool:
    """Whether the reader has a rule for all operators of the case, ONNX's own functions written out."""
    if any(n.domain not in ("", "ai.onnx") for n in case.model.graph.node):
        return False
    try:
        model, found = without_functions(case.model), opset(case)
        nodes = inlined(model if found >= OPSET else newer(model, found), max(found, OPSET)).graph.node
    except Error:
        return False
    return all(n.op_type in READ or n.op_type in FOLDED_ONLY for n in nodes)


def judged(case: Any) -> bool:
    """Whether the case is one that the reader is measured by: float32, of operators that it has rules for."""
    return opset(case) >= OLDEST and not is_expanded(case) and is_float32(case) and is_supported(case)


def opset(case: Any) -> int:
    return next((int(o.version) for o in case.model.opset_import if o.domain in ("", "ai.onnx")), 0)


def judge(case: Any, folder: Path) -> Outcome:
    """Runs all data sets of a case."""
    for inputs, expected in case.data_sets:
        outcome = _judge(case, folder, inputs, expected)
        if outcome.status != "passed":
            return outcome
    return outcome


def _judge(case: Any, folder: Path, inputs: list[Any], expected: list[Any]) -> Outcome:
    names = [info.name for info in case.model.graph.input]
    bound: tuple[str, ...] = ()
    while True:
        path = folder / "case.onnx"
        path.write_bytes(_bind(case.model, inputs, bound).SerializeToString())
        try:
            program = bc.load(path)
        except Error as error:
            more = _to_bind(str(error), names, inputs, bound)
            if more == bound:
                return Outcome("refused", str(error), bound)
            bound = more
            continue
        rest = [x for name, x in zip(names, inputs, strict=True) if name not in bound]
        try:
            found = _constants(program) if not rest else _run(program, rest)
        except Error as error:
            return Outcome("not run", str(error), bound)
        return Outcome(*_compared(found, expected, case), bound)


def _to_bind(error: str, names: list[str], inputs: list[Any], bound: tuple[str, ...]) -> tuple[str, ...]:
    """The inputs to make constant next: the one that the reader names, else all that hold no fractions, else all."""
    if OPEN not in error:
        return bound
    named = [n for n in re.findall(rf"\('([^']*)'\) is computed at {OPEN}", error) if n in names and n not in bound]
    if named:
        return (*bound, *named)
    whole = tuple(n for n, x in zip(names, inputs, strict=True) if x.dtype.kind != "f" or n in bound)
    return whole if set(whole) != set(bound) else tuple(names)


def _run(program: bc.Program, inputs: list[Any]) -> list[np.ndarray]:
    return Results(program)(*inputs)


def _constants(program: bc.Program) -> list[np.ndarray]:
    """The results of a program without inputs, where the reader has computed them."""
    result = result_value(program.graphs["step"])
    found = []
    for value in result.operands if isinstance(result, Node) and result.op.name == "MakeTuple" else [result]:
        state = state_behind(value)
        if state is not None:  # a Constant of fractions is a weight: exporters write weights so
            found.append(program.state[state.name].initial)
        elif isinstance(value, Constant):
            found.append(to_numpy(value.value.type, value.value.data))
        else:
            raise RuntimeFailure("nothing varies, but the result is no constant")
    return found


def _bind(model: Any, inputs: list[Any], bound: tuple[str, ...]) -> Any:
    made = onnx.ModelProto()
    made.CopyFrom(model)
    kept = []
    for info, array in zip(model.graph.input, inputs, strict=True):
        if info.name in bound:
            made.graph.initializer.append(onnx.numpy_helper.from_array(np.asarray(array), info.name))
        else:
            kept.append(info)
    del made.graph.input[:]
    made.graph.input.extend(kept)
    return made


def _compared(found: list[np.ndarray], expected: list[np.ndarray], case: Any) -> tuple[str, str]:
    if len(found) != len(expected):
        return "wrong", f"{len(found)} results, {len(expected)} expected"
    for one, other in zip(found, expected, strict=True):
        if one.dtype != other.dtype or one.shape != other.shape:
            return "wrong", f"{one.dtype}{list(one.shape)} where {other.dtype}{list(other.shape)} is expected"
        if not np.allclose(one, other, rtol=case.rtol, atol=case.atol, equal_nan=True):
            if not np.array_equal(np.isfinite(one), np.isfinite(other)):
                return "wrong", "a number where NaN or infinity is expected, or the other way round"
            with np.errstate(all="ignore"):
                off = float(np.nanmax(np.abs(one.astype(np.float64) - other.astype(np.float64))))
            return "wrong", f"off by {off:.3g}"
    return "passed", ""
