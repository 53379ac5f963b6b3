"""Which nodes a target has kernels for: by the lists of kernels, and by MindSpore itself where it runs here."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from boost_compile.ir.analysis.targets import has_kernel, lacking, on_cpu, targets_of
from boost_compile.ir.core.kernels import kernels
from boost_compile.ir.core.kernels.table import Kernels
from boost_compile.ir.core.program import Program
from boost_compile.ir.text import parse_program
from boost_compile.runtime.engine import engine

import boost_compile as bc


def one(node: str, *inputs: str) -> Program:
    given = ", ".join(f"%{name}: {type_}" for name, type_ in zip("xyzw", inputs, strict=False))
    return parse_program(f"graph @g({given}) {{\n  %r = {node}\n  return %r\n}}")


def lacks(program: Program, target: str) -> list[str]:
    return [node.op.name for node in lacking(program.graphs["g"], target)]


@pytest.mark.parametrize(
    ("primitive", "targets"),
    [
        ("MatMul", "ascend cpu gpu"),
        ("Lamb", "ascend gpu"),
        ("AdamWeightDecay", "ascend cpu gpu"),  # MindSpore splits it for Ascend
        ("LARSUpdate", "ascend"),
        ("ReduceScatter", "ascend gpu"),
        ("Randperm", "ascend gpu"),
        ("RandpermV2", "ascend cpu gpu"),
        ("RandomGamma", "ascend cpu gpu"),
        ("SparseApplyAdadelta", ""),
        ("SparseApplyFtrlV2", "ascend"),
        ("FusedSparseAdam", "ascend cpu gpu"),
        ("LSTMGrad", "ascend cpu"),
        ("FloatStatus", "gpu"),
        ("NPUGetFloatStatusV2", "ascend"),
        ("SyncBatchNorm", "ascend"),
        ("Conv2DTranspose", "ascend cpu gpu"),  # a pass of MindSpore renames it
        ("Muls", "ascend cpu gpu"),  # no kernel on two of them: MindSpore expands it
    ],
)
def test_targets_of_a_primitive(primitive: str, targets: str) -> None:
    assert targets_of(primitive) == targets.split()


MATMUL = "MatMul(%x, %y, false, false) : {0}[2,2]"
CASES = [
    (MATMUL, "float32", "cpu gpu"),
    (MATMUL, "float16", "cpu gpu"),
    (MATMUL, "bfloat16", ""),
    (MATMUL, "int16", "cpu gpu"),  # on a GPU by the kernel of the CPU
    ("Add(%x, %y) : {0}[2,2]", "bfloat16", "cpu gpu"),
    ("Sqrt(%x) : float32[2,2]", "int32", "cpu gpu"),
    ("Sqrt(%x) : {0}[2,2]", "bfloat16", ""),
    ("Tril(%x, 0) : {0}[2,2]", "bfloat16", ""),
    ("Cast(%x, 43) : float32[2,2]", "bfloat16", "cpu gpu"),
]


@pytest.mark.parametrize(("node", "dtype", "targets"), CASES)
def test_element_types_count(node: str, dtype: str, targets: str) -> None:
    program = one(node.format(dtype), f"{dtype}[2,2]", f"{dtype}[2,2]")
    assert [t for t in ("cpu", "gpu") if not lacks(program, t)] == targets.split()
    assert not lacks(program, "ascend")  # there CANN decides


@pytest.mark.mindspore
@pytest.mark.parametrize(("node", "dtype", "targets"), CASES)
def test_the_cpu_of_mindspore_agrees(node: str, dtype: str, targets: str, monkeypatch: pytest.MonkeyPatch) -> None:
    import mindspore as ms

    monkeypatch.setattr(engine, "refuse_without_kernel", lambda *_: None)  # MindSpore is asked, not the list
    session = bc.Session(one(node.format(dtype), f"{dtype}[2,2]", f"{dtype}[2,2]"))
    x = ms.Tensor(np.eye(2), getattr(ms, dtype))
    try:
        session._engine.run("g", (x, x))
        ran = True
    except bc.Error:
        ran = False
    assert ran == ("cpu" in targets)


def test_numbers_and_unknown_primitives_are_taken_to_fit() -> None:
    program = one("Shape(%x) : (int64, int64)", "float32[2,2]")
    assert not lacks(program, "cpu")
    assert not lacks(one("NoSuchThing(%x) : float32[2,2]", "float32[2,2]"), "gpu")


def test_a_tuple_fits_by_its_elements() -> None:
    joined = "%t = MakeTuple(%x, %y)\n  %r = Concat(%t, 0) : {0}[4,2]"
    for dtype, fits in (("float32", True), ("bfloat16", False)):
        text = f"graph @g(%x: {dtype}[2,2], %y: {dtype}[2,2]) {{\n  {joined.format(dtype)}\n  return %r\n}}"
        assert (lacks(parse_program(text), "gpu") == []) == fits


def test_int64_serves_a_kernel_of_int32_on_a_gpu() -> None:
    list_ = Kernels("# MindSpore 9.9.9\nOnly: i32>i32\n")
    assert list_.release == "9.9.9"
    (kernel,) = list_.of("Only")
    assert [str(operand) for operand in kernel.inputs] == ["int32"]
    unit = "SeLU(%x) : {0}[2]"  # int8, int32 and floats
    assert not lacks(one(unit.format("int64"), "int64[2]"), "gpu")
    assert lacks(one(unit.format("int16"), "int16[2]"), "gpu") == ["SeLU"]


def test_ascend_runs_on_the_cpu_what_only_that_has() -> None:
    program = one("LSTM(%x, %x, %x, %x) : (float32[2], float32[2], float32[2], float32[2], float32[2])", "float32[2]")
    assert [node.op.name for node in on_cpu(program.graphs["g"], "ascend")] == ["LSTM"]
    assert on_cpu(program.graphs["g"], "cpu") == []
    there = one('AdamNoUpdateParam(%x) {primitive_target = "CPU"} : float32[2]', "float32[2]")
    assert [node.op.name for node in on_cpu(there.graphs["g"], "gpu")] == ["AdamNoUpdateParam"]
    assert all(has_kernel(node, "gpu") for node in there.graphs["g"])


@pytest.mark.mindspore
@pytest.mark.parametrize("target", ["cpu", "gpu", "ascend"])
def test_the_lists_are_of_this_mindspore(target: str) -> None:
    from importlib.metadata import version

    assert kernels(target).release == version("mindspore")


@pytest.mark.mindspore
def test_a_weight_in_two_places_is_refused(exported: Callable[[str], Path]) -> None:
    """MindSpore's GPU backend, with stand-ins for CUDA, runs the second program and fails in the first."""
    source = bc.load(str(exported("mlp_adafactor")))
    with pytest.raises(bc.Error, match=r"FusedAdaFactor .* on the CPU.*writes state 'hidden.weight', .* split=apply"):
        bc.compile(source, "dead-code-elimination", target="gpu")
    apart = bc.compile(source, "gradient-accumulation{steps=2}", target="gpu")
    assert [node.op.name for node in on_cpu(apart.graphs["apply"], "gpu")] == ["FusedAdaFactor"] * 4
    assert bc.compile(source, "dead-code-elimination", target="ascend").target == "ascend"


