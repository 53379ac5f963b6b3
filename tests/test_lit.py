"""Runs the text-IR tests (``.ir`` files with RUN lines), so that pytest alone covers them."""

import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent


FILES = sorted(HERE.rglob("*.ir"))


def lit(path: Path, exec_root: Path) -> subprocess.CompletedProcess[str]:
    run = "import lit.main; lit.main.main()"
    command = [sys.executable, "-c", run, "-v", "--param", f"exec_root={exec_root}", str(path)]
    return subprocess.run(command, capture_output=True, text=True, cwd=exec_root, check=False)


@pytest.mark.parametrize("path", FILES, ids=[str(p.relative_to(HERE)) for p in FILES])
def test_text_ir(path: Path, tmp_path: Path) -> None:
    done = lit(path, tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "Passed: 1" in done.stdout


def test_a_wrong_expectation_fails(tmp_path: Path) -> None:
    """The whole chain (lit, compiler, filecheck) can fail: a test with a false CHECK does."""
    (tmp_path / "lit.cfg.py").write_text((HERE / "lit.cfg.py").read_text())
    good = '// RUN: %opt %s --passes "" | %filecheck %s\n// CHECK: %b = Neg(%a)\n'
    body = "graph @g(%x: float32[2]) {\n  %a = Exp(%x)\n  %b = Neg(%a)\n  return %b\n}\n"
    (tmp_path / "good.ir").write_text(good + body)
    (tmp_path / "bad.ir").write_text(good.replace("Neg(%a)", "Neg(%x)") + body)
    out = tmp_path / "out"
    out.mkdir()
    assert lit(tmp_path / "good.ir", out).returncode == 0
    failed = lit(tmp_path / "bad.ir", out)
    assert failed.returncode == 1
    assert "Failed: 1" in failed.stdout
