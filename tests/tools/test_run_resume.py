"""boost-run that is stopped, or finds its state damaged, and goes on."""

from __future__ import annotations

import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from boost_compile.tools import inspect
from safetensors.numpy import load_file

import boost_compile as bc
from tests.exact_resume import assert_same_bits
from tests.networks import CASES
from tests.waiting import PATIENCE, wait_until

from . import holding
from .support import assert_one_error, shell, write_data

MICRO_BATCHES, EPOCHS = 7, 40


@pytest.fixture(scope="module")
def here(tmp_path_factory: pytest.TempPathFactory, exported: Callable[[str], Path]) -> Path:
    folder = tmp_path_factory.mktemp("run")
    bc.compile(bc.load(exported("dropout")), "gradient-accumulation{steps=4}").save(folder / "p.boost")
    write_data(folder / "data.npz", CASES["dropout"].batches(MICRO_BATCHES))
    shutil.copy(holding.__file__, folder / "evaluation.py")
    return folder


def start(here: Path, *arguments: str) -> subprocess.Popen[str]:
    line = [sys.executable, "-m", "boost_compile.tools.run", "p.boost", "--data", "data.npz", "--epochs", str(EPOCHS)]
    return subprocess.Popen([*line, *arguments], cwd=here, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def end(process: subprocess.Popen[str]) -> tuple[int, str]:
    _, err = process.communicate(timeout=PATIENCE)
    return process.returncode, err


def test_stopped_by_a_signal_and_resumed_from_the_state_before_a_damaged_one(here: Path):
    assert end(start(here, "--save", "whole.safetensors"))[0] == 0
    (here / holding.HELD).write_text("x.cycle-*.safetensors 3")
    job = start(here, "--save", "x.safetensors", "--save-every", "1", "--keep", "3", "--eval", "evaluation.py:show")
    wait_until(lambda: len(list(here.glob("x.cycle-*.safetensors"))) == 3, "three states are there", job)
    job.send_signal(signal.SIGTERM)
    code, err = end(job)
    assert code == 75
    assert "boost-run: error: training was asked to stop, and x.safetensors holds its state" in err
    kept = sorted(here.glob("x.cycle-*.safetensors"), key=lambda path: int(re.findall(r"\d+", path.name)[0]))
    assert len(kept) == 3
    newest = here / "x.safetensors"
    assert newest.samefile(kept[-1])
    data = bytearray(newest.read_bytes())
    data[-3] ^= 4
    newest.write_bytes(data)
    code, err = end(start(here, "--resume", "x.safetensors", "--save", "rest.safetensors"))
    assert code == 0, err
    assert f"are not those that were written. Using the state before it: {kept[-2].name}" in err
    assert_same_bits(load_file(here / "rest.safetensors"), load_file(here / "whole.safetensors"), "resumed")


def test_a_damaged_program_is_not_trained(here: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    shutil.copytree(here / "p.boost", tmp_path / "p.boost")
    state = tmp_path / "p.boost" / "state.safetensors"
    assert shell(capsys, inspect.command, tmp_path / "p.boost", "--check").code == 0
    data = bytearray(state.read_bytes())
    data[-7] ^= 2
    state.write_bytes(data)
    assert shell(capsys, inspect.command, tmp_path / "p.boost").code == 0, "without --check the weights are not read"
    done = shell(capsys, inspect.command, tmp_path / "p.boost", "--check")
    assert_one_error(done, "boost-inspect", "state.safetensors: the bytes of", "are not those that were written")
    with pytest.raises(bc.Error, match=r"state\.safetensors: the bytes of"):
        bc.Session(bc.load(tmp_path / "p.boost"))
