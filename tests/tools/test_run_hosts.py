"""boost-run --hosts: jobs over several hosts, which are network namespaces of this machine."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest
from boost_compile.tools.jobs import watch
from boost_compile.tools.run import command
from safetensors.numpy import load_file

import boost_compile as bc
from tests.ranks import environ
from tests.waiting import PATIENCE, wait_until

from .network import Network
from .support import assert_one_error, shell

PASSES = "gradient-accumulation{steps=2},data-parallel"
SAMPLES, SIZE = 48, 4
EVALUATION = "import time\ndef nap(session): time.sleep(0.2)\n"


@pytest.fixture(scope="module")
def here(tmp_path_factory: pytest.TempPathFactory, exported: Callable[[str], Path]) -> Path:
    folder = tmp_path_factory.mktemp("hosts")
    bc.compile(bc.load(exported("mlp")), PASSES).save(folder / "mlp.boost")
    rng = np.random.default_rng(0)
    labels = rng.integers(0, 4, SAMPLES).astype(np.int32)
    images = np.eye(4, 8, dtype=np.float32)[labels] * 3 + rng.standard_normal((SAMPLES, 8)).astype(np.float32) * 0.1
    np.savez(folder / "data.npz", images, labels)
    (folder / "evaluation.py").write_text(EVALUATION)
    return folder


class Cluster:
    """Hosts with a remote shell each, and boost-run on the first."""

    def __init__(self, network: Network, here: Path, temporary: Path):
        self.network, self.here, self.temporary = network, here, temporary
        self.process: subprocess.Popen[str] | None = None
        self.hosts = temporary.with_name("hosts.txt")
        self.hosts.write_text("".join(f"{address}\n" for address in network.addresses))
        self.options: dict[str, Any] = {"cwd": here, "env": {**os.environ, "TMPDIR": str(temporary)}}

    def serve(self, number: int, before: str = "true") -> None:
        self.network.serve(number, before, **self.options)

    def start(self, *options: object, ranks: int = 2) -> None:
        line = [sys.executable, "-m", "boost_compile.tools.run", "mlp.boost", "--data", "data.npz"]
        line += ["--ranks", str(ranks), "--hosts", str(self.hosts), "--rsh", self.network.rsh, *map(str, options)]
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
        self.process = self.network.start(1, *line, **pipes, **self.options)

    def end(self) -> tuple[int, str, str]:
        """Waits for the end; then no process of the job is left on any host, and no file beside what was asked for."""
        assert self.process is not None
        out, err = self.process.communicate(timeout=PATIENCE)
        wait_until(lambda: not self.members(), "all processes of the job end", pause=0.05)
        assert list(self.temporary.iterdir()) == [], err
        assert [p.name for p in self.here.iterdir() if p.name.startswith(".")] == []
        return self.process.returncode, out, err

    def members(self) -> list[psutil.Process]:
        return [p for p in psutil.process_iter() if "MS_ROLE" in environ(p) and self._is_ours(p)]

    def rank(self, number: int) -> psutil.Process:
        given = {"MS_ROLE": "MS_WORKER", "RANK_ID": str(number)}
        (found,) = [p for p in self.members() if given.items() <= environ(p).items()]
        return found

    def wait_for(self, there: Callable[[], bool], what: str) -> None:
        assert self.process is not None
        wait_until(there, what, self.process, pause=0.05)

    def _is_ours(self, process: psutil.Process) -> bool:
        return str(self.temporary) in environ(process).get("TMPDIR", "")


@pytest.fixture
def cluster(here: Path, tmp_path: Path) -> Iterator[Callable[[int], Cluster]]:
    networks, made = [], []

    def make(hosts: int) -> Cluster:
        temporary = tmp_path / "temporary"
        temporary.mkdir()
        networks.append(Network(hosts))
        made.append(Cluster(networks[-1].__enter__(), here, temporary))
        return made[-1]

    yield make
    for each in made:
        if each.process is not None:
            each.process.kill()
        for process in each.members():
            process.kill()
    for network in networks:
        network.__exit__()


@pytest.fixture(scope="module")
def whole(here: Path) -> dict[str, np.ndarray]:
    """The state after as many epochs in two ranks of one host."""
    line = ["mlp.boost", "--data", "data.npz", "--epochs", "20", "--ranks", "2", "--save", "whole.safetensors"]
    subprocess.run([sys.executable, "-m", "boost_compile.tools.run", *line], cwd=here, check=True, capture_output=True)
    return load_file(here / "whole.safetensors")


def assert_same(found: Path, whole: dict[str, np.ndarray]) -> None:
    state = load_file(found)
    assert set(state) == set(whole)
    for name, array in state.items():
        np.testing.assert_array_equal(array, whole[name], err_msg=name)


def test_two_hosts_train_as_one_process_with_twice_the_batch(
    cluster: Callable[[int], Cluster], here: Path, exported: Callable[[str], Path]
) -> None:
    job = cluster(2)
    job.serve(2)
    job.start("--epochs", 20, "--save", "two.safetensors", "--no-shuffle")
    code, out, err = job.end()
    assert code == 0, err
    assert "60 optimizer steps on 2 ranks." in out
    assert err.count("epoch ") == 20
    images, labels = np.load(here / "data.npz").values()
    alone = bc.Session(bc.compile(bc.load(exported("mlp")), "gradient-accumulation{steps=4}"))
    alone.fit((images, labels), epochs=20, shuffle=False)
    found = load_file(here / "two.safetensors")
    for name, array in alone.state().items():
        if not name.startswith("accum"):
            np.testing.assert_allclose(found[name], array, rtol=2e-5, atol=2e-6, err_msg=name)


@pytest.mark.slow
def test_a_rank_that_is_killed_elsewhere_and_a_host_that_vanishes(
    cluster: Callable[[int], Cluster], here: Path, whole: dict[str, np.ndarray]
) -> None:
    """The job starts again on both hosts, then on the one that is left, with the same bits: the program takes a fixed
    number of samples, so two ranks go on there."""
    job = cluster(2)
    job.serve(2)
    saved = here / "lost.safetensors"
    job.start(
        "--epochs", 20, "--save", saved.name, "--save-every", 2, "--restarts", 2, "--eval", "evaluation.py:nap",
        "--log-dir", here / "lost",
    )  # fmt: skip
    job.wait_for(saved.exists, "a state is saved")
    first = job.rank(1)
    first.kill()
    job.wait_for(lambda: any(p != first for p in job.members() if environ(p).get("RANK_ID") == "1"), "a new rank 1")
    before = saved.stat().st_mtime_ns
    job.wait_for(lambda: saved.stat().st_mtime_ns != before, "the second start saves a state")
    job.network.unplug(2)
    code, out, err = job.end()
    assert code == 0, err
    assert "boost-run: rank 1 of 2 on 10.77.0.2 was ended by SIGKILL after optimizer step" in err
    assert f"  restart 1 of 2 in 1 s from {saved.name}: 2 ranks on 2 hosts\n" in err
    assert "boost-run: host 10.77.0.2 has not answered for 20 s\n" in err
    assert f"  restart 2 of 2 in 2 s from {saved.name}: 2 ranks on 1 host\n" in err
    assert "optimizer steps on 2 ranks since restart 2." in out
    assert_same(saved, whole)


@pytest.mark.slow
def test_what_rank_another_host_says_is_named_with_its_host(cluster: Callable[[int], Cluster], here: Path) -> None:
    images, labels = np.load(here / "data.npz").values()
    images[SIZE, 0] = np.inf  # without shuffling it is the second rank that takes this row
    np.savez(here / "bad.npz", images, labels)
    job = cluster(2)
    job.serve(2)
    job.start("--data", "bad.npz", "--no-shuffle")
    code, out, err = job.end()
    assert (code, out) == (2, "")
    assert "boost-run: error: rank 1 of 2 on 10.77.0.2: the loss of step 1 is nan" in err


@pytest.mark.slow
def test_a_job_on_three_hosts_is_asked_to_stop(cluster: Callable[[int], Cluster], here: Path) -> None:
    job = cluster(3)
    job.serve(2)
    job.serve(3)
    saved = here / "three.ckpt"
    job.start("--epochs", 1000, "--save", saved.name, "--save-every", 1, "--eval", "evaluation.py:nap", ranks=3)
    job.wait_for(saved.exists, "a state is saved")
    assert job.process is not None
    job.process.send_signal(signal.SIGTERM)
    code, out, err = job.end()
    assert (code, out) == (75, "")
    assert "boost-run: error: training was asked to stop, and three.ckpt holds its state" in err


def test_a_folder_that_only_one_host_sees(cluster: Callable[[int], Cluster], here: Path) -> None:
    """Found before anything trains: a state to go on from, and the folder for states where the job may start again."""
    job = cluster(2)
    alone = here / "alone"
    alone.mkdir()
    (alone / "state.ckpt").touch()
    job.serve(2, f"mount -t tmpfs none {alone}")
    for options, missing in (
        (("--resume", "alone/state.ckpt"), "alone/state.ckpt"),
        (("--save", "alone/new.ckpt", "--save-every", 1, "--restarts", 1), "alone/.boost-run-"),
    ):
        job.start(*options)
        code, out, err = job.end()
        assert (code, out) == (2, "")
        assert "boost-run: error: host 10.77.0.2 does not see " in err
        assert missing in err
        assert "program, data and saved states must be under the same path on all hosts" in err


def test_a_host_that_is_not_there_and_a_port_that_is_taken(cluster: Callable[[int], Cluster]) -> None:
    job = cluster(2)
    job.start("--quiet")
    code, out, err = job.end()
    assert (code, out) == (1, "")
    assert err.startswith("boost-run: error: host 10.77.0.2 did not join the job: it has ended the connection: ")
    assert "ConnectionRefusedError" in err

    listen = "import socket; s = socket.create_server(('10.77.0.1', 8118)); print('ready', flush=True); s.accept()"
    taken = job.network.start(1, sys.executable, "-c", listen, stdout=subprocess.PIPE, text=True)
    assert taken.stdout is not None
    assert taken.stdout.readline() == "ready\n"
    job.start("--master-port", 8118)
    code, out, err = job.end()
    taken.kill()
    taken.wait()
    assert (code, out) == (2, "")
    assert "port 8118 is in use on this machine; give another with --master-port" in err


@pytest.mark.parametrize(
    ("lines", "fragment"),
    [
        ("# none\n", "hosts.txt: names no host; write an address a line, that of this machine first"),
        ("198.51.100.1\n", "hosts.txt, line 1: 198.51.100.1 is another machine; boost-run runs on the first host"),
        ("127.0.0.1\n\n127.0.0.2  # me\n", "hosts.txt, line 3: 127.0.0.2 is this machine, which is the first host"),
        ("127.0.0.1\n198.51.100.1\n198.51.100.1", "hosts.txt, line 3: 198.51.100.1 is the host of line 2"),
        ("127.0.0.1 slots=2\n", "line 1: 127.0.0.1 is followed by more; a line is an address"),
        ("127.0.0.1\nno-such-host.invalid\n", "line 2: no-such-host.invalid is no host that this machine knows"),
        ("127.0.0.1\n198.51.100.1\n198.51.100.2\n", "hosts.txt: 4 ranks cannot be divided evenly over 3 hosts"),
        (None, "hosts.txt: no such file"),
    ],
)
def test_a_file_that_names_no_hosts(
    lines: str | None, fragment: str, here: Path, tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    monkeypatch.chdir(here)
    monkeypatch.setattr(watch, "start", None)
    hosts = tmp_path / "hosts.txt"
    if lines is not None:
        hosts.write_text(lines)
    done = shell(capsys, command, "mlp.boost", "--data", "data.npz", "--ranks", 4, "--hosts", hosts)
    assert_one_error(done, "boost-run", fragment)


def test_a_remote_shell_that_is_not_there(
    here: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(here)
    hosts = tmp_path / "hosts.txt"
    hosts.write_text("127.0.0.1\n198.51.100.1\n")
    options = ("--ranks", 2, "--hosts", hosts, "--rsh", "no-such-shell -v")
    done = shell(capsys, command, "mlp.boost", "--data", "data.npz", *options)
    assert_one_error(done, "boost-run", "no-such-shell cannot be run", "boost-run --rsh names another command")
