"""Models as exporters of all kinds leave them: weights in Constant nodes, sizes without names, several results, odd
names. Each is trained and written back, and run by onnxruntime."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from boost_compile.tools import compile as compile_tool
from boost_compile.tools.inspect import command
from onnx import TensorProto, helper, numpy_helper

import boost_compile as bc
from tests.ir.formats.onnx.shapes import shapes
from tests.tools.support import assert_one_error, shell

RNG = np.random.default_rng(0)
WEIGHT, BIAS, SECOND = (RNG.standard_normal(shape).astype(np.float32) for shape in ((3, 4), (4,), (3, 2)))


def write(
    path: Path, nodes: list[Any], shape: list[Any], outputs: dict[str, list[Any]], weights: dict[str, Any]
) -> Path:
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)
    results = [helper.make_tensor_value_info(n, TensorProto.FLOAT, s) for n, s in outputs.items()]
    initializers = [numpy_helper.from_array(array, name) for name, array in weights.items()]
    graph = helper.make_graph(nodes, "g", [x], results, initializers)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8), path)
    return path


def run(path: Path, x: np.ndarray) -> list[Any]:
    return onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"]).run(None, {"x": x})


def constant(name: str, array: np.ndarray) -> Any:
    return helper.make_node("Constant", [], [name], value=numpy_helper.from_array(array, name))


def paddle(path: Path) -> Path:
    """As paddle2onnx writes: weights in Constant nodes, sizes called "?"."""
    nodes = [
        constant("fc_0.w_0", WEIGHT),
        constant("fc_0.b_0", BIAS),
        constant("half", np.array([0.5], np.float32)),
        helper.make_node("ReduceMean", ["x"], ["mean"], axes=[1], keepdims=0),
        helper.make_node("Mul", ["mean", "half"], ["scaled"]),
        helper.make_node("MatMul", ["scaled", "fc_0.w_0"], ["product"]),
        helper.make_node("Add", ["product", "fc_0.b_0"], ["logits"]),
    ]
    return write(path, nodes, ["?", "?", 3], {"logits": ["?", 4]}, {})


@pytest.mark.mindspore
def test_weights_in_constant_nodes_and_sizes_without_names(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    paddle(tmp_path / "model.onnx")
    missing = shell(capsys, command, "model.onnx")
    assert_one_error(missing, "boost-inspect", "sizes open: x.0, x.1", "--dim x.0=8")
    unknown = shell(capsys, command, "model.onnx", "--dim", "x.0=4", "--dim", "x.1=5", "--dim", "rows=4")
    assert_one_error(unknown, "boost-inspect", "leave no size 'rows' open")

    sizes = ["--dim", "x.0=4", "--dim", "x.1=5"]
    trained = ["--optimizer", "sgd{lr=0.5}", "--loss", "softmax-cross-entropy", "-o", "model.boost", "-q"]
    assert shell(capsys, compile_tool.command, "model.onnx", *sizes, *trained).code == 0
    program = bc.load("model.boost")
    assert {n for n, v in program.state.items() if v.role == "weight"} == {"fc_0.w_0", "fc_0.b_0"}
    session = bc.Session(program)
    x = RNG.standard_normal((4, 5, 3)).astype(np.float32)
    np.testing.assert_allclose(session.predict(x), run(tmp_path / "model.onnx", x)[0], atol=1e-6)
    first, *_, last = [session.step(x, np.arange(4, dtype=np.int32)).loss for _ in range(4)]
    assert last < first
    session.export_onnx("trained.onnx")
    # The batch is open again, though nobody gave it a name; the result has its name.
    assert shapes(onnx.load("trained.onnx")) == {"x": ["batch", 5, 3], "logits": ["batch", 4]}
    for rows in (4, 7):
        x = RNG.standard_normal((rows, 5, 3)).astype(np.float32)
        np.testing.assert_allclose(run(tmp_path / "trained.onnx", x)[0], session.predict(x), atol=1e-6)


@pytest.mark.mindspore
def test_one_of_several_results_is_trained(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    nodes = [
        helper.make_node("Relu", ["x"], ["hidden"]),
        helper.make_node("MatMul", ["hidden", "w"], ["kind"]),
        helper.make_node("MatMul", ["hidden", "v"], ["place"]),
    ]
    shape = {"kind": ["rows", 4], "place": ["rows", 2]}
    write(tmp_path / "model.onnx", nodes, ["rows", 3], shape, {"w": WEIGHT, "v": SECOND})
    arguments = ["model.onnx", "--dim", "rows=4", "--optimizer", "sgd", "--loss", "mse", "-o", "model.boost", "-q"]
    several = shell(capsys, compile_tool.command, *arguments)
    assert_one_error(several, "boost-compile", "several results (kind, place)", "--head kind")
    wrong = shell(capsys, compile_tool.command, *arguments, "--head", "plac")
    assert_one_error(wrong, "boost-compile", "no result 'plac' (did you mean 'place'?)")
    assert shell(capsys, compile_tool.command, *arguments, "--head", "place").code == 0
    session = bc.Session(bc.load("model.boost"))
    assert {n for n, v in session.program.state.items() if v.role == "weight"} == {"v"}
    x = RNG.standard_normal((4, 3)).astype(np.float32)
    np.testing.assert_allclose(session.predict(x), run(tmp_path / "model.onnx", x)[1], atol=1e-6)
    session.export_onnx("trained.onnx")
    assert shapes(onnx.load("trained.onnx")) == {"x": ["rows", 3], "place": ["rows", 2]}


@pytest.mark.mindspore
def test_names_that_end_in_underscores(tmp_path: Path) -> None:
    """Of two scopes of one name that ends in "_", the second gets a number."""
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["y"], name="jax2tf_get_logits_/one/MatMul"),
        helper.make_node("Add", ["y", "b"], ["z"], name="two/Add"),
        helper.make_node("Relu", ["z"], ["t"], name="jax2tf_get_logits_/one/Relu"),
    ]
    path = write(tmp_path / "model.onnx", nodes, [4, 3], {"t": [4, 4]}, {"w": WEIGHT, "b": BIAS})
    session = bc.Session(bc.differentiate(bc.load(path), "sgd{lr=0.1}", loss="mse"))
    x = RNG.standard_normal((4, 3)).astype(np.float32)
    np.testing.assert_allclose(session.predict(x), run(path, x)[0], atol=1e-6)


@pytest.mark.mindspore
def test_a_batch_that_cannot_be_open_stays_and_it_is_said(tmp_path: Path) -> None:
    nodes = [helper.make_node("MatMul", ["x", "w"], ["y"]), helper.make_node("Add", ["y", "table"], ["z"])]
    table = RNG.standard_normal((4, 4)).astype(np.float32)
    path = write(tmp_path / "model.onnx", nodes, ["rows", 3], {"z": [4, 4]}, {"w": WEIGHT, "table": table})
    session = bc.Session(bc.load(path, dimensions={"rows": 4}))
    said = session.export_onnx(tmp_path / "again.onnx")
    assert "4 samples only: " in said
    assert shapes(onnx.load(tmp_path / "again.onnx")) == {"x": [4, 3], "z": [4, 4]}
