"""Programs on disk: what is saved comes back, what is damaged says where, and nothing is ever half written."""

from __future__ import annotations

import gc
import json
import os
import warnings
from pathlib import Path

import numpy as np
import pytest
from boost_compile.ir.core.data import BytesData, MappedData, MappedFile, ZeroData
from boost_compile.ir.core.errors import Error, FormatError
from boost_compile.ir.core.graph import Graph
from boost_compile.ir.core.program import Entry, Program, Schedule, StateVariable
from boost_compile.ir.files import atomic
from boost_compile.ir.formats.storage.load import load
from boost_compile.ir.formats.storage.save import save

from tests.equality import programs_equal, structurally_equal
from tests.ir.formats.storage.two_graphs import T, two_graphs


def test_a_program_comes_back(tmp_path):
    program = two_graphs()
    save(program, tmp_path / "p.boost")
    again = load(tmp_path / "p.boost")
    assert programs_equal(program, again) is None
    assert again.reports == program.reports
    assert again.metadata == program.metadata
    assert again.source == program.source
    for name, variable in program.state.items():
        other = again.state[name]
        assert (other.type, other.role, other.trainable, other.info) == (
            variable.type,
            variable.role,
            variable.trainable,
            variable.info,
        )
        assert bytes(other.data.view()) == bytes(variable.data.view()), name
    assert list(again.state) == list(program.state)
    assert list(again.graphs["apply"].states) == ["accum.w", "w"]
    assert [n.origin for n in again.graphs["accumulate"]] == [n.origin for n in program.graphs["accumulate"]]
    files = sorted(p.name for p in (tmp_path / "p.boost").iterdir())
    assert files == ["accumulate.mindir", "apply.mindir", "program.json", "state.safetensors"]
    assert os.listdir(tmp_path) == ["p.boost"]


def test_state_is_stored_once_mapped_and_without_zeros(tmp_path):
    from safetensors.numpy import load_file

    save(two_graphs(), tmp_path / "p.boost")
    stored = load_file(tmp_path / "p.boost" / "state.safetensors")
    assert "accum.w" not in stored
    assert "count" not in stored
    assert {"w", "minus zero", "é bfloat16"} <= set(stored)
    np.testing.assert_array_equal(stored["w"], np.array([1, -0.0, np.nan], np.float32))
    state = load(tmp_path / "p.boost").state
    assert isinstance(state["w"].data, MappedData)
    assert isinstance(state["accum.w"].data, ZeroData)


@pytest.mark.parametrize("name", ["mlp", "lenet_bn", "mlp_loss_scale_dynamic", "gpt_tied", "loop", "printing"])
def test_an_untouched_export_through_a_directory(name, exported, tmp_path):
    program = load(exported(name))
    save(program, tmp_path / "p.boost")
    again = load(tmp_path / "p.boost")
    assert programs_equal(program, again) is None
    names = [[n.name for n in g] for g in program.graphs["step"].all_graphs()]
    assert [[n.name for n in g] for g in again.graphs["step"].all_graphs()] == names
    save(again, tmp_path / "p.mindir")
    assert structurally_equal(load(tmp_path / "p.mindir").graphs["step"], program.graphs["step"]) is None


def test_a_saved_graph_runs_in_mindspore_on_state_that_is_passed_in(exported, tmp_path):
    import mindspore as ms

    from tests.ir.calling import CallWithState
    from tests.networks import CASES

    ms.set_context(mode=ms.GRAPH_MODE, device_target="CPU")
    program = load(exported("mlp"))
    save(program, tmp_path / "p.boost")
    batches = CASES["mlp"].batches(3)

    native = ms.nn.GraphCell(ms.load(str(exported("mlp"))))
    expected = [native(*map(ms.Tensor, b)).asnumpy().tobytes() for b in batches]

    variables = program.state.values()
    parameters = [ms.Parameter(ms.Tensor(v.initial.copy()), name=v.name) for v in variables]
    cell = CallWithState(ms.load(str(tmp_path / "p.boost" / "step.mindir")), parameters)
    assert [cell(*map(ms.Tensor, b)).asnumpy().tobytes() for b in batches] == expected
    trained = {p.name: p.asnumpy().tobytes() for p in native.get_parameters()}
    assert {p.name: p.asnumpy().tobytes() for p in parameters} == trained
    assert trained["fc1.weight" if "fc1.weight" in trained else next(iter(trained))]


def test_a_program_replaces_itself_while_its_state_is_mapped(tmp_path):
    save(two_graphs(), tmp_path / "p.boost")
    program = load(tmp_path / "p.boost")
    program.name = "renamed"
    save(program, tmp_path / "p.boost")
    again = load(tmp_path / "p.boost")
    assert again.name == "renamed"
    assert bytes(again.state["w"].data.view()) == bytes(two_graphs().state["w"].data.view())
    assert os.listdir(tmp_path) == ["p.boost"]


