"""A program that was made from a forward graph, and the commands that want an original beside it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import click
import numpy as np
import onnx
import pytest
from boost_compile.tools.compile import command as compile_command
from boost_compile.tools.inspect import command as inspect_command
from boost_compile.tools.prove import command as prove_command
from boost_compile.tools.reduce import command as reduce_command
from boost_compile.tools.run import command as run_command
from boost_compile.tools.verify import command as verify_command
from onnx import TensorProto, helper, numpy_helper

import boost_compile as bc

from .support import assert_one_error, shell

pytestmark = pytest.mark.mindspore
MADE = ("--loss", "mse", "--optimizer", "momentum{lr=0.1,momentum=0.9}", "--accumulate", "2", "-q", "-o", "m.boost")
JUDGES = [(verify_command, "boost-verify"), (prove_command, "boost-prove")]
BOTH = pytest.mark.parametrize(("command", "name"), JUDGES, ids=["verify", "prove"])
CHECKED = "--loss … --optimizer … --verify (or --prove)"


def write_model(path: Path, rows: int | str) -> None:
    """y = x w."""
    weight = numpy_helper.from_array(np.ones((3, 2), np.float32), "w")
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [rows, 3])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, [rows, 2])
    graph = helper.make_graph([helper.make_node("MatMul", ["x", "w"], ["y"])], "g", [x], [y], [weight])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)


@pytest.fixture
def program(here: Path, capsys: pytest.CaptureFixture[str]) -> str:
    """`m.boost`, made from `m.onnx`, whose number of rows is open; and `four.onnx`, where it is four."""
    write_model(here / "m.onnx", "rows")
    write_model(here / "four.onnx", 4)
    done = shell(capsys, compile_command, "m.onnx", "--dim", "rows=4", *MADE)
    assert done.code == 0, done.err
    return "m.boost"


@BOTH
def test_a_forward_graph_is_no_original(
    command: click.Command, name: str, program: str, capsys: pytest.CaptureFixture[str]
) -> None:
    done = shell(capsys, command, "four.onnx", program)
    missing = "the original, four.onnx, is a forward graph: it has no backward part and no optimizer."
    assert_one_error(done, name, missing, f"boost-compile four.onnx {CHECKED}")
    done = shell(capsys, command, "m.onnx", program)
    assert_one_error(done, name, "m.onnx, is a forward graph", f"boost-compile m.onnx {CHECKED}")


def test_what_the_message_names_works(program: str, capsys: pytest.CaptureFixture[str]) -> None:
    done = shell(capsys, compile_command, "m.onnx", "--dim", "rows=4", "--force", *MADE, "--prove")
    assert done.code == 0, done.err


@pytest.mark.parametrize("judge", [bc.verify, bc.prove])
def test_in_python_the_training_graph_is_the_original(judge: Callable[..., object], program: str) -> None:
    with pytest.raises(bc.Error, match=r"is a forward graph: .* Compile what bc\.differentiate makes of it"):
        judge("four.onnx", program)


def test_a_report_beside_a_model_whose_size_is_open(program: str, capsys: pytest.CaptureFixture[str]) -> None:
    line = (program, "--original", "m.onnx", "-o", "page.html")
    assert_one_error(shell(capsys, inspect_command, *line), "boost-inspect", "sizes open: rows", "--dim rows=8")
    assert shell(capsys, inspect_command, *line, "--dim", "rows=4").code == 0


def test_commands_without_dim_name_those_that_have_it(program: str, capsys: pytest.CaptureFixture[str]) -> None:
    for command, line in ((reduce_command, ("--passes", "overflow-check")), (run_command, ("--data", "x.npz"))):
        Path("x.npz").touch()
        done = shell(capsys, command, "m.onnx", *line)
        assert_one_error(done, str(command.name), "boost-compile --dim rows=8 --loss … --optimizer …, which makes")
