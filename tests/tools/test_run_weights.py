"""boost-run --weights and --save-weights: what is evaluated, and a file for the native network."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import mindspore as ms
import numpy as np
import pytest
from boost_compile.tools.compile import command as compile_command
from boost_compile.tools.inspect import command as inspect_command
from boost_compile.tools.run import command
from onnx import load as load_onnx
from onnx.numpy_helper import to_array

import boost_compile as bc
from tests.networks import CASES, build
from tests.tools.support import assert_one_error, shell, write_data


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_data(tmp_path_factory.mktemp("data") / "data.npz", CASES["lenet_bn_adam"].batches(4))


def test_averages_are_evaluated_saved_and_exported(
    exported: Callable[[str], Path], data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    program, state, weights = tmp_path / "p.boost", tmp_path / "state.safetensors", tmp_path / "best.ckpt"
    passes = ("--passes", "weight-average{decay=0.5}")
    assert shell(capsys, compile_command, exported("lenet_bn_adam"), *passes, "-o", program).code == 0
    line = (program, "--data", data, "--val", data, "--epochs", 2, "--save", state)
    done = shell(capsys, command, *line, "--weights", "average", "--save-weights", weights, "--json")
    assert done.code == 0, done.err
    found = done.document["epochs"][-1]["evaluation"]["val_loss"]

    # The file is for the native network, and has what was evaluated: the averages.
    images = CASES["lenet_bn_adam"].batches(1)[0][0]
    network = build(CASES["lenet_bn_adam"]).loss_network.backbone_network.set_train(False)
    missing, unknown = ms.load_param_into_net(network, ms.load_checkpoint(str(weights)))
    assert missing == [], "all that the network has"
    assert [name for name in unknown if not name.startswith("boost_compile.")] == []
    session = bc.Session(program)
    session.load_state(state)
    trained = session.predict(images)
    session.weights = "average"
    np.testing.assert_allclose(session.predict(images), network(ms.Tensor(images)).asnumpy(), rtol=1e-5, atol=1e-6)
    assert not np.allclose(session.predict(images), trained)
    assert session.evaluate(str(data))["loss"] == pytest.approx(found)

    alone = shell(capsys, command, program, "--eval", data, "--load", state, "--weights", "average", "--json")
    assert alone.document["metrics"]["loss"] == pytest.approx(found)

    onnx = tmp_path / "network.onnx"
    export = ("--standard", "--format", "onnx", "--state", state, "--weights", "average", "-o", onnx)
    assert shell(capsys, inspect_command, program, *export).code == 0
    held = {i.name: i for i in load_onnx(onnx).graph.initializer}
    averaged = session.state(["average.fc2.bias"])["average.fc2.bias"]
    np.testing.assert_array_equal(to_array(held["fc2.bias"]), averaged)

    shown = shell(capsys, command, *line, "--weights", "average", "--save-weights", weights)
    assert f"Saved the averaged weights to {weights}." in shown.out.replace("\n", "")


def test_averages_that_are_not_there_or_of_no_use_are_refused(
    exported: Callable[[str], Path], data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    plain = exported("lenet_bn_adam")
    refused = shell(capsys, command, plain, "--data", data, "--val", data, "--weights", "average")
    assert_one_error(refused, "boost-run", "keeps no averages of its weights", "weight-average")
    refused = shell(capsys, command, plain, "--data", data, "--weights", "average")
    assert_one_error(refused, "boost-run", "give --val, --val-split, --eval or --save-weights")
    refused = shell(capsys, inspect_command, plain, "--weights", "average")
    assert_one_error(refused, "boost-inspect", "--weights average goes with --forward")
    refused = shell(capsys, command, plain, "--data", data, "--save-weights", tmp_path / "weights.txt")
    assert_one_error(refused, "boost-run", "no state file by its name")
