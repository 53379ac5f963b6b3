"""Reading and writing an untouched file: nothing is lost, and MindSpore trains it bit for bit like the source."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest
from boost_compile.ir.core.data import BytesData, MappedData, ZeroData
from boost_compile.ir.core.errors import Error, VerifyError
from boost_compile.ir.core.graph import Graph
from boost_compile.ir.core.op import CALL
from boost_compile.ir.core.program import StateVariable
from boost_compile.ir.core.types import UMONAD, FunctionType, TupleType, tensor
from boost_compile.ir.formats.mindir.reader import read_mindir
from boost_compile.ir.formats.mindir.writer import write_mindir
from boost_compile.ir.text import parse_program

from tests.ir.protos import content, differences, parse

FILES = [
    "mlp",
    "mlp_dynamic_batch",
    "mlp_half_weights",
    "mlp_adam_weight_decay",
    "mlp_loss_scale_dynamic",
    "lenet_bn_adam",
    "dropout",
    "branch",
    "loop",
    "printing",
    "gpt_tied",
]
# Not "loop": MindSpore 2.10 itself never finishes compiling that file after mindspore.load.
TRAINED = ["mlp", "mlp_dynamic_batch", "lenet_bn_adam", "dropout", "branch"]


@pytest.mark.parametrize("name", FILES)
def test_nodes_attributes_and_edges_survive(name, exported, tmp_path):
    source = exported(name)
    program = read_mindir(source)
    copy = tmp_path / "copy.mindir"
    write_mindir(copy, program.graphs["step"], program.state, program.metadata)
    assert differences(copy, source) == []


def _train(path, case, steps=3):
    import mindspore as ms
    from mindspore import nn

    ms.set_context(mode=ms.GRAPH_MODE, device_target="CPU")
    ms.set_seed(1)
    cell = nn.GraphCell(ms.load(str(path)))
    losses = [cell(*map(ms.Tensor, batch)).asnumpy() for batch in case.batches(steps)]
    return losses, {p.name: p.asnumpy().copy() for p in cell.get_parameters()}


@pytest.mark.parametrize("name", TRAINED)
def test_mindspore_trains_the_copy_like_the_source(name, exported, tmp_path):
    from tests.networks import CASES

    source = exported(name)
    program = read_mindir(source)
    write_mindir(tmp_path / "copy.mindir", program.graphs["step"], program.state, program.metadata)
    _same(_train(source, CASES[name]), _train(tmp_path / "copy.mindir", CASES[name]), program.state)


def _same(expected, found, state):
    (losses, parameters), (copied_losses, copied_parameters) = expected, found
    assert [a.tobytes() for a in losses] == [a.tobytes() for a in copied_losses]
    assert len({a.tobytes() for a in losses}) > 1
    assert list(parameters) == list(copied_parameters)
    assert parameters
    for name, value in parameters.items():
        assert value.tobytes() == copied_parameters[name].tobytes(), name
    assert any(value.tobytes() != state[name].initial.tobytes() for name, value in parameters.items())


def test_data_files_are_read_and_written_as_mindspore_does(split_export, tmp_path):
    from tests.networks import CASES

    program = read_mindir(split_export)
    assert all(isinstance(v.data, MappedData) for v in program.state.values())
    target = tmp_path / "big.mindir"
    total = sum(v.nbytes for v in program.state.values())
    write_mindir(target, program.graphs["step"], program.state, program.metadata, external=total - 1)

    parameters = parse(target).graph.parameter
    assert {p.external_data.location for p in parameters} == {"big_variables/data_0"}
    assert not any(p.raw_data for p in parameters)
    assert {p.external_data.offset % 64 for p in parameters} == {0}
    assert (tmp_path / "big_variables" / "data_0").read_bytes()[:64] == b"\x01" + bytes(63)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["big.mindir", "big_variables"]
    again = read_mindir(target)
    assert {n: v.data for n, v in again.state.items()} == {n: v.data for n, v in program.state.items()}
    _same(_train(split_export, CASES["mlp"]), _train(target, CASES["mlp"]), program.state)

    # Written over itself while its own state is still mapped, and back into one file.
    write_mindir(target, again.graphs["step"], again.state, again.metadata, external=0)
    assert {n: v.data for n, v in read_mindir(target).state.items()} == {n: v.data for n, v in program.state.items()}
    write_mindir(target, again.graphs["step"], again.state, again.metadata, external=total)
    assert all(p.raw_data for p in parse(target).graph.parameter)


@pytest.mark.mindspore
def test_large_constants_stay_in_the_file(tmp_path):
    values = np.arange(50_000, dtype=np.float32)
    graph = Graph("g")
    from boost_compile.ir.core.attributes import TensorValue

    wide = TensorValue(tensor("float32", 50_000), BytesData(values.tobytes()))
    graph.result = graph.create("MakeTuple", [graph.add_input("x", tensor("float32")), graph.constant(wide)])
    write_mindir(tmp_path / "g.mindir", graph, {}, {})
    constant = read_mindir(tmp_path / "g.mindir").graphs["step"].result.operand(1)
    assert isinstance(constant.value.data, MappedData)
    assert constant.value == wide
    raw = parse(tmp_path / "g.mindir").graph.node[0].attribute[0].tensors[0]
    assert (raw.name, raw.raw_data) == ("value0", values.tobytes())
    copy = read_mindir(tmp_path / "g.mindir").graphs["step"].clone()[0]
    write_mindir(tmp_path / "copy.mindir", copy, {}, {})
    assert (tmp_path / "copy.mindir").read_bytes() == (tmp_path / "g.mindir").read_bytes()


def _chain(count):
    graph = Graph("synthetic")
    x = graph.add_input("x", tensor("float32", 4))
    w = graph.state("w", tensor("float32", 4))
    value = x
    for i in range(count):
        value = graph.create("Add", [value, w if i % 2 else x], scope=f"Default/layer{i // 100}", name=f"CNode_{i}")
        value.primal = {"unique_id": str(i)}
    graph.result = value
    return graph, {"w": StateVariable("w", tensor("float32", 4), ZeroData(16))}


def test_thousands_of_nodes_and_a_wide_tuple(tmp_path):
    """Deeper than Python's stack. Once MindSpore is imported, protobuf is slow: tests/test_linear_cost.py has more."""
    graph, state = _chain(4_000)
    graph.result = graph.create("MakeTuple", [*graph, graph.result, *[graph.inputs[0]] * 8_000])
    write_mindir(tmp_path / "a.mindir", graph, state, {})
    program = read_mindir(tmp_path / "a.mindir")
    copy = program.graphs["step"]
    assert len(copy) == 4_001
    assert [v.name for v in copy.result.operands] == [v.name for v in graph.result.operands]
    assert copy.result.type == graph.result.type
    assert program.state["w"].data.view() == bytes(16)
    write_mindir(tmp_path / "b.mindir", copy, program.state, program.metadata)
    assert (tmp_path / "b.mindir").read_bytes() == (tmp_path / "a.mindir").read_bytes()


