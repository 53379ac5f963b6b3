"""boost-run that is interrupted: whatever it does at that moment, it ends with one line and the right exit code."""

from __future__ import annotations

import os
import pty
import re
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from boost_compile.tools import interruption

import boost_compile as bc
from tests.waiting import PATIENCE, wait_until

ARGUMENTS = ["p.boost", "--data", "data.npz", "--epochs", "1000000"]
LINE = [sys.executable, "-m", "boost_compile.tools.run", *ARGUMENTS]
NOTE = re.compile(r"^MindSpore .* is built for numpy.*$", re.M)
"""Said once where numpy 2 is installed; no part of how a command ends."""


@pytest.fixture(scope="module")
def here(tmp_path_factory: pytest.TempPathFactory, exported: Callable[[str], Path]) -> Path:
    folder = tmp_path_factory.mktemp("interrupted")
    bc.load(exported("mlp")).save(folder / "p.boost")
    rng = np.random.default_rng(0)
    np.savez(folder / "data.npz", rng.standard_normal((64, 8), np.float32), rng.integers(0, 4, 64).astype(np.int32))
    (folder / "tmp").mkdir()
    return folder


def listens(pid: int, _: Path) -> bool:
    """The handlers are there: the earliest moment that is the command's own."""
    if b"boost_compile.tools.run" not in Path(f"/proc/{pid}/cmdline").read_bytes():
        return False  # a fork of this process, which has the handlers of this process
    status = Path(f"/proc/{pid}/status").read_text(encoding="ascii")
    caught = int(re.search(r"^SigCgt:\s*(\w+)", status, re.M)[1], 16)  # type: ignore[index]
    return bool(caught >> (signal.SIGTERM - 1) & 1)


def imports_mindspore(pid: int, here: Path) -> bool:
    return listens(pid, here) and "mindspore" in Path(f"/proc/{pid}/maps").read_text(encoding="utf-8", errors="replace")


def compiles(_: int, here: Path) -> bool:
    return any((here / "tmp").glob("boost-compile-*"))


def trains(_: int, here: Path) -> bool:
    return (here / "x.ckpt").exists()


def environment(here: Path) -> dict[str, str]:
    return {**os.environ, "TMPDIR": str(here / "tmp"), "TERM": "xterm"}


def in_a_pipe(here: Path, moment: Callable[[int, Path], bool], options: list[str]) -> tuple[int, str]:
    """SIGTERM, as Slurm sends it."""
    process = subprocess.Popen(
        [*LINE, *options], cwd=here, env=environment(here), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    try:
        wait_until(lambda: moment(process.pid, here), moment.__name__, process, pause=0.002)
        process.send_signal(signal.SIGTERM)
        out, _ = process.communicate(timeout=PATIENCE)
    finally:
        process.kill()
    return process.returncode, NOTE.sub("", out).strip()


def on_a_terminal(here: Path, moment: Callable[[int, Path], bool], options: list[str]) -> tuple[int, str]:
    """Ctrl-C on the keyboard."""
    pid, terminal = pty.fork()
    if pid == 0:
        os.chdir(here)
        os.execve(sys.executable, [*LINE, *options], environment(here))
    out, pressed, status = b"", False, None
    until = time.monotonic() + PATIENCE
    try:
        while True:
            assert time.monotonic() < until, moment.__name__
            if select.select([terminal], [], [], 0.002)[0]:
                try:
                    out += os.read(terminal, 1 << 16)
                except OSError:  # the other side is closed
                    break
            if not pressed and moment(pid, here):
                os.write(terminal, b"\x03")
                pressed = True
        status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    finally:
        if status is None:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
        os.close(terminal)
    assert status is not None
    return status, out.decode()


SAVING = ["--save", "x.ckpt", "--save-every", "5"]
SLOW = pytest.mark.slow


@pytest.mark.parametrize(
    ("how", "moment"),
    [
        (in_a_pipe, listens), (on_a_terminal, imports_mindspore), (in_a_pipe, compiles), (on_a_terminal, trains),
        pytest.param(on_a_terminal, listens, marks=SLOW), pytest.param(in_a_pipe, imports_mindspore, marks=SLOW),
        pytest.param(on_a_terminal, compiles, marks=SLOW), pytest.param(in_a_pipe, trains, marks=SLOW),
    ],
)  # fmt: skip
def test_any_moment(how: Callable[..., tuple[int, str]], moment: Callable[[int, Path], bool], here: Path) -> None:
    code, shown = how(here, moment, SAVING)
    assert moment is not trains or trains(0, here)
    assert "Traceback" not in shown
    assert "Fatal" not in shown
    assert shown.count("boost-run: error:") + shown.count("boost-run: error:\x1b[0m") >= 1
    if how is on_a_terminal:
        assert shown.rfind("\x1b[?25h") >= shown.rfind("\x1b[?25l"), "the cursor is back"
    last = re.sub(r"\x1b\[[0-9;?]*\w", "", shown.replace("\r", "")).strip().splitlines()[-1]
    if trains(0, here):  # also where the signal came later than it was meant to
        assert code == 75
        resumed = f"boost-run {' '.join([*ARGUMENTS, *SAVING])} --resume x.ckpt"
        assert last == f"boost-run: error: training was asked to stop, and x.ckpt holds its state: {resumed}"
    else:
        assert code == 130
        assert re.fullmatch(r"boost-run: error: interrupted(, and nothing was saved)?", last)
        if how is in_a_pipe:
            assert last == shown
    assert list((here / "tmp").iterdir()) == []
    for left in here.glob("x.*"):
        left.unlink()


def test_what_was_trained_is_said_where_nothing_is_saved(here: Path) -> None:
    log = here / "log.txt"
    with open(log, "w", encoding="utf-8") as out:
        process = subprocess.Popen(LINE, cwd=here, env=environment(here), stdout=out, stderr=out)
    try:
        wait_until(lambda: "epoch 2/1000000  loss" in log.read_text(encoding="utf-8"), "two epochs are over", process)
        process.send_signal(signal.SIGTERM)
        assert process.wait(timeout=PATIENCE) == 130
    finally:
        process.kill()
    lines = NOTE.sub("", log.read_text(encoding="utf-8")).strip().splitlines()
    assert lines[-1] == "boost-run: error: interrupted, and nothing was saved (--save keeps the state)"
    assert all(re.match(r"epoch \d+/1000000  (loss|after)", line) for line in lines[:-1])


def test_the_last_save_is_completed(monkeypatch: pytest.MonkeyPatch) -> None:
    """A first signal comes too late to change anything, a second one does not."""
    monkeypatch.setattr(interruption._State, "name", "")
    before = {number: signal.getsignal(number) for number in interruption.SIGNALS}
    try:
        interruption.listen("boost-run")
        with interruption.held():
            signal.raise_signal(signal.SIGTERM)
        with interruption.held():
            signal.raise_signal(signal.SIGINT)
            with pytest.raises(KeyboardInterrupt):
                signal.raise_signal(signal.SIGINT)
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
