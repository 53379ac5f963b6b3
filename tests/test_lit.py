"""The text-IR tests (``.ir`` files with RUN lines) mean the same to lit and to pytest, which runs them in-process."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.text_ir import FILES, failure, run_lines

HERE = Path(__file__).parent
SAMPLE = ("passes/lower_gradient_centralization.ir", "passes/step/clip_each_rank.ir", "passes/adasum.ir")
"""Files whose RUN lines use all that RUN lines use: pipes, `&&`, `not`, redirections, %s, %S and %t."""

GOOD = '// RUN: %opt %s --passes "" | %filecheck %s\n// CHECK: %b = Neg(%a)\n'
BODY = "graph @g(%x: float32[2]) {\n  %a = Exp(%x)\n  %b = Neg(%a)\n  return %b\n}\n"


def lit(exec_root: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    run = "import lit.main; lit.main.main()"
    command = [sys.executable, "-c", run, "-v", "-j1", "--param", f"exec_root={exec_root}", *arguments]
    return subprocess.run(command, capture_output=True, text=True, cwd=exec_root, check=False)


def test_lit_runs_the_files_too(tmp_path: Path) -> None:
    done = lit(tmp_path, *(str(HERE / name) for name in SAMPLE))
    assert done.returncode == 0, done.stdout


@pytest.mark.slow
def test_lit_runs_all_files(tmp_path: Path) -> None:
    done = lit(tmp_path, *map(str, FILES))
    assert done.returncode == 0, done.stdout


HOLDS = {
    "good": (GOOD, True),
    "false": (GOOD.replace("Neg(%a)", "Neg(%x)"), False),
    "succeeds": (GOOD.replace("%opt", "not %opt"), False),
    "refused": (
        GOOD.replace("%opt", "not %opt").replace('""', '"nothing" 2>&1').replace("%b = Neg(%a)", "nothing"),
        True,
    ),
    "unexpected": (GOOD.replace('""', '"nothing" 2>&1').replace("%b = Neg(%a)", "nothing"), False),
    "empty": (GOOD.replace("|", "> %t.out && %filecheck %s --input-file %t.out && echo |"), False),
    "file": (
        GOOD.replace("|", "> %t.out && %filecheck %s --input-file %t.out").replace(".out %filecheck %s", ".out"),
        True,
    ),
}


def test_both_tell_what_holds(tmp_path: Path) -> None:
    files, scratch = tmp_path / "files", tmp_path / "out"
    files.mkdir()
    scratch.mkdir()
    (files / "lit.cfg.py").write_text((HERE / "lit.cfg.py").read_text())
    for name, (text, _) in HOLDS.items():
        (files / f"{name}.ir").write_text(text + BODY)
    told = lit(scratch, str(files)).stdout
    for name, (_, holds) in HOLDS.items():
        assert (failure(files / f"{name}.ir", scratch) == "") is holds, name
        assert f"{'PASS' if holds else 'FAIL'}: boost-compile :: {name}.ir" in told, told


def test_every_file_has_run_lines(tmp_path: Path) -> None:
    assert [path for path in FILES if not run_lines(path, tmp_path)] == []