def test_the_order_of_nodes_in_the_file_does_not_matter(exported, tmp_path):
    model = parse(exported("mlp_loss_scale_dynamic"))
    for graph in [model.graph, *model.functions]:
        nodes = list(reversed(graph.node))
        del graph.node[:]
        graph.node.extend(nodes)
    (tmp_path / "reversed.mindir").write_bytes(model.SerializeToString())
    program = read_mindir(tmp_path / "reversed.mindir")
    for graph in program.graphs["step"].all_graphs():
        seen = set()
        for node in graph:
            assert all(v in seen for v in node.operands if v in set(graph))
            seen.add(node)
    write_mindir(tmp_path / "copy.mindir", program.graphs["step"], program.state, program.metadata)
    nodes = [g["nodes"] for g in content(exported("mlp_loss_scale_dynamic"))["graphs"].values()]
    copied = [g["nodes"] for g in content(tmp_path / "copy.mindir")["graphs"].values()]
    assert sum(map(len, nodes)) == sum(map(len, copied))
    # A constant that several graphs share moves to where it is used first; the rest stays where it was.
    assert sum(nodes, type(nodes[0])()) == sum(copied, type(nodes[0])())


def test_program_of_a_file(exported):
    path = exported("mlp_loss_scale_dynamic")
    model = parse(path)
    program = read_mindir(path)
    graph = program.graphs["step"]
    assert program.name == "mlp_loss_scale_dynamic"
    assert (graph.name, graph.info["name"]) == ("step", model.graph.name)
    assert graph.outputs == ("loss", "overflow", "loss_scale")
    assert list(program.state) == [p.name.partition(":")[2] for p in model.graph.parameter]
    for p in model.graph.parameter:
        variable = program.state[p.name.partition(":")[2]]
        assert variable.data.view() == p.raw_data
        assert variable.shape == tuple(p.dims)
    assert [v.name for v in graph.inputs] == [i.name.partition(":")[2] for i in model.graph.input]
    assert list(graph.functions) == [f.name for f in model.functions]
    assert {type(n.type) for n in graph if n.op.name in ("Partial", "Switch")} == {FunctionType}
    (call,) = [n for n in graph if n.op is CALL]
    assert call.operand(0).op.name == "Switch"
    assert program.metadata["producer_name"] == "MindSpore"
    import hashlib

    assert program.source == {"file": path.name, "sha256": hashlib.sha256(path.read_bytes()).hexdigest()}


