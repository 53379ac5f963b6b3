"""boost-inspect --diff: exit status, formats, and what they say."""

from __future__ import annotations

from collections.abc import Callable
from html.parser import HTMLParser
from pathlib import Path

import pytest
from boost_compile.ir.core.op import Op
from boost_compile.ir.formats.storage.load import load
from boost_compile.ir.formats.storage.save import save
from boost_compile.tools.compile import command as compile_command
from boost_compile.tools.inspect import command
from boost_compile.tools.views.page_file import page_file

from .support import Shell, assert_one_error, shell

Inspect = Callable[..., Shell]
Exported = Callable[[str], Path]


@pytest.fixture
def inspect_(capsys: pytest.CaptureFixture[str]) -> Inspect:
    return lambda *arguments: shell(capsys, command, *arguments)


@pytest.fixture
def program(tmp_path: Path, capsys: pytest.CaptureFixture[str], exported: Exported) -> Path:
    path = tmp_path / "mlp.boost"
    assert shell(capsys, compile_command, exported("mlp"), "--accumulate", "4", "-q", "-o", path).code == 0
    return path


@pytest.mark.parametrize("format_", ["text", "json", "html"])
def test_equal_programs(format_: str, inspect_: Inspect, exported: Exported, tmp_path: Path) -> None:
    """A file and its full text form, in which nodes have other names."""
    text, output = tmp_path / "copy.txt", tmp_path / "out"
    assert inspect_(exported("mlp"), "-o", text).code == 0
    written = text.read_text()
    assert "%CNode" in written
    text.write_text(written.replace("%CNode", "%Other"))
    assert inspect_(exported("mlp"), "--diff", text, "--format", format_, "-o", output).code == 0
    assert (output.read_text() == "") == (format_ == "text")


def test_text(inspect_: Inspect, exported: Exported, program: Path) -> None:
    done = inspect_(exported("mlp"), "--diff", program)
    assert (done.code, done.err) == (1, "")
    for words in (
        "graph 'step' → 'accumulate': ",
        "by gradient-accumulation",
        "+ %AssignAdd.1 = AssignAdd(%accum.",
        "in Default/optimizer-Momentum",
        "operand 3: ",
        "cycle: step → accumulate x 4, apply",
        "+ %accum.hidden.weight  type: added float32[16,8]; role: added accumulator",
    ):
        assert words in done.out, done.out


def test_json(inspect_: Inspect, exported: Exported, program: Path) -> None:
    done = inspect_(exported("mlp"), "--diff", program, "--format", "json")
    assert done.code == 1
    document = done.document
    assert document["equal"] is False
    nodes = [n for g in document["graphs"] for n in g["nodes"]]
    assert {n["pass"] for n in nodes} == {"gradient-accumulation"}
    for kind, count in document["counts"].items():
        assert count == sum(n["order"] if kind == "order" else n["kind"] == kind and not n["order"] for n in nodes)
    assert all((n["before"] is None) == (n["kind"] == "added") for n in nodes)
    back = inspect_(program, "--diff", exported("mlp"), "--format", "json").document
    assert back["counts"]["removed"] == document["counts"]["added"]


class Links(HTMLParser):
    """Collects what a page would load, and its text."""

    def __init__(self) -> None:
        super().__init__()
        self.loads: list[str] = []
        self.text = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.loads += [str(value) for name, value in attrs if name in ("src", "href")]

    def handle_data(self, data: str) -> None:
        self.text += data


def test_page(inspect_: Inspect, exported: Exported, program: Path, tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    assert inspect_(exported("mlp"), "--diff", program, "-o", page).code == 1
    links = Links()
    links.feed(page.read_text())
    assert links.loads == []
    assert page_file("report.css") in page.read_text(), "it looks like the report"
    assert "gradient-accumulation" in links.text
    assert "AssignAdd(%accum." in links.text


def test_a_bug_is_no_difference(inspect_: Inspect, exported: Exported, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object, **__: object) -> None:
        raise KeyError("lost")

    monkeypatch.setattr("boost_compile.ir.analysis.compare.diff.diff", broken)
    assert_one_error(inspect_(exported("mlp"), "--diff", exported("mlp")), "boost-inspect", "internal: KeyError")


def test_errors(inspect_: Inspect, exported: Exported, tmp_path: Path) -> None:
    assert_one_error(inspect_(exported("mlp"), "--diff", tmp_path / "none.mindir"), "boost-inspect", "none.mindir")
    for arguments in (["--format", "svg"], ["--scope", "x"]):
        assert_one_error(inspect_(exported("mlp"), "--diff", exported("mlp"), *arguments), "boost-inspect", "--diff")


def test_only_what_is_computed_if_asked_for(exported: Exported, inspect_: Inspect, tmp_path: Path) -> None:
    other = tmp_path / "other.mindir"
    program = load(exported("mlp"))
    for node in program.graphs["step"]:
        node.scope = f"{node.scope}/elsewhere"
    save(program, other)
    assert inspect_(exported("mlp"), "--diff", other).code == 1
    assert inspect_(exported("mlp"), "--diff", other, "--computation").code == 0
    next(node for node in program.graphs["step"] if node.op.name == "Tanh" or node.op.name == "ReLU").op = Op("Sigmoid")
    save(program, other)
    done = inspect_(exported("mlp"), "--diff", other, "--computation")
    assert done.code == 1
    assert "Sigmoid" in done.out
    assert_one_error(inspect_(exported("mlp"), "--computation"), "boost-inspect", "--computation goes with --diff")
