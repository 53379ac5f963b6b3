"""Forward graphs as Python: the module that is written computes what the file does, and exports to the same graph."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import mindspore as ms
import numpy as np
import pytest
from boost_compile.ir.analysis.compare.diff import diff
from boost_compile.ir.core.errors import Error
from boost_compile.ir.formats.python.spelling import RESERVED
from boost_compile.ir.formats.storage.load import load
from boost_compile.runtime.engine.engine import Engine
from boost_compile.tools.inspect import command
from mindspore import nn

from tests.forward import export, imported, with_loss, without_loss
from tests.ir.formats.python.corpus import CORPUS, network
from tests.networks import CASES
from tests.tools.support import assert_one_error, shell

DIFFERS = {
    "hidden_state": "reads of state wait for a write that stands before their layer",
    "printing": "reads of state wait for what is printed before their layer",
    "cosine_embedding": "squares of one value occur twice, and are paired crosswise",
    "running_average": "the exporter protects a read by a copy of its own",
}


def flat(result: Any) -> list[np.ndarray]:
    if isinstance(result, (tuple, list)):
        return [array for item in result for array in flat(item)]
    return [result.asnumpy() if isinstance(result, ms.Tensor) else np.asarray(result)]


def same(a: Any, b: Any) -> bool:
    a, b = flat(a), flat(b)
    return len(a) == len(b) and all(
        x.dtype == y.dtype and x.tobytes() == y.tobytes() for x, y in zip(a, b, strict=True)
    )


def cases() -> list[Any]:
    """All of the zoo; a few in the ordinary suite. The networks of some cases cannot be exported alone: their training
    cells call them in a way of their own."""
    alone = [c for c in CASES if c not in ("rate_input", "at_once", "in_turn", "residual_regularized")]
    return [c if c in ("lenet_bn", "branch", "loop") else pytest.param(c, marks=pytest.mark.slow) for c in alone]


@pytest.mark.parametrize("name", cases())
def test_it_computes_what_the_file_does(name: str, tmp_path: Path) -> None:
    """Results and state, over two batches; then exported again, it differs in notes only."""
    path = with_loss(name, tmp_path)
    program = load(path)
    cell = imported(program, tmp_path).load()
    reference = Engine(program, "CPU", None)
    # Loops do not compile in a GraphCell (docs/mindir.md).
    plain = None if program.graphs["step"].functions else nn.GraphCell(ms.load(str(path)))
    batches = CASES[name].batches(2)
    for batch in batches:
        tensors = tuple(map(ms.Tensor, batch))
        result = cell(*tensors)
        assert same(result, reference.run("step", tensors))
        assert plain is None or same(result, plain(*tensors))
    for parameter_name, parameter in cell.parameters_dict().items():
        assert parameter.asnumpy().tobytes() == reference.memory.read(parameter_name).tobytes(), parameter_name
    again = load(export(imported(program, tmp_path).load().set_train(), batches[0], tmp_path / "again.mindir"))
    differences = diff(program, again, computation=True)
    assert not differences.state
    if not program.graphs["step"].functions and name not in DIFFERS:
        # The exporter cuts control flow into functions anew: around cells, and the condition of a loop twice.
        assert not differences, differences.nodes()[:3]


def test_inference_too(tmp_path: Path) -> None:
    path = without_loss("lenet_bn", tmp_path, training=False)
    cell = imported(load(path), tmp_path).load()
    tensor = ms.Tensor(CASES["lenet_bn"].batches(1)[0][0])
    assert same(cell(tensor), nn.GraphCell(ms.load(str(path)))(tensor))


def test_hostile_names_do_no_harm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The modules are run: each holds its text where a file may hold one."""
    monkeypatch.chdir(tmp_path)
    built = 0
    for text in CORPUS:
        try:
            module = imported(network(text), tmp_path)
        except Error:
            continue
        try:
            cell = module.load()
        except (TypeError, ValueError, AttributeError, RuntimeError):
            continue  # MindSpore may refuse a name
        assert list(cell.parameters_dict()) == [text.strip() or "value"]  # as MindSpore does
        built += 1
    assert built > len(CORPUS) / 2
    assert not list(tmp_path.rglob("harmed"))


def test_attributes_of_a_cell_are_reserved() -> None:
    cell = nn.Cell(auto_prefix=False)
    assert {n for n in {*dir(cell), *vars(cell)} if "__" not in n} <= RESERVED


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = without_loss("mlp", tmp_path, training=True)
    out = tmp_path / "out"
    done = shell(capsys, command, path, "--format", "python", "-o", out)
    assert done.code == 0, done.err
    assert sorted(p.name for p in out.iterdir()) == ["network.py", "network.safetensors"]
    printed = shell(capsys, command, path, "--format", "python")
    assert printed.out == (out / "network.py").read_text()
    assert shell(capsys, command, path, "--format", "python", "-o", out).code == 0
    (out / "mine.txt").write_text("kept")
    assert_one_error(shell(capsys, command, path, "--format", "python", "-o", out), "boost-inspect", "something else")
    assert (out / "mine.txt").exists()
