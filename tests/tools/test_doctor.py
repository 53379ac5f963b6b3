"""boost-inspect --doctor: what is probably wrong with a training graph or its data, and what to do about it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from boost_compile.tools.compile import command as compile_
from boost_compile.tools.inspect import command as inspect
from boost_compile.tools.run import command as run_

import boost_compile as bc

from .doctor_network import export
from .support import assert_one_error, shell

Exported = Callable[[str], Path]
REMEDIES = {
    "training mode": "trains, but its BatchNorm is in inference mode|Export the training cell after .set_train()",
    "inputs": "1 input has no effect: 'inputs2'|leave it out of construct",
    "float64": "1 input ('inputs0') of float64|astype(numpy.float32)",
}


def test_mistakes_of_an_export_are_told_by_both_commands(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source = export(here / "train.mindir")
    done = shell(capsys, inspect, source, "--doctor")
    assert done.code == 1
    assert [line.partition(":")[0] for line in done.out.splitlines()] == list(REMEDIES)
    for line, wanted in zip(done.out.splitlines(), REMEDIES.values(), strict=True):
        assert all(part in line for part in wanted.split("|")), line
    assert list(here.iterdir()) == [source]

    compiled = shell(capsys, compile_, source, "--accumulate", "2", "-o", "a.boost")
    assert compiled.code == 0
    assert [f"Warning: {line}" in compiled.err.splitlines() for line in done.out.splitlines()] == [True] * 3
    quiet = shell(capsys, compile_, source, "--accumulate", "2", "-q", "-o", "b.boost")
    assert quiet.err == ""
    np.savez("wrong.npz", np.zeros((2, 2)))  # so nothing is trained
    for program, said in ((source, True), ("a.boost", False)):
        run = shell(capsys, run_, program, "--data", "wrong.npz")
        assert run.code == 2
        assert [f"Warning: {line}" in run.err.splitlines() for line in done.out.splitlines()] == [said] * 3


def test_state_that_is_not_finite(here: Path, exported: Exported, capsys: pytest.CaptureFixture[str]) -> None:
    program = bc.load(exported("lenet_bn"))
    weight = next(n for n, v in program.state.items() if v.role == "weight")
    values = program.state[weight].initial.copy()
    values.flat[0] = np.nan
    program.with_values({weight: values}).save("bad.boost")
    done = shell(capsys, inspect, "bad.boost", "--doctor", "--format", "json")
    assert done.code == 1
    (finding,) = done.document
    assert finding["check"] == "state"
    assert f"'{weight}'" in finding["problem"]
    assert "boost-run --load" in finding["remedy"]


def test_data_is_held_against_the_program(here: Path, exported: Exported, capsys: pytest.CaptureFixture[str]) -> None:
    source = exported("mlp")
    x, labels = np.ones((12, 8), np.float32), np.arange(12, dtype=np.int32) % 3
    np.savez("good.npz", x=x, labels=labels)
    good = shell(capsys, inspect, source, "--doctor", "--data", "good.npz")
    assert (good.code, good.out) == (0, "Nothing found in the program and the data.\n")

    wrong = x.astype(np.float64)
    wrong[5] = np.inf
    np.savez("wrong.npz", x=wrong, labels=np.where(labels == 2, 1000, labels))
    done = shell(capsys, inspect, source, "--doctor", "--data", "wrong.npz")
    assert done.code == 1
    infinite, double, range_ = done.out.splitlines()
    assert "1 sample of 12 with infinities or NaN, the first is number 5" in infinite
    assert "float64, the graph takes float32" in double
    assert "4 values outside of 0 to " in range_
    assert "the first is 1000 in sample 2" in range_

    np.savez("shape.npz", x=x[:, :5], labels=labels)
    assert "the array [12, 5]" in shell(capsys, inspect, source, "--doctor", "--data", "shape.npz").out
    np.savez("one.npz", x=x)
    assert_one_error(shell(capsys, inspect, source, "--doctor", "--data", "one.npz"), "boost-inspect", "1 array")


def test_what_a_training_refuses_is_found(here: Path, exported: Exported, capsys: pytest.CaptureFixture[str]) -> None:
    source = exported("mlp")
    x, labels = np.ones((12, 8), np.float32), np.arange(12, dtype=np.int32) % 3
    for arrays, said in (
        ((x, labels[:10]), "the arrays differ in their number of samples: 'inputs0' 12, 'inputs1' 10"),
        ((x.astype(np.int64), labels), "'inputs0': int64, the graph takes float32. Save it as such: array.astype(num"),
        ((x.astype(np.float16), labels), "'inputs0': float16, the graph takes float32. Save it as such: array.astype"),
        ((x, labels.astype(str)), "the graph takes int32. Save numbers."),
        ((x, labels.astype(np.float32)), "'inputs1': float32, the graph takes int32. Save whole numbers as integers."),
        (
            (x, labels.astype(np.int64) + 2**40),
            "'inputs1': int64, the graph takes int32. Some of its values do not fit",
        ),
        ((x, labels > 0), "'inputs1': bool, the graph takes int32. Save it as such: array.astype(numpy.int32)."),
    ):
        np.savez("data.npz", *arrays)
        assert shell(capsys, run_, source, "--data", "data.npz").code == 2
        done = shell(capsys, inspect, source, "--doctor", "--data", "data.npz")
        assert done.code == 1
        assert said in done.out, done.out
    np.savez("narrow.npz", x, labels.astype(np.int64))  # these values fit
    assert shell(capsys, inspect, source, "--doctor", "--data", "narrow.npz").code == 0


def test_a_loss_scale_of_its_own(exported: Exported, capsys: pytest.CaptureFixture[str]) -> None:
    done = shell(capsys, inspect, exported("mlp_sens"), "--doctor")
    assert done.code == 1
    assert "scales its loss by 1024 by itself" in done.out
    assert "--loss-scale dynamic" in done.out


@pytest.mark.parametrize("case", ["mlp_mixed", "lenet_bn", "dropout", "lstm", "regression_mse"])
def test_sound_networks_have_nothing(case: str, exported: Exported, capsys: pytest.CaptureFixture[str]) -> None:
    done = shell(capsys, inspect, exported(case), "--doctor")
    assert (done.code, done.out.startswith("Nothing found in the program; with --data")) == (0, True), done.out


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--data", "x.npz"], "--data goes with --doctor"),
        (["--doctor", "--memory"], "leave out"),
        (["--doctor", "--format", "text"], "--format summary or json"),
    ],
)
def test_what_does_not_go_together(
    arguments: list[str], said: str, exported: Exported, capsys: pytest.CaptureFixture[str]
) -> None:
    assert_one_error(shell(capsys, inspect, exported("mlp"), *arguments), "boost-inspect", said)
