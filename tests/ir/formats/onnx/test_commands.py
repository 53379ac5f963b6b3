"""The commands on ONNX models, without MindSpore."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from boost_compile.tools.inspect import command
from click.testing import CliRunner
from onnx import TensorProto, helper, numpy_helper
from safetensors.numpy import save_file

import boost_compile as bc
from tests.ir.formats.onnx.shapes import shapes


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """y = x w, with an open number of rows."""
    weight = numpy_helper.from_array(np.ones((3, 2), np.float32), "w")
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, ["rows", 3])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, ["rows", 2])
    graph = helper.make_graph([helper.make_node("MatMul", ["x", "w"], ["y"])], "g", [x], [y], [weight])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), tmp_path / "m.onnx")
    return tmp_path / "m.onnx"


def test_a_size_is_given_and_the_network_written_with_other_weights(path: Path, tmp_path: Path) -> None:
    trained = tmp_path / "trained.safetensors"
    save_file({"w": np.full((3, 2), 2, np.float32)}, trained)
    output = tmp_path / "out.onnx"
    arguments = [str(path), "--dim", "rows=4", "--format", "onnx", "--standard", "-o", str(output)]
    result = CliRunner().invoke(command, [*arguments, "--state", str(trained)], catch_exceptions=False)
    assert result.exit_code == 0
    assert "exported the whole graph: x -> y, 1 weight" in result.output
    model = onnx.load(output)
    onnx.checker.check_model(model, full_check=True)
    (weight,) = (numpy_helper.to_array(i) for i in model.graph.initializer if i.name == "w")
    assert (weight == 2).all()
    assert shapes(model) == {"x": ["rows", 3], "y": ["rows", 2]}

    CliRunner().invoke(command, [*arguments, "--batch-size", "5"], catch_exceptions=False)
    assert shapes(onnx.load(output)) == {"x": [5, 3], "y": [5, 2]}

    save_file({"w": np.zeros((2, 3), np.float32)}, trained)
    with pytest.raises(bc.Error, match=r"state 'w' is float32\[3,2\], and .*trained.safetensors has float32\[2, 3\]"):
        CliRunner().invoke(command, [*arguments, "--state", str(trained)], catch_exceptions=False)


@pytest.mark.parametrize("value", ["rows", "rows=", "rows=0", "rows=-1", "rows=x"])
def test_sizes_that_are_none(value: str, path: Path) -> None:
    result = CliRunner().invoke(command, [str(path), "--dim", value])
    assert result.exit_code == 2
    assert "give NAME=SIZE" in result.output


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (["--standard"], "goes with --format onnx"),
        (["--result", "n"], "--result goes with --forward"),
        (["--batch-size", "3"], "--batch-size goes with --forward"),
        (["--forward", "--batch-size", "0"], "no number of samples"),
        (["-o", "x.mindir"], "add --forward"),
        (["--format", "mindir", "--forward"], "-o FILE.mindir"),
        (["--forward", "--graph", "step"], "shows one graph"),
    ],
)
def test_flags_that_need_others(flags: list[str], said: str, path: Path) -> None:
    result = CliRunner().invoke(command, [str(path), *flags])
    assert result.exit_code == 2
    assert said in result.output


def test_all_primitives_without_an_operator_are_named_at_once(tmp_path: Path) -> None:
    text = """graph @step(%x: float32[2,3]) -> (first, second) {
  %a = Foo(%x) : float32[2,3]
  %b = Neg(%a)
  %c = Bar(%x) : float32[2,3]
  %r = MakeTuple(%b, %c)
  return %r
}"""
    (tmp_path / "m.ir").write_text(text)
    output = tmp_path / "out.onnx"
    arguments = [str(tmp_path / "m.ir"), "--format", "onnx", "--standard", "-o", str(output)]
    with pytest.raises(bc.Error) as caught:
        CliRunner().invoke(command, arguments, catch_exceptions=False)
    said = str(caught.value)
    assert "2 nodes of the network cannot be written as standard ONNX:" in said
    assert "Foo %a: no standard operator" in said
    assert "Bar %c: no standard operator" in said
    assert "Neg" not in said
    assert not output.exists()


def test_an_open_second_axis_has_a_name_of_its_own(tmp_path: Path) -> None:
    text = "graph @step(%x: float32[?,?], %y: float32[4,?]) -> (a, b) {\n  %r = Neg(%x) : float32[?,?]\n"
    text += "  %s = Exp(%y) : float32[4,?]\n  %t = MakeTuple(%r, %s)\n  return %t\n}"
    (tmp_path / "m.ir").write_text(text)
    output = tmp_path / "out.onnx"
    arguments = [str(tmp_path / "m.ir"), "--format", "onnx", "--standard", "-o", str(output)]
    assert CliRunner().invoke(command, arguments, catch_exceptions=False).exit_code == 0
    found = shapes(onnx.load(output))
    assert [len(shape) for shape in found.values()] == [2, 2, 2, 2]
    assert found["x"] == ["batch", "x_1"]
    assert found["y"] == [4, "y_1"]
