"""What the commands replace, and what they never do: files that stand where -o points."""

from __future__ import annotations

from pathlib import Path

import pytest

import boost_compile as bc
from tests.advice import COMMANDS

from .support import assert_one_error, shell

TEXT = """state %w: float32[2]<1.0, 2.0> role=weight
graph @step(%x: float32[2]) -> (loss) {
  %read = Load(%w, umonad)
  %y = Add(%x, %read)
  return %y
}
"""


@pytest.fixture
def run(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    Path("small.ir").write_text(TEXT)
    return lambda line: shell(capsys, COMMANDS[line.split()[0]], *line.split()[1:])


@pytest.mark.parametrize(
    "line",
    [
        "boost-compile small.ir -o small.ir",
        "boost-compile small.ir -o ./small.ir --force",
        "boost-compile model.mindir -o model.mindir",
        "boost-compile model.boost -o model.boost",
        "boost-compile small.ir --config own.json -o own.json --emit text",
        "boost-inspect small.ir -o small.ir",
        "boost-inspect model.boost --original small.ir --format html -o small.ir",
        "boost-inspect small.ir --diff model.txt -o model.txt",
        "boost-reduce small.ir --check false -o small.ir",
    ],
)
def test_an_input_is_never_replaced(run, line: str) -> None:
    program = bc.load("small.ir")
    for name in ("model.mindir", "model.boost", "model.txt"):
        program.save(name)
    Path("own.json").write_text('{"passes": []}')
    before = {p: p.read_bytes() for p in Path().rglob("*") if p.is_file()}
    done = run(line)
    assert_one_error(done, line.split()[0])
    assert {p: p.read_bytes() for p in Path().rglob("*") if p.is_file()} == before


@pytest.mark.parametrize(
    "line",
    [
        "boost-compile small.ir -o model.onnx",
        "boost-compile small.ir -o model.pt",
        "boost-compile small.ir --emit text -o some.py",
        "boost-inspect small.ir -o cnn.png",
        "boost-inspect small.ir -o page",
        "boost-inspect small.ir --format json -o page.html",
        "boost-inspect small.ir --format python -o network.py",
        "boost-reduce small.ir --check false -o reduced.mindir",
    ],
)
def test_a_suffix_that_says_nothing_is_an_error(run, line: str) -> None:
    done = run(line)
    assert_one_error(done, line.split()[0], line.split()[-1])
    assert [p.name for p in Path().iterdir()] == ["small.ir"]


@pytest.mark.parametrize(
    ("line", "name"),
    [
        ("boost-compile small.ir -q -o notes.txt", "notes.txt"),
        ("boost-compile small.ir -q -o other.mindir", "other.mindir"),
        ("boost-inspect small.ir -o notes.txt", "notes.txt"),
        ("boost-inspect small.ir -o data.json", "data.json"),
        ("boost-inspect small.ir -o page.html", "page.html"),
        ("boost-inspect small.ir --standard -o model.onnx", "model.onnx"),
    ],
)
def test_a_file_of_another_kind_wants_force(run, line: str, name: str) -> None:
    Path(name).write_text("my notes\n")
    assert_one_error(run(line), line.split()[0], name, "--force")
    assert Path(name).read_text() == "my notes\n"
    assert run(f"{line} --force").code == 0
    assert b"my notes" not in Path(name).read_bytes()
    assert run(line).code == 0, "what the command wrote itself is replaced without asking"


@pytest.mark.parametrize("format_", ["summary", "effects", "batch"])
def test_a_table_replaces_no_text_unless_it_is_forced(run, format_: str) -> None:
    line = f"boost-inspect small.ir --format {format_} -o notes.txt"
    Path("notes.txt").touch()
    assert run(line).code == 0, "an empty file is nobody's"
    Path("notes.txt").write_text("graph of my own\n")
    assert_one_error(run(line), "boost-inspect", "notes.txt", "--force")
    assert Path("notes.txt").read_text() == "graph of my own\n"
    assert run(f"{line} --force").code == 0
    assert "my own" not in Path("notes.txt").read_text()


def test_python_replaces_no_file_of_another_kind(run) -> None:
    program = bc.load("small.ir")
    Path("notes.txt").write_text("my notes\n")
    with pytest.raises(bc.Error, match=r"notes\.txt: what stands there is not what its name says"):
        program.save("notes.txt")
    assert Path("notes.txt").read_text() == "my notes\n"
    program.save("small.ir")


def test_nothing_is_written_inside_a_program(run) -> None:
    program = bc.load("small.ir")
    program.save("whole.boost")
    before = sorted(Path("whole.boost").iterdir())
    with pytest.raises(bc.Error, match=r"inside the program .*whole\.boost"):
        program.save("whole.boost/part.boost")
    assert_one_error(run("boost-compile small.ir -o whole.boost/part.ir"), "boost-compile", "inside the program")
    assert_one_error(run("boost-inspect small.ir -o whole.boost/page.html"), "boost-inspect", "inside the program")
    assert sorted(Path("whole.boost").iterdir()) == before


def test_what_is_no_path_is_an_error() -> None:
    with pytest.raises(bc.Error, match="from a path, not from a NoneType"):
        bc.load(None)  # type: ignore[arg-type]


def test_python_names_the_forms_too(run) -> None:
    program = bc.load("small.ir")
    with pytest.raises(bc.Error, match=r"model\.onnx.*\.boost.*\.mindir"):
        program.save("model.onnx")
    assert not Path("model.onnx").exists()
    program.save("again.ir")
    assert bc.load("again.ir").state.keys() == program.state.keys()
