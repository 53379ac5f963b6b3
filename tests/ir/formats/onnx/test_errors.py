"""Models that are refused, by an error that says what and where; hostile ones among them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from boost_compile.ir.core.errors import Error, FormatError
from boost_compile.ir.core.graph import Constant, Node
from onnx import TensorProto, helper, numpy_helper

import boost_compile as bc

FLOAT = TensorProto.FLOAT


def info(name: str, *shape: int | str, kind: int = FLOAT) -> Any:
    return helper.make_tensor_value_info(name, kind, shape)


def model(
    nodes: list[Any], inputs: list[Any], outputs: list[Any], initializers: list[Any] = (), opset: int = 18, **more: Any
) -> Any:
    graph = helper.make_graph(nodes, "g", inputs, outputs, initializer=list(initializers))
    imports = [helper.make_opsetid("", opset), helper.make_opsetid("own", 1)]
    return helper.make_model(graph, opset_imports=imports, ir_version=9, **more)


def load(made: Any, folder: Path, **options: Any) -> bc.Program:
    path = folder / "m.onnx"
    path.write_bytes(made.SerializeToString())
    return bc.load(path, **options)


def test_all_unsupported_operators_at_once_with_their_names(tmp_path: Path) -> None:
    nodes = [
        helper.make_node("NonMaxSuppression", ["b", "s"], ["i"], name="first"),
        helper.make_node("Relu", ["x"], ["y"], name="fine"),
        helper.make_node("Shrink", ["y"], ["z"], name="second", domain="own"),  # ONNX defines one too
        helper.make_node("Shrink", ["y"], ["y2"]),
        helper.make_node("Relu", ["z"], ["out"], name="behind"),
    ]
    inputs = [info("b", 1, 6, 4), info("s", 1, 1, 6), info("x", 2)]
    outputs = [info("i", "n", 3, kind=TensorProto.INT64), info("out", 2)]
    with pytest.raises(Error, match=r"(?s)2 nodes.*NonMaxSuppression 'first'.*Shrink 'second': domain 'own'") as caught:
        load(model(nodes, inputs, outputs), tmp_path)
    assert "behind" not in str(caught.value)


def test_open_sizes_are_asked_for_and_filled_in(tmp_path: Path) -> None:
    shape = [helper.make_node("Shape", ["x"], ["s"]), helper.make_node("ConstantOfShape", ["s"], ["zeros"])]
    made = model([*shape, helper.make_node("Add", ["x", "zeros"], ["y"])], [info("x", "batch", 3)], [info("y", "n", 3)])
    with pytest.raises(FormatError, match=r"leaves sizes open: batch\. .*dimensions=\{'batch': 8\}") as caught:
        load(made, tmp_path)
    assert "boost-compile --dim batch=8 --loss … --optimizer …" in caught.value.at_command()
    with pytest.raises(FormatError, match=r"leave no size 'bach' open \(did you mean 'batch'\?\)"):
        load(made, tmp_path, dimensions={"batch": 4, "bach": 4})
    graph = load(made, tmp_path, dimensions={"batch": 4}).graphs["step"]
    assert graph.inputs[0].type.shape == (4, 3)
    assert graph.result.type.shape == (4, 3)


@pytest.mark.parametrize("cut", [1, 30, 50])
def test_damaged(cut: int, tmp_path: Path) -> None:
    made = model([helper.make_node("Relu", ["x"], ["y"])], [info("x", 2)], [info("y", 2)]).SerializeToString()
    path = tmp_path / "m.onnx"
    path.write_bytes(made[:cut])
    with pytest.raises(FormatError, match=r"m\.onnx: not a"):
        bc.load(path)


def test_a_result_of_another_shape_than_declared_is_a_warning(tmp_path: Path) -> None:
    """As onnxruntime has it: the shape is what the nodes compute."""
    flat = numpy_helper.from_array(np.array([-1]), "flat")
    made = model([helper.make_node("Reshape", ["x", "flat"], ["y"])], [info("x", 2, 3)], [info("y", 2)], [flat])
    with pytest.warns(UserWarning, match=r"result 'y' is declared as float32\[2\] and computed as float32\[6\]"):
        graph = load(made, tmp_path).graphs["step"]
    assert graph.result.type.shape == (6,)


def test_an_older_opset_is_converted_and_it_is_said(tmp_path: Path) -> None:
    """Clip took its limits as attributes before opset 11."""
    made = model([helper.make_node("Clip", ["x"], ["y"], min=-1.0, max=0.5)], [info("x", 3)], [info("y", 3)], opset=9)
    with pytest.warns(UserWarning, match=r"m\.onnx: opset 9 was converted to 18 by onnx\.version_converter"):
        graph = load(made, tmp_path).graphs["step"]
    assert graph.result.type.shape == (3,)


@pytest.mark.parametrize("opset", [0, 99])
def test_opsets_that_are_not_known(opset: int, tmp_path: Path) -> None:
    made = model([helper.make_node("Relu", ["x"], ["y"])], [info("x", 2)], [info("y", 2)], opset=opset)
    with pytest.raises(FormatError, match=f"opset {opset}; 1 to "):
        load(made, tmp_path)


@pytest.mark.parametrize("location", ["../outside", "/etc/passwd", "missing", "link"])
def test_external_data_stays_below_the_models_folder(location: str, tmp_path: Path) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    (tmp_path / "outside").write_bytes(bytes(64))
    (folder / "link").symlink_to(tmp_path / "outside")
    weight = TensorProto(name="w", data_type=FLOAT, dims=[4], data_location=TensorProto.EXTERNAL)
    weight.external_data.add(key="location", value=location)
    made = model([helper.make_node("Add", ["x", "w"], ["y"])], [info("x", 4)], [info("y", 4)], [weight])
    with pytest.raises(FormatError, match="initializer 'w': its data file"):
        load(made, folder)


def test_external_data_is_read(tmp_path: Path) -> None:
    array = np.arange(6, dtype=np.float32)
    (tmp_path / "data").write_bytes(bytes(8) + array.tobytes())
    weight = TensorProto(name="w", data_type=FLOAT, dims=[6], data_location=TensorProto.EXTERNAL)
    for key, value in (("location", "data"), ("offset", "8"), ("length", "24")):
        weight.external_data.add(key=key, value=value)
    made = model([helper.make_node("Add", ["x", "w"], ["y"])], [info("x", 6)], [info("y", 6)], [weight])
    assert np.array_equal(load(made, tmp_path).state["w"].initial, array)
    weight.external_data[2].value = "240"
    made = model([helper.make_node("Add", ["x", "w"], ["y"])], [info("x", 6)], [info("y", 6)], [weight])
    with pytest.raises(FormatError, match="lie outside of its data file"):
        load(made, tmp_path)


def function(name: str, nodes: list[Any]) -> Any:
    imports = [helper.make_opsetid("", 18), helper.make_opsetid("own", 1)]
    return helper.make_function("own", name, ["a"], ["b"], nodes, imports)


def test_functions_that_multiply_or_call_themselves(tmp_path: Path) -> None:
    def call(name: str, a: str, b: str) -> Any:
        return helper.make_node(name, [a], [b], domain="own")

    bomb = [function("f0", [helper.make_node("Relu", ["a"], ["b"])])]
    bomb += [function(f"f{i}", [call(f"f{i - 1}", "a", "t"), call(f"f{i - 1}", "t", "b")]) for i in range(1, 40)]
    made = model([call("f39", "x", "y")], [info("x", 2)], [info("y", 2)], functions=bomb)
    with pytest.raises(FormatError, match="written out, would be"):
        load(made, tmp_path)
    circle = [function("f", [call("g", "a", "b")]), function("g", [call("f", "a", "b")])]
    with pytest.raises(FormatError, match=r"in a circle|cyc|recurs"):
        load(model([call("f", "x", "y")], [info("x", 2)], [info("y", 2)], functions=circle), tmp_path)
    fine = load(model([call("f3", "x", "y")], [info("x", 2)], [info("y", 2)], functions=bomb[:4]), tmp_path)
    assert [node.op.name for node in fine.graphs["step"]] == ["ReLU"] * 8


def test_constants_larger_than_memory(tmp_path: Path) -> None:
    shape = numpy_helper.from_array(np.array([1 << 20, 1 << 20], np.int64), "s")
    nodes = [helper.make_node("ConstantOfShape", ["s"], ["c"]), helper.make_node("ReduceSum", ["c"], ["r"]),
             helper.make_node("Add", ["x", "r"], ["y"])]  # fmt: skip
    with pytest.raises(FormatError, match=r"constant of shape \[1048576, 1048576\]"):
        load(model(nodes, [info("x", 1)], [info("y", 1, 1)], [shape]), tmp_path)


@pytest.mark.parametrize(
    ("node", "shape"),
    [
        (helper.make_node("Transpose", ["x"], ["y"], perm=[0, 0]), (2, 3)),
        (helper.make_node("Concat", ["x", "x"], ["y"], axis=7), (2, 3)),
        (helper.make_node("Conv", ["x", "x"], ["y"]), (2, 3, 4, 4)),
        (helper.make_node("MaxPool", ["x"], ["y"], kernel_shape=[0, 0]), (1, 1, 4, 4)),
        (helper.make_node("MaxPool", ["x"], ["y"], kernel_shape=[9, 9]), (1, 1, 4, 4)),
        (helper.make_node("Split", ["x"], ["y", "z"], num_outputs=2, axis=5), (2, 3)),
        (helper.make_node("MatMul", ["x", "x"], ["y"]), (2, 3)),
        (helper.make_node("LSTM", ["x", "x", "x"], ["y"]), (2, 3, 4)),
        (helper.make_node("Gemm", ["x", "x"], ["y"]), (2,)),
    ],
)
def test_nodes_that_make_no_sense(node: Any, shape: tuple[int, ...], tmp_path: Path) -> None:
    with pytest.raises(FormatError, match=r"m\.onnx: "):
        load(model([node], [info("x", *shape)], [helper.make_empty_tensor_value_info("y")]), tmp_path)


NAMES = ['"; import os\n', "a'b{c}", "%s%n", "класс", "for", "../../x", "a" * 5000, "\u202e", "x:y::z"]


@pytest.mark.parametrize("name", NAMES)
def test_names_of_the_file_are_data(name: str, tmp_path: Path) -> None:
    """They reach scopes and names of state in a form that every format holds, and come back from the text form."""
    weight = numpy_helper.from_array(np.ones((3, 3), np.float32), name + "w")
    node = helper.make_node("MatMul", [name, name + "w"], [name + "y"], name=name)
    program = load(model([node], [info(name, 2, 3)], [info(name + "y", 2, 3)], [weight]), tmp_path)
    allowed = set("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_.-/")
    graph = program.graphs["step"]
    for text in (*program.state, *(v.name for v in graph.inputs), *(n.scope for n in graph), *graph.outputs):
        assert text
        assert set(text) <= allowed
        assert len(text) < 300
    program.save(str(tmp_path / "m.txt"))
    assert list(bc.load(tmp_path / "m.txt").state) == list(program.state)


def test_the_branch_of_a_known_condition(tmp_path: Path) -> None:
    def branch(name: str, op: str) -> Any:
        return helper.make_graph([helper.make_node(op, ["x"], [name])], name, [], [info(name, 2)])

    node = helper.make_node("If", ["c"], ["y"], then_branch=branch("t", "Relu"), else_branch=branch("e", "Exp"))
    for value, primitive in ((True, "ReLU"), (False, "Exp")):
        condition = numpy_helper.from_array(np.array(value), "c")
        program = load(model([node], [info("x", 2)], [info("y", 2)], [condition]), tmp_path)
        assert [n.op.name for n in program.graphs["step"]] == [primitive]
    with pytest.raises(Error, match="its condition is computed at run time"):
        load(model([node], [info("x", 2), info("c", kind=TensorProto.BOOL)], [info("y", 2)]), tmp_path)


def test_what_becomes_state_and_what_a_constant(tmp_path: Path) -> None:
    """Floating-point tensors with several elements are learned; numbers, integers and what is not finite are not."""
    arrays = {
        "w": np.ones((3,), np.float32), "number": np.ones((1,), np.float32), "mask": np.full((3,), -np.inf, np.float32),
        "places": np.array([2, 1, 0], np.int64),
    }  # fmt: skip
    nodes = [
        helper.make_node("Mul", ["x", "w"], ["a"]),
        helper.make_node("Mul", ["a", "number"], ["b"]),
        helper.make_node("Max", ["b", "mask"], ["c"]),
        helper.make_node("Gather", ["c", "places"], ["y"]),
    ]
    initializers = [numpy_helper.from_array(a, n) for n, a in arrays.items()]
    program = load(model(nodes, [info("x", 3)], [info("y", 3)], initializers), tmp_path)
    assert {n: (v.role, v.trainable) for n, v in program.state.items()} == {"w": ("weight", True)}
    constants = [o for n in program.graphs["step"] for o in n.operands if isinstance(o, Constant)]
    assert not any(isinstance(o, Node) for o in constants)


def outside(**said: str) -> Any:
    weight = TensorProto(name="w", data_type=FLOAT, dims=[2], data_location=TensorProto.EXTERNAL)
    for key, value in said.items():
        weight.external_data.add(key=key, value=value)
    return weight


@pytest.mark.parametrize(
    ("weight", "says"),
    [
        (TensorProto(name="w", data_type=17, dims=[2], raw_data=b"12"), "ONNX element type 17, which MindSpore lacks"),
        (TensorProto(name="w", data_type=FLOAT, dims=[-1]), r"a tensor of shape \[-1\]"),
        (
            TensorProto(name="w", data_type=FLOAT, dims=[2], raw_data=bytes(4)),
            r"4 bytes of data for float32\[2\], .* 8",
        ),
        (TensorProto(name="w", data_type=FLOAT, dims=[2], float_data=[1]), "fewer than its 2 elements are in the file"),
        (outside(offset="0"), "where its external data lies is not said"),
        (outside(location="data", offset="far"), "where its external data lies is not said, or not in numbers"),
    ],
)
def test_tensors_that_are_not_what_they_say(weight: Any, says: str, tmp_path: Path) -> None:
    (tmp_path / "data").write_bytes(bytes(8))
    made = model([helper.make_node("Add", ["x", "w"], ["y"])], [info("x", 2)], [info("y", 2)], [weight])
    with pytest.raises(FormatError, match=rf"m\.onnx: initializer 'w': {says}"):
        load(made, tmp_path)


def test_numbers_in_typed_fields_are_read(tmp_path: Path) -> None:
    tensors = [
        TensorProto(name="w", data_type=FLOAT, dims=[2], float_data=[1.5, -2]),
        TensorProto(name="one", data_type=FLOAT, float_data=[3]),
        TensorProto(name="half", data_type=TensorProto.FLOAT16, dims=[2], int32_data=[0x3C00, 0xC000]),
    ]
    nodes = [
        helper.make_node("Mul", ["x", "w"], ["a"]),
        helper.make_node("Add", ["a", "one"], ["b"]),
        helper.make_node("Cast", ["half"], ["c"], to=FLOAT),
        helper.make_node("Add", ["b", "c"], ["y"]),
    ]
    state = load(model(nodes, [info("x", 2)], [info("y", 2)], tensors), tmp_path).state
    assert {name: v.initial.tolist() for name, v in state.items()} == {"w": [1.5, -2], "half": [1, -2]}


def test_weights_in_constant_nodes_are_state_where_there_are_no_others(tmp_path: Path) -> None:
    def constant(name: str, **value: Any) -> Any:
        return helper.make_node("Constant", [], [name], **value)

    weight = numpy_helper.from_array(np.ones(3, np.float32), "t")
    nodes = [constant("w", value=weight), constant("two", value_float=2.0), constant("row", value_floats=[1.0, 2, 3]),
             constant("at", value=numpy_helper.from_array(np.array([2, 1, 0]), "t")),
             helper.make_node("Mul", ["x", "w"], ["a"]), helper.make_node("Mul", ["a", "two"], ["b"]),
             helper.make_node("Add", ["b", "row"], ["c"]), helper.make_node("Gather", ["c", "at"], ["y"])]  # fmt: skip
    assert set(load(model(nodes, [info("x", 3)], [info("y", 3)]), tmp_path).state) == {"w"}
    other = numpy_helper.from_array(np.ones(3, np.float32), "other")
    nodes[4] = helper.make_node("Sum", ["x", "w", "other"], ["a"])
    assert set(load(model(nodes, [info("x", 3)], [info("y", 3)], [other]), tmp_path).state) == {"other"}


def test_inputs_that_no_graph_takes(tmp_path: Path) -> None:
    node = helper.make_node("Relu", ["x"], ["y"])
    with pytest.raises(FormatError, match="input 'x' has no shape: export with one"):
        load(model([node], [helper.make_tensor_value_info("x", FLOAT, None)], [info("y", 2)]), tmp_path)
    several = helper.make_tensor_sequence_value_info("x", FLOAT, [2])
    first = helper.make_node("SequenceLength", ["x"], ["y"])
    with pytest.raises(FormatError, match="input 'x' is not a tensor of a type that MindSpore has"):
        load(model([first], [several], [info("y", kind=TensorProto.INT64)]), tmp_path)


def test_the_opset_is_that_of_onnx_itself(tmp_path: Path) -> None:
    made = model([helper.make_node("Relu", ["x"], ["y"])], [info("x", 2)], [info("y", 2)])
    made.opset_import.reverse()
    assert [node.op.name for node in load(made, tmp_path).graphs["step"]] == ["ReLU"]
    del made.opset_import[1]
    with pytest.raises(FormatError, match="does not say which opset it uses"):
        load(made, tmp_path)
