"""Every command and block of Python in README and docs/ does what the page says, in order, from an empty folder."""

from __future__ import annotations

import importlib
import re
import runpy
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from boost_compile.tools import cli

from .advice import COMMANDS
from .pages.reading import Item, items
from .pages.references import spans
from .waiting import PATIENCE

ROOT = Path(__file__).parent.parent
PAGES = ["README.md", *sorted(f"docs/{path.name}" for path in (ROOT / "docs").glob("*.md"))]

NOT_RUN = {
    r"^make ": "make is run by whoever runs this",
    r"^python -m tests\.": "long sweeps, which have tests of their own",
    r"^msrun ": "needs several machines, or the script above it: tests/test_data_parallel.py starts such jobs",
    r"--hosts ": "needs several machines: tests/tools/test_run_hosts.py starts such jobs",
    r"^boost-run ranks\.boost ": "a job of ranks takes long, and docs/distributed.md starts the same",
    r"^(pip|python3 -m venv) ": "needs a network, or makes an environment",
    r"--open": "starts a server",
    r"--check-device (GPU|Ascend)": "ends differently on a machine that has one",
    r"…": "shortened on the page",
}
"""What is not run, and why; by what stands in it."""

ELSEWHERE = {
    "docs/ten-nodes.md": "docs/make_ten_nodes.py runs it: tests/test_api.py",
    "docs/write-a-pass.md": "tests/test_write_a_pass.py runs it",
}

GIVEN = {
    "README.md": {"train.npz": "train.npz"},
    "docs/onnx.md": {
        **{name: name for name in ("model.onnx", "net.mindir", "net_with_loss.mindir")},
        "train.npz": "digits.npz",
    },
}
"""What a page takes for given, by the name that it has there, where that is not everything."""


@pytest.fixture(scope="module")
def given(tmp_path_factory: pytest.TempPathFactory) -> Path:
    from .pages.given import make_all

    folder = tmp_path_factory.mktemp("given")
    make_all(folder)
    return folder


def prepared(given: Path, page: str, folder: Path) -> None:
    """The page's folder: what the page takes for given, and the documents that it shows itself."""
    everything = {path.name: path.name for path in given.iterdir()}
    for name, source in GIVEN.get(page, everything).items():
        (shutil.copytree if (given / source).is_dir() else shutil.copy)(given / source, folder / name)
    for item in items(ROOT / page):
        if item.kind == "toml" and page == "docs/commands.md":
            (folder / "mine.toml").write_text(item.text)


@pytest.mark.parametrize("page", [page for page in PAGES if page not in ELSEWHERE and items(ROOT / page)])
def test_a_page(
    page: str, given: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path / "net")  # where a page has `-o net` and then imports it
    prepared(given, page, tmp_path)
    from .pages.given import names_of_the_reader

    names: dict[str, Any] = names_of_the_reader(given, page)
    printed = ""
    for item in items(ROOT / page):
        typed_text = " ".join(item.arguments) if item.kind == "sh" else item.text
        if any(re.search(what, typed_text) for what in NOT_RUN) or lacking(typed_text):
            continue
        if item.kind == "python":
            script = tmp_path / f"block_{item.line}.py"
            script.write_text(item.text)
            importlib.invalidate_caches()  # a folder of modules that a command before has made
            capsys.readouterr()
            names.update(runpy.run_path(str(script), init_globals=names))
            printed = capsys.readouterr().out
        elif item.kind == "text":
            assert shape(printed) == shape(item.text), f"{page}:{item.line}"
        elif item.kind == "sh":
            typed(item, f"{page}:{item.line}", capsys)


def shape(printed: str) -> str:
    """What a block prints, without its numbers: those of a training differ in the last digits between processors."""
    return re.sub(r"\d+(?:\.\d+)?", "#", printed)


def lacking(typed_text: str) -> bool:
    """Whether a command draws, and Graphviz is not installed: Python and make are all that the tests ask for."""
    return bool(re.search(r"\.svg\b|--format svg", typed_text)) and shutil.which("dot") is None


def typed(item: Item, where: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Runs a command as a shell would, in this process unless it starts processes itself."""
    name, *arguments = item.arguments
    if "--ranks" in arguments:
        module = f"boost_compile.tools.{name.removeprefix('boost-')}"
        done = subprocess.run(
            [sys.executable, "-m", module, *arguments], capture_output=True, text=True, timeout=PATIENCE
        )
        code, said = done.returncode, done.stdout + done.stderr
    else:
        capsys.readouterr()
        with pytest.raises(SystemExit) as caught:
            cli.run(COMMANDS[name], arguments)
        code, said = caught.value.code, "".join(capsys.readouterr())
    assert code == item.expected, f"{where}: {item.text}\nexit {code}\n{said}"


def test_every_command_is_read() -> None:
    """The reading of pages misses no command: each line that looks like one is an item."""
    for page in PAGES:
        typed_here = {item.line for item in items(ROOT / page)}
        for k, line in enumerate((ROOT / page).read_text(encoding="utf-8").split("\n"), 1):
            assert (
                not re.match(r" {4,}boost-(compile|inspect|prove|run|verify|reduce) [^\W]", line) or k in typed_here
            ), f"{page}:{k}: {line}"


def test_names_of_mindspore_exist() -> None:
    """`mindspore.export`, `nn.TrainOneStepCell`, `ops.assign`: MindSpore is loaded here anyway."""
    import mindspore as ms
    from mindspore import nn, ops

    known = {"mindspore": ms, "ms": ms, "nn": nn, "ops": ops}
    missing = []
    for page in [*PAGES, "CONTRIBUTING.md", "SECURITY.md"]:
        for line, text in spans(ROOT / page):
            if found := re.match(r"(mindspore|ms|nn|ops)((?:\.\w+)+)", text):
                here: Any = known[found[1]]
                for part in found[2].split(".")[1:]:
                    here = getattr(here, part, None) or _submodule(here, part)
                if here is None:
                    missing.append(f"{page}:{line}: {text}")
    assert missing == []


def _submodule(package: Any, name: str) -> Any:
    try:
        return importlib.import_module(f"{package.__name__}.{name}")
    except (ImportError, AttributeError):
        return None
