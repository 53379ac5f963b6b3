"""Runs the text-IR tests (``.ir`` files with RUN lines), so that pytest alone covers them."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent


FILES = sorted(HERE.rglob("*.ir"))


def lit(exec_root: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    run = "import lit.main; lit.main.main()"
    command = [sys.executable, "-c", run, "-v", "-j1", "--param", f"exec_root={exec_root}", *arguments]
    return subprocess.run(command, capture_output=True, text=True, cwd=exec_root, check=False)


@pytest.fixture(scope="module")
def results(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> dict[Path, dict[str, str]]:
    """What one run of lit says of each file that is asked for."""
    folder = tmp_path_factory.mktemp("lit")
    items = [item for item in request.session.items if isinstance(item, pytest.Function)]
    paths = [item.callspec.params["path"] for item in items if item.originalname == "test_text_ir"]
    done = lit(folder, *map(str, paths), "--output", str(folder / "results.json"))
    assert done.returncode in (0, 1), done.stdout + done.stderr
    tests = json.loads((folder / "results.json").read_text())["tests"]
    return {HERE / test["name"].removeprefix("boost-compile :: "): test for test in tests}


@pytest.mark.parametrize("path", FILES, ids=[str(p.relative_to(HERE)) for p in FILES])
def test_text_ir(path: Path, results: dict[Path, dict[str, str]]) -> None:
    assert results[path]["code"] == "PASS", results[path]["output"]


def test_a_wrong_expectation_fails(tmp_path: Path) -> None:
    """The whole chain (lit, compiler, filecheck) can fail: a test with a false CHECK does."""
    (tmp_path / "lit.cfg.py").write_text((HERE / "lit.cfg.py").read_text())
    good = '// RUN: %opt %s --passes "" | %filecheck %s\n// CHECK: %b = Neg(%a)\n'
    body = "graph @g(%x: float32[2]) {\n  %a = Exp(%x)\n  %b = Neg(%a)\n  return %b\n}\n"
    (tmp_path / "good.ir").write_text(good + body)
    (tmp_path / "bad.ir").write_text(good.replace("Neg(%a)", "Neg(%x)") + body)
    out = tmp_path / "out"
    out.mkdir()
    assert lit(out, str(tmp_path / "good.ir")).returncode == 0
    failed = lit(out, str(tmp_path / "bad.ir"))
    assert failed.returncode == 1
    assert "Failed: 1" in failed.stdout
