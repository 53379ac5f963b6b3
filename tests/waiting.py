"""Waiting for what a test needs. A condition decides, and never the time: a machine may be busy with much else."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable
from typing import Any

PATIENCE = 600.0
"""Seconds after which something is taken to hang: far above what anything here takes on a machine under load."""


def wait_until(
    there: Callable[[], object], what: str, process: subprocess.Popen[Any] | None = None, pause: float = 0.02
) -> None:
    """Asks `there` every `pause` seconds until it holds; AssertionError with `what` where it never does. `process` must
    not end before."""
    until = time.monotonic() + PATIENCE
    while not there():
        assert process is None or process.poll() is None, (f"the process ended before {what}", process.communicate())
        assert time.monotonic() < until, f"waited in vain: {what}"
        time.sleep(pause)