@pytest.mark.parametrize("kind", ["input", "state", "constant"])
def test_a_result_that_is_no_node(kind, tmp_path):
    graph = Graph("g")
    t = tensor("float32", 2)
    x, w = graph.add_input("x", t), graph.state("w", t)
    graph.result = {"input": x, "state": w, "constant": graph.constant((1, 2.0), "c")}[kind]
    state = {"w": StateVariable("w", t, BytesData(b"abcdefgh"))}
    write_mindir(tmp_path / "g.mindir", graph, state, {})
    again = read_mindir(tmp_path / "g.mindir").graphs["step"].result
    assert (type(again), again.name, again.type) == (type(graph.result), graph.result.name, graph.result.type)


@pytest.mark.mindspore
def test_clashing_names_are_settled(tmp_path):
    graph = Graph("g")
    t = tensor("float32", 2)
    x = graph.add_input("x", t)
    w = graph.state("w", t)
    f = graph.add_function("f")
    f.result = f.create("Add", [f.add_input("x", t), f.add_input("y", t)], name="sum")
    one, other = graph.constant(1, "c"), f.constant(2, "c")
    a = graph.create("Add", [x, w], name="x")
    b = graph.create("Add", [a, x], name="x")
    partial = graph.create("Partial", [graph.reference(f), a, b], FunctionType(("f",)), name="w")
    call = graph.create(CALL, [partial], t, name="w")
    f.result = f.create("MakeTuple", [f.result, other, f.constant(1, "c")])
    graph.result = graph.create("MakeTuple", [call, one], name="c")
    write_mindir(tmp_path / "g.mindir", graph, {"w": StateVariable("w", t, ZeroData(8))}, {})

    model = parse(tmp_path / "g.mindir")
    names = [o for g in [model.graph, *model.functions] for n in g.node for o in n.output]
    names += [i.name for i in model.graph.input] + [p.name for p in model.graph.parameter]
    assert len(names) == len(set(names))
    again = read_mindir(tmp_path / "g.mindir").graphs["step"]
    assert [v.name for v in again.inputs] == ["x"]
    assert list(again.states) == ["w"]
    function = again.functions["f"]
    assert [v.value for v in function.result.operands[1:]] == [2, 1]
    assert again.result.operand(1).value == 1
    assert [n.op.name for n in again] == [n.op.name for n in graph]


def test_state_as_trailing_inputs(exported, tmp_path):
    program = read_mindir(exported("mlp"))
    graph = program.graphs["step"]
    write_mindir(tmp_path / "s.mindir", graph, program.state, program.metadata, stateless=True)
    model = parse(tmp_path / "s.mindir")
    assert len(model.graph.parameter) == 0
    trailing = [i.name.partition(":")[2] for i in model.graph.input[len(graph.inputs) :]]
    assert trailing == list(graph.states)


