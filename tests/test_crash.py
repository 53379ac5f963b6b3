"""A small share of `make crash`: writers killed at random points, and on full disks."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tests.ranks import ROOT


def test_what_is_left_is_old_or_new(exported):
    line = [sys.executable, "-m", "tests.crash.run", "--quick", "--points", "4", "--seed", "1"]
    done = subprocess.run(
        [*line, "--model", str(Path(exported("mlp")).resolve())], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    killed = [line for line in done.stdout.splitlines() if "killed" in line]
    assert len(killed) == 5, done.stdout
    assert all("refused" in line for line in done.stdout.splitlines() if "full disk" in line), done.stdout
