"""Whatever stands in a file: a program or one clear FormatError, never another exception, a hang or much memory."""

from __future__ import annotations

import io
import json
import os
import struct
import zipfile

import numpy as np
import pytest
from boost_compile.ir.core.errors import Error, FormatError
from boost_compile.ir.formats.mindir import schema as s
from boost_compile.ir.formats.mindir.reader import read_mindir
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import boost_compile as bc
from tests.ir.protos import mind_ir, parse

K = s.AttributeKind


def small_model():
    """x + w, and a call of a function through Partial, with a constant."""
    m = mind_ir().ModelProto(ir_version="1.1", producer_name="MindSpore", little_endian=True, mind_ir_version=3)
    m.primitives.add(name="Add:1", op_type="Add", instance_name="", prim_type=2)
    m.primitives.add(name="Partial:2", op_type="Partial", instance_name="", prim_type=1)
    g, f = m.graph, m.functions.add()
    g.name, f.name = "main", "f"
    shape = mind_ir().AttributeProto(name="shape", type=K["TENSORS"])
    shape.tensors.add(dims=[2], data_type=1)
    closure = mind_ir().AttributeProto(name="shape", type=K["FUNCGRAPHCLOSURE"], s=b"f")

    def node(graph, name, op, inputs, attribute):
        graph.node.add(name=name, output=[name], op_type=op, input=inputs, attribute=[attribute], domain="Default")

    g.input.add(name="main:x").tensor.add(dims=[2], data_type=1)
    g.parameter.add(name="main:w", dims=[2], data_type=1, raw_data=bytes(8))
    node(g, "c", "Constant", [], mind_ir().AttributeProto(name="value", type=K["INT64"], i=1))
    node(g, "main:a", "REF::Add:1", ["main:x", "main:w"], shape)
    node(g, "main:p", "REF::Partial:2", ["f", "main:a", "c"], closure)
    node(g, "main:r", "REF::main:p", [], shape)
    f.input.add(name="f:y").tensor.add(dims=[2], data_type=1)
    node(f, "f:b", "REF::Add:1", ["f:y", "f:y"], shape)
    g.output.add(name="main:r").tensor.add(dims=[2], data_type=1)
    f.output.add(name="f:b").tensor.add(dims=[2], data_type=1)
    return m


def write(tmp_path, model):
    path = tmp_path / "m.mindir"
    path.write_bytes(model if isinstance(model, bytes) else model.SerializeToString())
    return path


def refused(path, says):
    with pytest.raises(FormatError, match=says) as caught:
        read_mindir(path)
    message = str(caught.value)
    assert message.startswith(str(path))
    assert "\n" not in message


@pytest.mark.mindspore
def test_the_small_model_is_valid(tmp_path):
    program = read_mindir(write(tmp_path, small_model()))
    assert [n.name for n in program.graphs["step"]] == ["a", "p", "r"]


def _zip():
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.writestr("data.txt", "x" * 5000)
    return buffer.getvalue()


def _onnx():
    from onnx import TensorProto, helper

    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [1])
    graph = helper.make_graph([helper.make_node("Relu", ["x"], ["y"])], "g", [x], [x])
    return helper.make_model(graph, producer_name="a producer").SerializeToString()


def _safetensors():
    header = json.dumps({"a": {"dtype": "U8", "shape": [1], "data_offsets": [0, 1]}}).encode()
    return struct.pack("<Q", len(header)) + header + b"x"


@pytest.mark.parametrize(
    ("data", "says"),
    [
        (b"\xff\xd8\xff\xe0\x00\x10JFIF" + bytes(range(7, 250)) * 4, "a JPEG image"),
        (b"\x89PNG\r\n\x1a\n" + bytes(range(7, 250)) * 4, "a PNG image"),
        (_zip(), "a zip archive"),
        (_onnx(), "an ONNX model"),
        (_safetensors(), "a safetensors file"),
        (b"import mindspore\n\nprint(1)\n", "a text file"),
        (bytes(10_000), "filled with zeros"),
        (b"\xa7\x91" * 5000, "not a MindIR"),
    ],
    ids=["jpeg", "png", "zip", "onnx", "safetensors", "text", "zeros", "other"],
)
def test_other_files_are_recognised(data, says, tmp_path):
    refused(write(tmp_path, data), says)


