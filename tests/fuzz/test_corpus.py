"""What fuzzing and thinking found, and mutations for every reader: refused with one error or read, nothing else."""

from __future__ import annotations

import ast
import os
import re
import shutil
import sys
from pathlib import Path
from random import Random

import pytest
from boost_compile.ir.core.errors import Error
from boost_compile.tools.compile import command as compile_command
from boost_compile.tools.inspect import command as inspect_command
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.tools.support import Shell, shell

from . import mutations
from .__main__ import CORPUS
from .readers import READERS, mutated
from .seeds import TRAINED, program_files
from .trial import trial

FINDINGS = sorted(path for folder in CORPUS.iterdir() for path in folder.iterdir())
ROOT = Path(__file__).parents[2]
FORMATS = {
    **dict.fromkeys(("summary", "anatomy", "paths", "effects", "batch", "seeds", "text"), "x.txt"),
    "json": "x.json", "dot": "x.dot", "svg": "x.svg",
    "html": "x.html", "model-explorer": "x.json", "python": "x",
}  # fmt: skip
"""Of boost-inspect, with the name of a file for each."""
COMPILES = frozenset({"rank-of-a-node"})
"""A training graph all the same: a type that is none is carried through unread. Nothing else of the corpus compiles."""


def named(path: Path) -> str:
    return f"{path.parent.name}/{path.name}"


@pytest.mark.parametrize("path", FINDINGS, ids=named)
def test_a_finding_is_none_any_more(path: Path) -> None:
    found = trial(READERS[path.parent.name], path.read_bytes())
    assert found is None, found


@pytest.mark.parametrize("name", READERS)
def test_what_is_valid_is_read(name: str, tmp_path: Path) -> None:
    """The seeds get past the reader: mutations of what is refused at once would try nothing."""
    refused = []
    for i, seed in enumerate(READERS[name].seeds()):
        (tmp_path / str(i)).mkdir()
        try:
            READERS[name].read(seed, tmp_path / str(i))
        except Error as error:
            refused.append(error)
    assert len(refused) < len(READERS[name].seeds()) or name.startswith("program") or name.endswith("commands"), refused


@pytest.mark.parametrize("name", sorted(READERS))
def test_mutations_of_the_structure(name: str) -> None:
    @settings(max_examples=12)
    @given(st.integers(0, 2**32))
    def check(seed: int) -> None:
        random = Random(seed)
        reader = READERS[name]
        found = trial(reader, mutated(reader, random.choice(reader.seeds()), random))
        assert found is None, found

    check()


def test_mutations_change_most_inputs() -> None:
    for reader in READERS.values():
        changed = [mutated(reader, reader.seeds()[0], Random(i)) != reader.seeds()[0] for i in range(20)]
        assert sum(changed) >= 10, reader.name


def test_mutated_messages_mostly_parse() -> None:
    """Structure survives: a mutation that only broke the encoding would never reach what is behind the parser."""
    from boost_compile.ir.formats.mindir.schema import ModelProto

    for i in range(20):
        ModelProto().MergeFromString(mutations.mindir(READERS["mindir"].seeds()[0], Random(i)))


# -- through the commands ----------------------------------------------------------------------------------------------


def _place(path: Path, folder: Path) -> str:
    """The finding as a command would be given it, beside the other files that it needs."""
    kind = path.parent.name
    if kind.startswith("program"):
        files = {"program-graph": "step.mindir", "program-state": "state.safetensors"}
        file = files.get(kind, "program.json")
        (folder / "in.boost").mkdir()
        for name, content in {**program_files()[1], file: path.read_bytes()}.items():
            (folder / "in.boost" / name).write_bytes(content)
        return "in.boost"
    (folder / "secret").write_bytes(b"\x01" + bytes(300))
    name = f"sub/in{READERS[kind].suffix}"
    (folder / "sub" / "folder").mkdir(parents=True)
    (folder / "sub" / "data_0").write_bytes(b"\x01" + bytes(300))
    (folder / "sub" / "link").symlink_to(folder / "secret")
    (folder / name).write_bytes(path.read_bytes())
    return name


def assert_plain(done: Shell) -> None:
    assert "Traceback" not in done.err
    assert "internal" not in done.err
    assert done.err.count("error:") <= 1
    assert not set("\x1b\x07\x9b\u202e") & set(done.err + done.out)


COMMANDS = [p for p in FINDINGS if READERS[p.parent.name].suffix or p.parent.name.startswith("program")]


