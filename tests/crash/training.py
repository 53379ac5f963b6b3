"""Trainings of boost-run that are killed, resumed, killed again, until they are through; then compared with one that
was left alone."""

from __future__ import annotations

import os
import random
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np

import boost_compile as bc

CASE, EPOCHS, MICRO_BATCHES = "dropout", 60, 7
PASSES = (
    "gradient-accumulation{steps=4},loss-scale{mode=dynamic,window=2},overflow-check,clip-gradients,"
    "gradient-freeze{groups=2,total_steps=50}"
)


def exported(folder: Path) -> Path:
    """The network's MindIR, written by another process, so that this one holds no MindSpore."""
    script = "import sys; from pathlib import Path; from tests.networks import CASES, export; "
    script += f"print(export(CASES[{CASE!r}], Path(sys.argv[1])))"
    done = subprocess.run([sys.executable, "-c", script, str(folder)], capture_output=True, text=True, check=True)
    return Path(done.stdout.split()[-1])


def kill_and_resume(model: Path, folder: Path, kills: int, dice: random.Random) -> None:
    folder.mkdir()
    bc.compile(bc.load(model), PASSES).save(folder / "p.boost")
    rng = np.random.default_rng(0)
    size = bc.load(folder / "p.boost").graphs["accumulate"].inputs[0].type.shape[0]
    rows = size * MICRO_BATCHES
    np.savez(folder / "data.npz", rng.standard_normal((rows, 8), np.float32), rng.integers(0, 4, rows).astype(np.int32))
    whole = folder / "whole.safetensors"
    began = time.monotonic()
    assert _start(folder, "--save", whole.name).wait() == 0
    seconds = time.monotonic() - began
    expected = _state(whole)
    killed, lives, trainings, stopped = 0, 0, 0, 0
    while killed + stopped < kills:
        trainings += 1
        for old in folder.glob("x*"):
            old.unlink()
        while True:
            saved = folder / "x.safetensors"
            resume = ["--resume", saved.name] if saved.exists() else []
            job = _start(folder, "--save", saved.name, "--save-every", "1", "--keep", "3", *resume)
            lives += 1
            # Most of a life is the start of MindSpore: from the first state that it writes it is worth killing.
            before = saved.stat().st_mtime_ns if saved.exists() else 0
            until = time.monotonic() + 4 * seconds
            while job.poll() is None and time.monotonic() < until:
                if saved.exists() and saved.stat().st_mtime_ns != before:
                    break
                time.sleep(0.001)
            time.sleep(dice.uniform(0, 0.4))
            with_notice = dice.random() < 0.3
            if killed + stopped < kills and job.poll() is None:
                job.send_signal(signal.SIGTERM if with_notice else signal.SIGKILL)
            code = job.wait()
            killed += code == -signal.SIGKILL
            stopped += code == 75
            assert code in (0, 75, -signal.SIGKILL), code
            if code == 0:
                break
        found = _state(saved)
        assert list(found) == list(expected)
        for name, array in expected.items():
            assert found[name].tobytes() == array.tobytes(), name
        assert not [name for name in os.listdir(folder) if name.startswith(".x")]
    print(
        f"training ({CASE}, {PASSES}): {trainings} trainings in {lives} lives, {killed} SIGKILL, {stopped} SIGTERM: "
        "each ended with the bits of the uninterrupted one",
        flush=True,
    )
    shutil.rmtree(folder)


def _start(folder: Path, *arguments: str) -> subprocess.Popen[bytes]:
    line = [sys.executable, "-m", "boost_compile.tools.run", "p.boost", "--data", "data.npz", "--epochs", str(EPOCHS)]
    return subprocess.Popen([*line, *arguments], cwd=folder, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def _state(path: Path) -> dict[str, np.ndarray]:
    from safetensors.numpy import load_file

    return dict(sorted(load_file(path).items()))