@pytest.mark.mindspore
def test_a_checkpoint_is_recognised(tmp_path):
    import mindspore as ms

    path = tmp_path / "net.ckpt"
    ms.save_checkpoint([{"name": "w", "data": ms.Tensor(np.ones((40, 40), np.float32))}], str(path))
    refused(path, "a MindSpore checkpoint")


@pytest.mark.mindspore
@pytest.mark.parametrize("mode", ["AES-GCM", "AES-CBC", "SM4-CBC"])
def test_encrypted_files_are_recognised(mode, tmp_path):
    import mindspore as ms

    path = tmp_path / "secret.mindir"
    x = ms.Tensor(np.ones(2, np.float32))
    ms.export(ms.nn.ReLU(), x, file_name=str(path), file_format="MINDIR", enc_key=b"0123456789ABCDEF", enc_mode=mode)
    refused(path, f"encrypted MindIR .{mode}.*without enc_key")


def test_paths_that_are_no_file(tmp_path):
    refused(tmp_path / "missing.mindir", "no such file")
    refused(tmp_path, "not a regular file")
    refused(write(tmp_path, b""), "empty")
    refused(tmp_path / ("x" * 400), "cannot be read|no such file")
    os.mkfifo(tmp_path / "pipe.mindir")
    refused(tmp_path / "pipe.mindir", "not a regular file")


def _edit(**changes):
    def apply(m):
        for key, value in changes.items():
            setattr(m, key, value)

    return apply


def _twice(where):
    return lambda m: where(m).extend([where(m)[-1]])


def _cycle(m):
    m.graph.node[1].input[0] = "main:r"


def _self_call(m):
    m.graph.node[3].op_type = "REF::main:r"


def _huge(m):
    m.graph.parameter[0].dims[:] = [2**62, 2**62, 2**62]


def _external(location, offset=0, length=8):
    def apply(m):
        p = m.graph.parameter[0]
        p.ClearField("raw_data")
        p.external_data.location = location
        p.external_data.offset = offset
        p.external_data.length = length

    return apply


def _place_in_constant(m):
    a = m.graph.node[0].attribute[0]
    a.CopyFrom(mind_ir().AttributeProto(name="value", type=K["TENSORS"]))
    a.tensors.add(name="value0", dims=[2], data_type=1).external_data.length = 8


def _place_in_large_constant(m):
    a = m.graph.node[0].attribute[0]
    a.CopyFrom(mind_ir().AttributeProto(name="value", type=K["TUPLE"]))
    a.values.add(type=K["TENSORS"]).tensors.add(name="value0", dims=[40_000], data_type=9, raw_data=bytes(40_000))
    a.values.add(type=K["TENSORS"]).tensors.add(name="value0", dims=[2], data_type=1).external_data.length = 8