@pytest.mark.parametrize("path", COMMANDS, ids=named)
def test_commands_refuse_it(
    path: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    name = _place(path, tmp_path)
    before = {*tmp_path.rglob("*")}
    compiled = shell(capsys, compile_command, name, "--accumulate", "2", "-o", "out.boost")
    shown = shell(capsys, inspect_command, name)
    for done in (compiled, shown):
        assert_plain(done)
        assert done.code in (0, 2)
        assert done.err.count("error:") == (done.code == 2)
    if path.name not in COMPILES:
        assert compiled.code == 2
        assert {*tmp_path.rglob("*")} == before


@pytest.mark.parametrize("format_", FORMATS)
@pytest.mark.parametrize("in_a_file", [False, True])
def test_hostile_names_do_no_harm(
    format_: str, in_a_file: bool, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Terminal escapes, markup, scripts, paths, line breaks: in every format, on the terminal and in files."""
    monkeypatch.chdir(tmp_path)
    to = FORMATS[format_] if in_a_file else "-"
    name = _place(CORPUS / "text-commands" / "names", tmp_path)
    before = {*tmp_path.rglob("*")}
    done = shell(capsys, inspect_command, name, "--format", format_, "-o", to)
    assert_plain(done)
    refused = format_ in ("anatomy", "paths") or (format_ == "svg" and shutil.which("dot") is None)
    assert done.code == (2 if refused else 0)
    new = {*tmp_path.rglob("*")} - before
    assert all((tmp_path / to) in (path, *path.parents) for path in new)
    assert bool(new) == (to != "-" and done.code == 0)
    for path in (p for p in new if p.is_file() and p.suffix != ".safetensors"):
        assert not set("\x1b\x07\x9b\u202e") & set(path.read_text(encoding="utf-8"))


def test_reports_of_hostile_names_do_no_harm(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A training graph whose weight and loss carry such names: compiled, reported, shown, and refused with them."""
    monkeypatch.chdir(tmp_path)
    evil = r"\x1b[2J\u009b31m\u202e[/bold]</script>\nboost-compile: error: ../../"
    text = re.sub(r"%(w|loss)\b", lambda name: f'%"{evil}{name[1]}"', TRAINED)
    (tmp_path / "in.ir").write_text(text)
    compiled = shell(capsys, compile_command, "in.ir", "--accumulate", "2", "--pass-statistics", "-o", "out.boost")
    anatomy = shell(capsys, inspect_command, "out.boost", "--format", "anatomy")
    difference = shell(capsys, inspect_command, "in.ir", "--diff", "out.boost")
    refused = shell(capsys, compile_command, "in.ir", "--passes", "dim-reduce{basis=none,n_components=1}")
    for done, code in ((compiled, 0), (anatomy, 2), (difference, 1), (refused, 2)):
        assert not set("\x1b\x07\x9b\u202e") & set(done.err + done.out), done
        assert "internal" not in done.err
        assert done.code == code, done
    assert {path.name for path in tmp_path.iterdir()} == {"in.ir", "out.boost"}


def test_files_of_a_program_directory_are_its_own(tmp_path: Path) -> None:
    """A link out of it could bring somebody's file into what is compiled; a pipe would be read for ever."""
    from boost_compile.ir.formats.storage.load import load

    def refused(says: str) -> None:
        with pytest.raises(Error, match=says):
            load(home)

    home = tmp_path / "p.boost"
    home.mkdir()
    files = program_files()[0]
    for name, content in files.items():
        (home / name).write_bytes(content)
    load(home)
    for name, content in files.items():
        (tmp_path / name).write_bytes(content)
        (home / name).unlink()
        (home / name).symlink_to(tmp_path / name)
        refused("leads out")
        (home / name).unlink()
        os.mkfifo(home / name)
        refused("not a regular file")
        (home / name).unlink()
        (home / f"{name}.real").write_bytes(content)
        (home / name).symlink_to(f"{name}.real")
        load(home)


def test_nothing_of_a_file_is_run() -> None:
    """No pickle, eval or exec, no yaml, no numpy file that may hold objects. What imports code is listed here."""
    imports = {
        "passes/__init__.py", "passes/framework/registry.py",  # our own modules, and plug-ins
        "boost_compile/__init__.py",
        "runtime/differentiation/differentiate.py",  # what ir/python wrote, and ir/formats/python/check.py has read
        "runtime/engine/device.py",  # looks where MindSpore lies, and runs nothing of it
        "runtime/training/log_files.py",  # looks whether tensorboardX is installed
    }  # fmt: skip
    banned = {"eval", "exec", "__import__", "compile", "os.system", "os.popen"}
    modules_banned = {"pickle", "marshal", "shelve", "dill", "yaml", "code"}
    folders = ("boost_compile", "ir", "passes", "runtime", "tools")
    for path in sorted(path for folder in folders for path in (ROOT / folder).rglob("*.py")):
        name = path.relative_to(ROOT).as_posix()
        text = path.read_text(encoding="utf-8")
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, (ast.Import, ast.ImportFrom)):
                modules = [a.name for a in node.names] if isinstance(node, ast.Import) else [node.module or ""]
                assert not {m.split(".")[0] for m in modules} & modules_banned, f"{name}:{node.lineno}"
                assert "runpy" not in modules or name == "tools/training/evaluation.py", (
                    name
                )  # --eval, the user's own function
                assert "importlib.util" not in modules or name in imports, f"{name}:{node.lineno}"
            if isinstance(node, ast.Call):
                called, keywords = ast.unparse(node.func), {k.arg: ast.unparse(k.value) for k in node.keywords}
                assert called not in banned, f"{name}:{node.lineno}"
                assert called not in ("np.load", "numpy.load") or keywords.get("allow_pickle") == "False", name
                assert keywords.get("shell") != "True" or name == "tools/reduction/checks.py", f"{name}:{node.lineno}"
                assert "load_checkpoint" not in called, f"{name}:{node.lineno}"


def test_no_checkpoint_is_read_by_a_library_that_believes_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """MindSpore's loader reads past the end of a tensor that is shorter than it says."""
    from boost_compile.runtime.state.checkpoint import read_state

    monkeypatch.setitem(sys.modules, "mindspore", None)  # to import it is an error now
    (tmp_path / "c.ckpt").write_bytes((CORPUS / "checkpoint-ckpt" / "more-dimensions-than-bytes").read_bytes())
    with pytest.raises(Error, match="'w' is Float32"):
        read_state(tmp_path / "c.ckpt")
