"""Runs the text-IR tests of this folder, so that pytest alone covers them."""

import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent


@pytest.mark.parametrize("name", sorted(p.name for p in HERE.glob("*.ir")))
def test_text_ir(name: str, tmp_path: Path) -> None:
    run = "import lit.main; lit.main.main()"
    command = [sys.executable, "-c", run, "-v", str(HERE / name)]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "Passed: 1" in done.stdout
