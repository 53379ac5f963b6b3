"""A program of two graphs."""

from __future__ import annotations

import numpy as np
from boost_compile.ir.core.data import BytesData, ZeroData
from boost_compile.ir.core.graph import Graph
from boost_compile.ir.core.program import Entry, Program, Schedule, StateVariable
from boost_compile.ir.core.report import Miss, PassResult
from boost_compile.ir.core.types import DType, TensorType, tensor

T = tensor("float32", 3)


def two_graphs() -> Program:
    """accumulate x 3, then apply; one state of every element type, provenance, reports."""
    accumulate, apply = Graph("accumulate"), Graph("apply")
    x = accumulate.add_input("x", T)
    w = accumulate.state("w", T)
    accumulate.editor = "a-pass"
    accumulate.create("Neg", [x], T, name="unrelated")
    accumulate.result = accumulate.create("Add", [x, w], sources=[x])
    f = accumulate.add_function("f")
    f.result = f.create("Add", [f.add_input("y", T), f.inputs[0]], sources=[f.inputs[0]])
    accumulate.result = accumulate.create("MakeTuple", [accumulate.result, accumulate.reference(f)])
    accumulate.outputs = ("loss", "function")
    apply.result = apply.create("Add", [apply.state("accum.w", T), apply.state("w", T)])
    apply.outputs = ("updated",)
    state = {
        "w": StateVariable(
            "w", T, BytesData(np.array([1, -0.0, np.nan], np.float32).tobytes()), "weight", True, {"k": 1}
        ),
        "accum.w": StateVariable("accum.w", T, ZeroData(12), "accumulator"),
        "count": StateVariable("count", tensor("int32"), ZeroData(4), "counter", False),
        "empty": StateVariable("empty", tensor("float32", 0, 2), BytesData(b"")),
        "minus zero": StateVariable("minus zero", tensor("float32"), BytesData(b"\0\0\0\x80")),
    }
    for dtype in DType:
        if dtype is not DType.STRING:
            type_ = TensorType(dtype, (2, 3))
            raw = bytes([1, 0]) * 3 if dtype is DType.BOOL else bytes(range(1, type_.nbytes + 1))
            state[f"é {dtype}"] = StateVariable(f"é {dtype}", type_, BytesData(raw), "statistic")
    report = PassResult("a-pass", {"steps": 3}, 2, 1, [Miss("site", "reason")], {"n": 1.5}, False, 0.25, "did it")
    return Program(
        {"accumulate": accumulate, "apply": apply},
        state,
        Schedule((Entry("accumulate", 3), Entry("apply")), flush="apply", count="count"),
        name="a program",
        target="gpu",
        metadata={"ir_version": "1.1", "user_info": {"who": "ö"}},
        source={"file": "a.mindir", "sha256": "00"},
        pipeline="a-pass{steps=3}",
        reports=[report],
    )