EDITS = {
    "version": (_edit(mind_ir_version=4), "MindIR version 4"),
    "no version": (lambda m: m.ClearField("mind_ir_version"), "MindIR version none"),
    "big-endian": (_edit(little_endian=False), "big-endian"),
    "no graph": (lambda m: m.ClearField("graph"), "0 main graphs"),
    "duplicate input": (_twice(lambda m: m.graph.input), "two inputs .* 'main:x'"),
    "duplicate parameter": (_twice(lambda m: m.graph.parameter), "two parameters .* 'w'"),
    "duplicate node": (_twice(lambda m: m.graph.node), "'main:r' is defined twice"),
    "duplicate function": (_twice(lambda m: m.functions), "two functions are named 'f'"),
    "duplicate primitive": (_twice(lambda m: m.primitives), "two primitives are named 'Partial:2'"),
    "several outputs": (_twice(lambda m: m.graph.output), "2 outputs"),
    "no output": (lambda m: m.graph.ClearField("output"), "0 outputs"),
    "unknown result": (lambda m: setattr(m.graph.output[0], "name", "z"), "returns 'z'"),
    "unknown operand": (lambda m: m.graph.node[1].input.append("main:z"), "node 'a': 'main:z' is defined nowhere"),
    "unknown primitive": (lambda m: setattr(m.graph.node[1], "op_type", "REF::Mul:9"), "'Mul:9' is defined nowhere"),
    "missing function": (lambda m: m.ClearField("functions"), "'f' is defined nowhere"),
    "value of another function": (lambda m: m.functions[0].node[0].input.append("main:a"), "'main:a' is defined now"),
    "cycle": (_cycle, "cycle"),
    "self-call": (_self_call, "cycle"),
    "two results of a node": (lambda m: m.graph.node[1].output.append("o"), "2 outputs, not one"),
    "no op_type": (lambda m: m.graph.node[1].ClearField("op_type"), "no op_type"),
    "constant without value": (lambda m: m.graph.node[0].ClearField("attribute"), "constant 'c' has the attributes"),
    "huge dimensions": (_huge, "has 8 bytes of data"),
    "negative dimension": (lambda m: m.graph.parameter[0].dims.append(-1), "dimensions are fixed"),
    "element type": (lambda m: setattr(m.graph.parameter[0], "data_type", 18), "element type 18"),
    "compression": (lambda m: setattr(m.graph.parameter[0], "compression_type", 3), "compressed"),
    "parameter of a function": (lambda m: m.functions[0].parameter.add().CopyFrom(m.graph.parameter[0]), "belongs to"),
    "empty location": (_external(""), "external data without a location"),
    "both places": (lambda m: setattr(m.graph.parameter[0].external_data, "location", "d"), "both inside and outside"),
    "constant outside": (_place_in_constant, "only parameters"),
    "absolute": (_external("/etc/passwd"), "not a path below"),
    "absolute on Windows": (_external("C:\\data"), "not a path below"),
    "parent": (_external("a/../../d"), "not a path below"),
    "nul": (_external("a\0b"), "not a path below"),
    "too long": (_external("d" * 5000), "cannot be reached|missing"),
    "missing data": (_external("none/data_0"), "is missing"),
    "directory": (_external("folder"), "is missing"),
    "link": (_external("link"), "leads out"),
    "mark": (_external("bad"), "mark of little-endian"),
    "past the end": (_external("good", 64, 9), "outside of its data file"),
    "far past the end": (_external("good", 2**62, 8), "outside of its data file"),
    "negative offset": (_external("good", -8, 8), "outside of its data file"),
    "wrong length": (_external("good", 64, 4), "4 bytes of data"),
    "large constant outside": (_place_in_large_constant, "only parameters"),
    "map parameter": (lambda m: m.graph.map_parameter.add(name="table"), "MapParameter"),
}


@pytest.mark.mindspore
@pytest.mark.parametrize("edit", EDITS)
def test_models_that_are_wrong(edit, tmp_path):
    change, says = EDITS[edit]
    (tmp_path / "outside").write_bytes(b"\x01" + bytes(100))
    home = tmp_path / "home"
    (home / "folder").mkdir(parents=True)
    (home / "good").write_bytes(b"\x01" + bytes(63) + b"12345678")
    (home / "bad").write_bytes(b"\x00" + bytes(100))
    (home / "link").symlink_to(tmp_path / "outside")
    model = small_model()
    change(model)
    (home / "m.mindir").write_bytes(model.SerializePartialToString())
    refused(home / "m.mindir", says)


