"""What the project brings along and reaches for: bounded dependencies, known licences, no network."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tests import offline
from tests.networks import CASES
from tests.tools.support import write_data
from tests.waiting import PATIENCE

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

ROOT = Path(__file__).parent.parent
VENDORED = {"tools/views/page/vendor": 2, "docs/vendor": 1}
"""Folders of what others wrote, and how many licence texts each holds."""


@pytest.fixture(scope="module")
def document() -> dict[str, Any]:
    return tomllib.loads((ROOT / "pyproject.toml").read_text())


def test_every_dependency_has_bounds(document: dict[str, Any]) -> None:
    project = document["project"]
    lines = [*document["build-system"]["requires"], *project["dependencies"]]
    lines += [line for extra in project["optional-dependencies"].values() for line in extra]
    for line in lines:
        assert {">=", "<"} <= {specifier.operator for specifier in Requirement(line).specifier}, line


def test_the_licence_of_every_dependency_is_listed(document: dict[str, Any]) -> None:
    text = (ROOT / "docs/licenses.md").read_text()
    listed = {canonicalize_name(name) for name in re.findall(r"^\| (\S+) +\| \d", text, re.MULTILINE)}
    project = document["project"]
    needed = map(Requirement, [*project["dependencies"], *project["optional-dependencies"]["dev"]])
    missing = {canonicalize_name(each.name) for each in needed if each.marker is None} - listed
    assert not missing, "`make licenses` writes the list anew"


@pytest.mark.parametrize("folder", VENDORED)
def test_what_stands_in_the_repository_of_others_has_its_licence(folder: str) -> None:
    notices, *texts = (ROOT / folder / "LICENSES.txt").read_text().split("\n---- ")
    files = {path.name for path in (ROOT / folder).iterdir()} - {"LICENSES.txt"}
    assert len(files) >= len(texts) == VENDORED[folder]
    for name in files:
        assert re.search(rf"^.*\b{re.escape(name)}.*: \S+ [\d.]+, https://", notices, re.MULTILINE), name


# -- no network ------------------------------------------------------------------------------------------------

GUARD = "from tests.offline import forbid; forbid()\n"
COMMANDS = """
from boost_compile.tools import cli, compile, inspect, run, verify
for module, arguments in (
    (compile, "mlp.mindir --accumulate 2 -o mlp.boost"),
    (inspect, "mlp.boost --original mlp.mindir -o report.html"),
    (inspect, "mlp.mindir --standard -o mlp.onnx"),
    (run, "mlp.boost --data data.npz --epochs 1 --save trained.safetensors"),
    (verify, "mlp.mindir mlp.boost"),
):
    try:
        cli.run(module.command, arguments.split())
    except SystemExit as end:
        assert end.code == 0, arguments
"""

guarded = pytest.mark.skipif(not offline.SUPPORTED, reason="system calls are filtered on Linux, x86-64 or AArch64")


def run_in(folder: Path, code: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", f"import sys; sys.path.insert(0, {str(ROOT)!r})\n{GUARD}{code}"]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=PATIENCE)


@guarded
@pytest.mark.parametrize("child", [False, True])
def test_the_guard_sees_sockets(child: bool, tmp_path: Path) -> None:
    code = "import socket; socket.socketpair(); print('local', flush=True); socket.socket()"
    if child:
        code = (
            f"import subprocess, sys; sys.exit(subprocess.call([sys.executable, '-c', {code!r}]) == -{signal.SIGSYS})"
        )
    done = run_in(tmp_path, code)
    assert (done.returncode, done.stdout) == (1 if child else -signal.SIGSYS, "local\n"), done.stderr


@guarded
def test_commands_reach_for_no_network(exported: Callable[[str], Path], tmp_path: Path) -> None:
    """Compiled, looked at, trained and verified, in one process that its first socket would end."""
    (tmp_path / "mlp.mindir").write_bytes(exported("mlp").read_bytes())
    write_data(tmp_path / "data.npz", CASES["mlp"].batches(2))
    done = run_in(tmp_path, COMMANDS)
    assert done.returncode == 0, done.stdout + done.stderr
    made = {"mlp.boost", "report.html", "mlp.onnx", "trained.safetensors"}
    assert made <= {path.name for path in tmp_path.iterdir()}