def test_a_failed_write_leaves_the_old_program_and_nothing_else(tmp_path, monkeypatch):
    save(two_graphs(), tmp_path / "p.boost")
    broken = two_graphs()
    broken.graphs["apply"].state("unknown", T)
    broken.state["w"].data = BytesData(b"short")
    with pytest.raises(Error, match="'w' is float32"):
        save(broken, tmp_path / "p.boost")
    assert programs_equal(load(tmp_path / "p.boost"), two_graphs()) is None
    assert os.listdir(tmp_path) == ["p.boost"]

    real, calls = os.rename, []

    def fails_once(a, b):
        calls.append(b)
        if len(calls) == 2:
            raise OSError(28, "No space left on device")
        real(a, b)

    monkeypatch.setattr(atomic, "exchange", lambda a, b: False)
    monkeypatch.setattr(atomic.os, "rename", fails_once)
    with pytest.raises(Error, match="No space left"):
        save(two_graphs(), tmp_path / "p.boost")
    assert len(calls) == 3
    assert programs_equal(load(tmp_path / "p.boost"), two_graphs()) is None
    assert os.listdir(tmp_path) == ["p.boost"]


def test_places_where_a_program_cannot_stand(tmp_path):
    (tmp_path / "file").write_bytes(b"mine")
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "thesis.txt").write_bytes(b"mine")
    (tmp_path / "empty").mkdir()
    for path, says in [
        ("file", "something stands there"),
        ("folder", "something stands there"),
        ("file/p.boost", "cannot be written"),
        ("missing/p.boost", "cannot be written"),
        ("missing/p.mindir", "cannot be written"),
        ("n" * 300, "cannot be written"),
    ]:
        with pytest.raises(Error, match=says):
            save(_one_graph(), tmp_path / path)
    with pytest.raises(Error, match="names no file"):
        save(_one_graph(), "/")
    save(_one_graph(), tmp_path / "empty")
    assert (tmp_path / "folder" / "thesis.txt").read_bytes() == (tmp_path / "file").read_bytes() == b"mine"
    assert sorted(os.listdir(tmp_path)) == ["empty", "file", "folder"]


def _one_graph() -> Program:
    graph = Graph("step")
    graph.result = graph.create("Add", [graph.add_input("x", T), graph.state("w", T)])
    graph.outputs = ("loss",)
    return Program({"step": graph}, {"w": StateVariable("w", T, ZeroData(12))}, Schedule((Entry("step"),)))


@pytest.mark.parametrize("name", ["a/b", "..", "", "a\\b", ".hidden", "a\0b", "x" * 300])
def test_graph_names_that_cannot_be_file_names(name, tmp_path):
    program = _one_graph()
    program.graphs = {name: program.graphs["step"]}
    with pytest.raises(Error, match="cannot be saved"):
        save(program, tmp_path / "p.boost")
    assert os.listdir(tmp_path) == []


def test_an_input_that_is_named_like_a_state(tmp_path):
    program = _one_graph()
    program.graphs["step"].inputs[0].name = "w"
    save(program, tmp_path / "p.boost")
    again = load(tmp_path / "p.boost")
    assert programs_equal(program, again) is None
    assert again.graphs["step"].inputs[0].name == "w"


def test_one_graph_becomes_one_mindir(tmp_path):
    save(_one_graph(), tmp_path / "p.mindir")
    again = load(tmp_path / "p.mindir")
    assert structurally_equal(again.graphs["step"], _one_graph().graphs["step"]) is None
    assert bytes(again.state["w"].data.view()) == bytes(12)


def test_the_text_form(tmp_path):
    save(_one_graph(), tmp_path / "p.txt")
    assert structurally_equal(load(tmp_path / "p.txt").graphs["step"], _one_graph().graphs["step"]) is None
    (tmp_path / "bad.txt").write_bytes(b"\xff\xfe")
    with pytest.raises(FormatError, match="not UTF-8"):
        load(tmp_path / "bad.txt")


