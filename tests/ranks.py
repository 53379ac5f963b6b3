"""Real ranks for tests: a module of tests run by `msrun` on this machine, and what each rank reported.

A job is a module with a `main`; it calls `report` with its arrays. Starting a rank costs seconds of processor time, so
put many checks into one job.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import os
import random
import signal
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import psutil
from boost_compile.tools.jobs.hosts import is_free

from tests.waiting import PATIENCE

ROOT = Path(__file__).parent.parent
RESULTS = "BOOST_COMPILE_TEST_RESULTS"


def run_ranks(module: str, ranks: int, *arguments: str) -> list[dict[str, np.ndarray]]:
    """Runs the `main` of a module on `ranks` ranks, with the arguments in `sys.argv[1:]`.

    Returns what each reported, in their order.
    A rank that fails or a job that hangs is an AssertionError with the end of the logs; no process of the job outlives
    the call.
    """
    with tempfile.TemporaryDirectory(prefix="ranks-") as name:
        folder = Path(name)
        ended = _run([module, *arguments], ranks, folder)
        reports = [folder / f"rank_{rank}.npz" for rank in range(ranks)]
        if ended != 0 or not all(path.exists() for path in reports):
            how = "did not end in time" if ended is None else f"ended with {ended}"
            raise AssertionError(f"the job {module} on {ranks} ranks {how}\n{_logs(folder)}")
        return [_load(path) for path in reports]


def report(values: Mapping[str, np.ndarray]) -> None:
    """For the job: hands this rank's arrays to the test. Once, at its end."""
    rank = int(os.environ["RANK_ID"])
    path = Path(os.environ[RESULTS], f"rank_{rank}.npz")
    unfinished = path.with_suffix(".part")
    with open(unfinished, "wb") as file:
        np.savez(file, **values)
    unfinished.rename(path)


def _rank() -> None:
    """What a rank runs: the job of the module that its first argument names."""
    del sys.argv[0]
    job = importlib.import_module(sys.argv[0])
    gc.freeze()  # MindSpore collects garbage before each compilation, and its modules are many objects
    job.main()


def _run(command: list[str], ranks: int, folder: Path) -> int | None:
    """The exit code of msrun; None where it had to be stopped."""
    binaries = Path(sys.executable).parent
    environment = {
        **os.environ,
        RESULTS: str(folder),
        # msrun starts what the shell calls python.
        "PATH": f"{binaries}{os.pathsep}{os.environ['PATH']}",
        "PYTHONPATH": os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH", "")])),
        "OMP_NUM_THREADS": "1",
        # How long a rank waits in a collective: others may still compile (MindSpore: 30 s).
        "MS_CPU_COMM_OP_TIMEOUT": str(int(PATIENCE)),
    }
    arguments = ["--worker_num", str(ranks), "--local_worker_num", str(ranks), "--master_port", str(free_port())]
    arguments += ["--join", "True", "--log_dir", str(folder / "logs"), "python", "-m", "tests.ranks", *command]
    with open(folder / "msrun.txt", "w") as output:
        job = subprocess.Popen(
            [str(binaries / "msrun"), *arguments],
            stdout=output,
            stderr=subprocess.STDOUT,
            cwd=folder,
            env=environment,
            start_new_session=True,
        )
        try:
            return job.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            return None
        finally:
            _kill(job)


def _kill(job: subprocess.Popen[bytes]) -> None:
    """msrun, its scheduler and its ranks, which have sessions of their own."""
    try:
        family = psutil.Process(job.pid).children(recursive=True)
        os.killpg(job.pid, signal.SIGKILL)
    except (psutil.NoSuchProcess, ProcessLookupError):
        return
    for process in family:
        with contextlib.suppress(psutil.NoSuchProcess):
            process.kill()
    job.wait()


def free_port() -> int:
    """A port of this machine that nothing listens on. It is below those that systems hand out by themselves (Linux:
    from 32768 on), or another process could get it before the job listens there."""
    return next(port for port in iter(lambda: random.SystemRandom().randrange(20_000, 32_768), None) if is_free(port))


def _load(path: Path) -> dict[str, np.ndarray]:
    with np.load(path) as stored:
        return {name: stored[name] for name in stored.files}


def _logs(folder: Path) -> str:
    files = [folder / "msrun.txt", *sorted((folder / "logs").glob("*.log"))]
    return "\n".join(f"== {f.name}\n" + "\n".join(f.read_text(errors="replace").splitlines()[-25:]) for f in files)


if __name__ == "__main__":
    _rank()


def environ(process: psutil.Process) -> dict[str, str]:
    """Nothing of one that is gone, or another user's."""
    try:
        return process.environ()
    except psutil.Error:
        return {}
