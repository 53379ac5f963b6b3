"""boost-run whose evaluation cannot be done: said before it trains, or what it trained is saved."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from boost_compile.runtime.training.saving import SaveEvery
from boost_compile.tools.inspect import command as inspect
from boost_compile.tools.run import command

import boost_compile as bc
from tests.networks import CASES

from .support import assert_one_error, shell, write_data


@pytest.fixture
def program(here: Path, exported: Callable[[str], Path]) -> bc.Program:
    """An MLP with four classes, and its data."""
    bc.load(exported("mlp")).save(here / "mlp.boost")
    write_data(here / "data.npz", CASES["mlp"].batches(3))
    return bc.load("mlp.boost")


@pytest.mark.parametrize(
    ("metric", "reason"),
    [
        ("top_5_accuracy", "the label 'inputs1' of shape [4]: it looks for the label among the 5 best"),
        ("mae", "predictions of shape [4, 4] by the label 'inputs1' of shape [4]: it takes one of shape [4, 4]"),
    ],
)
def test_a_metric_that_cannot_fit_is_refused_before_training(
    metric: str, reason: str, program: bc.Program, here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for asked in (("--data", "data.npz", "--val", "data.npz", "--save", "z.ckpt"), ("--eval", "data.npz")):
        done = shell(capsys, command, "mlp.boost", *asked, "--metric", "accuracy", "--metric", metric)
        assert_one_error(done, "boost-run", f"metric '{metric}' cannot judge", reason)
        assert "epoch" not in done.err
        assert not list(here.glob("z*"))
    session = bc.Session(program)
    with pytest.raises(bc.Error, match=f"metric '{metric}' cannot judge"):
        session.evaluate("data.npz", metric)


def test_numbers_are_no_classes(exported: Callable[[str], Path]) -> None:
    session = bc.Session(exported("smooth_l1"))
    rows = CASES["smooth_l1"].batch(np.random.default_rng(0), 8)
    assert session.evaluate(rows, "mae")["mae"] > 0
    with pytest.raises(bc.Error, match="it compares classes, and these are other numbers"):
        session.evaluate(rows, "accuracy")


def test_a_failing_evaluation_loses_nothing_that_was_trained(
    program: bc.Program, here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (here / "own.py").write_text("calls = []\ndef own(_):\n    calls.append(1)\n    assert len(calls) != 2, 'no'\n")
    line = ("mlp.boost", "--data", "data.npz", "--epochs", "3", "--eval", "own.py:own", "--save", "kept.safetensors")
    done = shell(capsys, command, *line, "-q")
    going_on = "boost-run mlp.boost --data data.npz --epochs 3 --eval own.py:own --save kept.safetensors -q --resume"
    said = "own failed: AssertionError: no. kept.safetensors holds the state after the epoch: "
    assert_one_error(done, "boost-run", f"{said}{going_on} kept.safetensors")
    done = shell(capsys, command, *line, "--resume", "kept.safetensors", "--json")
    assert done.code == 0, done.err
    assert [epoch["number"] for epoch in done.document["epochs"]] == [3]
    done = shell(capsys, command, *line[:-2], "-q")
    assert_one_error(done, "boost-run", "own failed: AssertionError: no\n")


@pytest.mark.parametrize("error", [ValueError("mine"), bc.Error("mine.")])
def test_fit_saves_before_it_raises(error: Exception, program: bc.Program, caplog: pytest.LogCaptureFixture) -> None:
    def fail(_: bc.Session) -> None:
        raise error

    session = bc.Session(program)
    with pytest.raises(type(error), match="mine") as caught:
        session.fit("data.npz", epochs=2, evaluate=fail, callbacks=[SaveEvery("kept.ckpt", 100)])
    assert caught.value is error
    said = [*caplog.messages, str(error)]
    assert any("kept.ckpt holds the state after the epoch" in text for text in said)
    resumed = bc.Session(program)
    resumed.load("kept.ckpt")
    assert [epoch.number for epoch in resumed.fit("data.npz", epochs=2, resume=True).epochs] == [2]


def test_an_input_behind_the_last_layer_is_the_networks(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """An offset, in a file that says nothing of labels: the cells of its nodes do."""
    import mindspore as ms
    from mindspore import nn

    from tests.runtime.evaluation.evaluating import BEHIND_LAYERS, LossOfLast

    ms.set_context(mode=ms.GRAPH_MODE)
    case = BEHIND_LAYERS["offset"]
    network, data = case.network(), case.batch(np.random.default_rng(0), 4)
    cell = nn.TrainOneStepCell(LossOfLast(network, nn.MSELoss()), case.optimizer(network.trainable_params()))
    ms.export(cell.set_train(), *map(ms.Tensor, data), file_name=str(here / "offset"), file_format="MINDIR")
    write_data(here / "data.npz", [data])
    expected = network(*map(ms.Tensor, data[:-1])).asnumpy()
    done = shell(capsys, command, "offset.mindir", "--eval", "data.npz", "--metric", "mse", "--json")
    assert done.document["metrics"] == {"mse": pytest.approx(((expected - data[-1]) ** 2).mean(), rel=1e-5)}
    done = shell(capsys, inspect, "offset.mindir", "--forward", "-o", "network.mindir")
    assert "inputs0, inputs1 -> output" in done.out
    assert "without inputs2; without loss" in done.out