def test_graphs_that_have_no_mindir_form(tmp_path):
    t = tensor("float32")
    target = tmp_path / "g.mindir"
    target.write_bytes(b"kept")
    graph = Graph("g")
    x = graph.add_input("x", t)
    with pytest.raises(VerifyError, match="no result"):
        write_mindir(target, graph, {}, {})
    a = graph.create("Add", [x, x], name="a")
    b = graph.create("Add", [a, x], name="b")
    graph.result = b
    graph.reorder([b, a])
    with pytest.raises(VerifyError, match="before it is computed"):
        write_mindir(target, graph, {}, {})
    graph.reorder([a, b])
    f = graph.add_function("f")
    f.result = f.create("Add", [a, a])
    with pytest.raises(VerifyError, match="defined outside"):
        write_mindir(target, graph, {}, {})
    f.result = f.create("Load", [f.state("w", t), f.add_input("u", UMONAD)], t)
    f.erase(next(iter(f)))
    with pytest.raises(VerifyError, match="pass it in"):
        write_mindir(target, graph, {}, {}, stateless=True)
    graph.state("w", t)
    with pytest.raises(VerifyError, match="does not have"):
        write_mindir(target, graph, {}, {})
    with pytest.raises(VerifyError, match="8 bytes"):
        write_mindir(target, graph, {"w": StateVariable("w", t, ZeroData(8))}, {})
    assert target.read_bytes() == b"kept"
    assert [p.name for p in tmp_path.iterdir()] == ["g.mindir"]


def test_places_that_cannot_be_written(exported, tmp_path):
    program = read_mindir(exported("mlp"))
    arguments = (program.graphs["step"], program.state, program.metadata)
    (tmp_path / "file").write_bytes(b"")
    (tmp_path / "folder.mindir").mkdir()
    (tmp_path / "x_variables").mkdir()
    for path, says in [
        ("file/x.mindir", "cannot be written"),
        ("missing/x.mindir", "cannot be written"),
        ("folder.mindir", "a directory stands there"),
        ("x_graph.mindir", "another name"),
    ]:
        with pytest.raises(Error, match=says):
            write_mindir(tmp_path / path, *arguments)
    with pytest.raises(Error, match="in the way"):
        write_mindir(tmp_path / "x.mindir", *arguments, external=0)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["file", "folder.mindir", "x_variables"]


def test_a_tuple_result_names_its_outputs(tmp_path):
    graph = Graph("g")
    x = graph.add_input("x", tensor("float32", 2))
    graph.result = graph.create("MakeTuple", [x, x])
    assert isinstance(graph.result.type, TupleType)
    write_mindir(tmp_path / "g.mindir", graph, {}, {})
    assert read_mindir(tmp_path / "g.mindir").graphs["step"].outputs == ("loss", "output1")


def test_header_fields_survive(exported, tmp_path):
    model = parse(exported("mlp"))
    model.user_info["author"] = "someone"
    model.domain, model.doc_string, model.producer_version = "a domain", "notes", "1"
    model.parallel.layout.add(name="w", device_arrangement_int=[2, 4], field_size=2**40, uniform_split=True)
    model.preprocessor.op.add(op_type="Map", offload=False)
    source = tmp_path / "source.mindir"
    source.write_bytes(model.SerializeToString())
    shutil.copy(source, tmp_path / "before.mindir")
    program = read_mindir(source)
    assert program.metadata["user_info"] == {"author": "someone"}
    write_mindir(source, program.graphs["step"], program.state, program.metadata)
    assert differences(source, tmp_path / "before.mindir") == []


@pytest.mark.mindspore
def test_mindspore_loads_what_text_was_written_as(tmp_path: Path) -> None:
    """A program that no MindIR file was read for has a header of its own, which MindSpore asks for."""
    import mindspore as ms
    from mindspore import nn

    program = parse_program("graph @double(%x: float32[3]) {\n  %y = Add(%x, %x)\n  return %y\n}\n")
    program.save(tmp_path / "double.mindir")
    cell = nn.GraphCell(ms.load(str(tmp_path / "double.mindir")))
    assert cell(ms.Tensor(np.float32([1, 2, 3]))).asnumpy().tolist() == [2, 4, 6]