@pytest.mark.mindspore
def test_data_beside_the_file_is_found(tmp_path):
    (tmp_path / "good").write_bytes(b"\x01" + bytes(63) + b"12345678")
    model = small_model()
    _external("good", 64, 8)(model)
    assert bytes(read_mindir(write(tmp_path, model)).state["w"].data.view()) == b"12345678"


@pytest.mark.mindspore
def test_names_that_are_not_utf8(tmp_path):
    encoded = small_model().SerializeToString()
    for name in (b"main:x", b"main:w", b"main:a", b"main:r", b"Default", b"REF::Add:1", b"Add:1", b"value", b"main"):
        assert name in encoded
        refused(write(tmp_path, encoded.replace(name, b"\xff" * len(name))), ".")


def test_a_truncated_export(exported, tmp_path):
    data = exported("mlp").read_bytes()
    for part in (0.999, 0.9, 0.5, 0.1, 0.02):
        refused(write(tmp_path, data[: int(len(data) * part)]), "truncated")


@pytest.mark.mindspore
def test_a_deep_chain_of_forward_references(tmp_path):
    model = small_model()
    template = model.graph.node[1]
    for i in range(20_000):
        node = model.graph.node.add()
        node.CopyFrom(template)
        node.name = f"main:n{i}"
        node.output[0] = node.name
        node.input[0] = f"main:n{i + 1}" if i < 19_999 else "main:x"
    assert len(read_mindir(write(tmp_path, model)).graphs["step"]) == 20_003


fuzz = settings(max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])


@pytest.fixture(scope="module")
def training_file(exported):
    """A real export with functions, its weights cut down to what makes flips hit structure."""
    model = parse(exported("mlp_loss_scale_dynamic"))
    assert len(model.functions) == 2
    return model.SerializeToString()


def reads_or_refuses(path, data):
    path.write_bytes(data)
    try:
        program = read_mindir(path)
    except Error:
        return
    for graph in program.graphs["step"].all_graphs():
        seen = {*graph.inputs, *graph.states.values()}
        for node in graph:
            assert all(v in seen or type(v).__name__ in ("Constant", "GraphRef") for v in node.operands)
            seen.add(node)


@fuzz
@given(st.data())
def test_truncation_anywhere(training_file, tmp_path, data):
    end = data.draw(st.integers(0, len(training_file) - 1))
    reads_or_refuses(tmp_path / "m.mindir", training_file[:end])


@fuzz
@given(st.data())
def test_flipped_bytes(training_file, tmp_path, data):
    damaged = bytearray(training_file)
    for at in data.draw(st.lists(st.integers(0, len(damaged) - 1), min_size=1, max_size=8)):
        damaged[at] = data.draw(st.integers(0, 255))
    reads_or_refuses(tmp_path / "m.mindir", bytes(damaged))


@pytest.mark.mindspore
def test_every_truncation_and_every_flip_of_a_small_file(tmp_path):
    encoded = small_model().SerializeToString()
    path = tmp_path / "m.mindir"
    for at in range(len(encoded)):
        reads_or_refuses(path, encoded[:at])
        for flip in (0x01, 0x80, 0xFF):
            damaged = bytearray(encoded)
            damaged[at] ^= flip
            reads_or_refuses(path, bytes(damaged))


@pytest.mark.mindspore
def test_parameters_without_data_are_read_and_refused_where_their_values_are_needed(tmp_path):
    """As MindSpore's compiler writes graphs."""
    model = small_model()
    model.graph.parameter[0].ClearField("raw_data")
    (tmp_path / "m.mindir").write_bytes(model.SerializePartialToString())
    program = bc.load(tmp_path / "m.mindir")
    assert not bc.diff(program, program, computation=True)
    for needs in (lambda p: p.state["w"].initial, lambda p: p.save(tmp_path / "n.mindir"), bc.Session):
        with pytest.raises(FormatError, match=r"'w' has no value.*with_values"):
            needs(program)
    assert not (tmp_path / "n.mindir").exists()
    assert program.with_values({"w": np.ones(2, np.float32)}).state["w"].initial.all()