DAMAGE = {
    "format": (lambda d: d.update(format=2), r"\$\.format: expected 1"),
    "no graphs": (lambda d: d.pop("graphs"), r"\$: 'graphs' is missing"),
    "graphs": (lambda d: d.update(graphs=[]), r"\$\.graphs: expected an object"),
    "file elsewhere": (lambda d: d["graphs"]["apply"].update(file="../x.mindir"), r"\$\.graphs\.apply\.file"),
    "no such file": (lambda d: d["graphs"]["apply"].update(file="x.mindir"), "x.mindir: no such file"),
    "other file": (
        lambda d: d["graphs"]["apply"].update(file="accumulate.mindir"),
        "stands where the program's state",
    ),
    "unknown state": (lambda d: d["graphs"]["apply"]["states"].append("z"), r"\$\.graphs\.apply\.states\[2\]"),
    "missing state": (lambda d: d["state"].pop("w"), r"states\[\d\]: expected a name from \$\.state"),
    "inputs": (lambda d: d["graphs"]["apply"]["inputs"].append({"name": "y"}), r"\$\.graphs\.apply\.inputs"),
    "too many states": (lambda d: d["graphs"]["apply"]["states"].append("count"), "inputs, fewer than its 3 states"),
    "outputs": (lambda d: d["graphs"]["apply"].update(outputs=[1]), r"outputs\[0\]: expected a string, found 1"),
    "origin": (
        lambda d: d["graphs"]["accumulate"]["origins"][""].append([99, [], []]),
        r"origins\.\[\d\]: expected \[position",
    ),
    "cycle": (lambda d: d["schedule"].update(cycle=[]), r"\$\.schedule\.cycle: expected at least one"),
    "repeat": (lambda d: d["schedule"]["cycle"][0].update(repeat=0), r"cycle\[0\]\.repeat: .* at least 1, found 0"),
    "repeat true": (lambda d: d["schedule"]["cycle"][0].update(repeat=True), r"cycle\[0\]\.repeat"),
    "unknown graph": (lambda d: d["schedule"]["cycle"][0].update(graph="z"), r"cycle\[0\]\.graph: expected one of"),
    "flush": (lambda d: d["schedule"].update(flush="z"), r"\$\.schedule\.flush"),
    "count": (lambda d: d["schedule"].update(count=["w"]), r"\$\.schedule\.count"),
    "target": (lambda d: d.update(target="tpu"), r"\$\.target: expected one of cpu, gpu, ascend"),
    "dtype": (lambda d: d["state"]["w"].update(dtype="float31"), r"\$\.state\.w\.dtype"),
    "shape": (lambda d: d["state"]["w"].update(shape=[-1]), r"\$\.state\.w\.shape\[0\]"),
    "other shape": (lambda d: d["state"]["w"].update(shape=[4]), r"\$\.state\.w: .* needs 16 bytes"),
    "other dtype": (lambda d: d["state"]["accum.w"].update(dtype="int32"), "the program's state 'accum.w' is int32"),
    "role": (lambda d: d["state"]["w"].update(role="hero"), r"\$\.state\.w\.role"),
    "trainable": (lambda d: d["state"]["w"].update(trainable="yes"), r"\$\.state\.w\.trainable"),
    "initial": (lambda d: d["state"]["w"].update(initial="ones"), r"\$\.state\.w\.initial"),
    "not stored": (lambda d: d["state"]["accum.w"].update(initial="file"), r"'accum\.w' is not in state\.safetensors"),
    "report": (lambda d: d["reports"][0].update(colour=1), r"\$\.reports\[0\]: not the result of a pass"),
    "reports": (lambda d: d.update(reports=[3]), r"\$\.reports\[0\]: expected an object"),
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_a_damaged_document_says_where(damage, tmp_path):
    save(two_graphs(), tmp_path / "p.boost")
    path = tmp_path / "p.boost" / "program.json"
    document = json.loads(path.read_text())
    change, says = DAMAGE[damage]
    change(document)
    path.write_text(json.dumps(document))
    with pytest.raises(FormatError, match=says) as caught:
        load(tmp_path / "p.boost")
    assert str(caught.value).startswith(str(tmp_path / "p.boost"))


def test_damaged_files_of_a_directory(tmp_path):
    home = tmp_path / "p.boost"
    for name, data, says in [
        ("program.json", b"{", "not a JSON document"),
        ("program.json", b"\xff", "not UTF-8: the file is damaged"),
        ("program.json", b"[" * 100_000, "not a JSON document"),
        ("program.json", b"3", "expected an object"),
        ("state.safetensors", b"", "not a safetensors file"),
        ("state.safetensors", b"\xff" * 100, "not a safetensors file"),
        ("apply.mindir", b"", "empty"),
        ("apply.mindir", b"\xff" * 100, "not a MindIR"),
    ]:
        save(two_graphs(), home)
        (home / name).write_bytes(data)
        with pytest.raises(FormatError, match=says):
            load(home)
        save(two_graphs(), home)
        (home / name).unlink()
        with pytest.raises(FormatError, match=r"missing|no such file|without program\.json"):
            load(home)
        (home / "program.json").write_bytes(b"{}")


def test_a_truncated_state_file(tmp_path):
    save(two_graphs(), tmp_path / "p.boost")
    path = tmp_path / "p.boost" / "state.safetensors"
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(FormatError, match="not a safetensors file"):
        load(tmp_path / "p.boost")


def test_a_directory_without_a_program(tmp_path):
    with pytest.raises(FormatError, match=r"without program\.json"):
        load(tmp_path)
    with pytest.raises(FormatError, match="no such file"):
        load(tmp_path / "missing.boost")


def test_all_files_of_a_program_can_be_read_by_the_same_people(tmp_path):
    save(two_graphs(), tmp_path / "p.boost")
    (tmp_path / "any").touch()
    assert {p.stat().st_mode for p in (tmp_path / "p.boost").iterdir()} == {(tmp_path / "any").stat().st_mode}


def test_a_mapped_file_that_nobody_needs_is_closed_without_a_warning(tmp_path: Path) -> None:
    (tmp_path / "data").write_bytes(b"12345678")
    mapped = MappedFile(tmp_path / "data")
    view = mapped.view()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        del mapped
        gc.collect()
    assert not [w for w in caught if w.category is ResourceWarning]
    assert bytes(view) == b"12345678"