@pytest.mark.parametrize(
    ("weights", "attributes", "on"),
    [
        # 4 gates of 8 with 6 inputs, 8 of state and, on a GPU, a bias for each of the two.
        (4 * 8 * (6 + 8 + 1), "", "cpu ascend"),
        (4 * 8 * (6 + 8 + 2), "", "gpu"),
        (4 * 8 * (6 + 8), "has_bias = false", "cpu gpu ascend"),
        (2 * 4 * 8 * (6 + 8 + 1), "bidirectional = true", "cpu ascend"),
        (4 * 8 * (6 + 8 + 1) + 4 * 8 * (8 + 8 + 1), "num_layers = 2", "cpu ascend"),
        (4 * 8 * (6 + 8 + 2) + 4 * 8 * (8 + 8 + 2), "num_layers = 2", "gpu"),
        (4 * 8 * (6 + 5 + 2) + 5 * 8, "proj_size = 5", "gpu"),
        (7, "", "cpu gpu ascend"),  # as no device packs them: not ours to judge
    ],
)
def test_weights_of_an_lstm_are_packed_for_one_device(weights: int, attributes: str, on: str) -> None:
    """Nothing else tells of it where only the forward part is there: tests/devices holds MindSpore's own refusal."""
    usual = {"input_size": "6", "hidden_size": "8", "num_layers": "1", "has_bias": "true", "bidirectional": "false"}
    usual |= {"proj_size": "0", "dropout": "0.0"} | dict([attributes.split(" = ")] if attributes else [])
    written = ", ".join(f"{name} = {value}" for name, value in usual.items())
    states = "float32[1,4,8]"
    (node,) = parse_program(
        f"graph @g(%x: float32[5,4,6], %h: {states}, %c: {states}, %w: float32[{weights},1,1]) {{\n"
        f"  %r = LSTM(%x, %h, %c, %w) {{{written}}} : (float32[5,4,8], {states}, {states}, float32[5], float32[5])\n"
        "  return %r\n}"
    ).graphs["g"]
    assert {target for target in ("cpu", "gpu", "ascend") if has_kernel(node, target)} == set(on.split())
