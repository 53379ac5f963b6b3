"""boost-run with a state that is not finite when it begins."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from boost_compile.tools.run import command
from safetensors.numpy import load_file

import boost_compile as bc
from tests.networks import CASES

from .support import assert_one_error, shell, write_data

HELD = "weight 'hidden.bias', loaded from bad.safetensors, holds NaN: 3 of 16 values are NaN or infinite"


@pytest.fixture
def spoiled(here: Path, exported: Callable[[str], Path]) -> Path:
    """An MLP, its data, and a state of the whole training in which one weight holds NaN, which ReLU hides."""
    bc.load(exported("mlp")).save(here / "mlp.boost")
    write_data(here / "data.npz", CASES["mlp"].batches(3))
    session = bc.Session("mlp.boost")
    session.fit("data.npz")
    session.save("good.safetensors")
    write_with(here, np.nan)
    return here


def write_with(here: Path, value: float) -> None:
    """``bad.safetensors`` is ``good.safetensors`` with this value in three places."""
    session = bc.Session("mlp.boost")
    session.load("good.safetensors")
    bias = session.state(["hidden.bias"])["hidden.bias"]
    bias[:3] = value
    place = session.data_position
    session.load({"hidden.bias": bias}, strict=False)
    session.data_position = place
    session.save("bad.safetensors")


def test_a_training_does_not_begin_with_nan(
    spoiled: Path, capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    line = ("mlp.boost", "--data", "data.npz", "--epochs", "2", "-q")
    for start in (("--load",), ("--partial", "--load"), ("--resume",)):
        done = shell(capsys, command, *line, *start, "bad.safetensors", "--save", "next.safetensors")
        error = done.err[done.err.index("boost-run: error") :]  # behind the note on what --partial took
        assert_one_error(replace(done, err=error), "boost-run", HELD, "--load FILE", "--allow-nonfinite")
        assert not list(spoiled.glob("next*"))
    caplog.clear()
    done = shell(capsys, command, *line, "--load", "bad.safetensors", "--allow-nonfinite", "--val", "data.npz")
    assert done.code == 0, done.err
    (warning,) = caplog.messages
    assert warning == f"{HELD}. Training goes on, as was asked for."


def test_an_evaluation_with_nan_says_so(
    spoiled: Path, capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    done = shell(capsys, command, "mlp.boost", "--eval", "data.npz", "--load", "good.safetensors")
    assert done.code == 0, done.err
    assert not caplog.messages
    done = shell(capsys, command, "mlp.boost", "--eval", "data.npz", "--load", "bad.safetensors")
    assert done.code == 0, done.err
    assert caplog.messages == [f"{HELD}: what the network predicts with it says nothing"]


def test_infinities_may_be_meant(
    spoiled: Path, capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    write_with(spoiled, -np.inf)
    line = ("mlp.boost", "--data", "data.npz", "--val", "data.npz", "-q")
    done = shell(capsys, command, *line, "--load", "bad.safetensors", "--save", "next.safetensors")
    assert done.code == 0, done.err
    assert not caplog.messages
    assert np.isinf(load_file("next.safetensors")["hidden.bias"]).sum() == 3


def test_in_python_the_error_names_what_python_can_do(spoiled: Path, caplog: pytest.LogCaptureFixture) -> None:
    program = bc.load("mlp.boost")
    state = bc.Session(program).state()
    state["hidden.bias"][:3] = np.nan
    state["output.weight"][0, 0] = np.nan
    with pytest.raises(bc.Error, match=r"^weight 'hidden\.bias' holds NaN: .* so does 1 other .*allow_nonfinite"):
        bc.Session(program.with_values(state)).fit("data.npz")
    session = bc.Session(program)
    session.load(state)
    with pytest.raises(bc.Error, match=r"weight 'hidden\.bias', loaded from the given state, holds NaN"):
        session.fit("data.npz")
    session.evaluate("data.npz")
    session.evaluate("data.npz")
    assert len(caplog.messages) == 1
