"""What a disk, a copy or a kill does to programs: named, and never trained on."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from boost_compile.ir.core.errors import FormatError
from boost_compile.ir.files import atomic
from boost_compile.ir.files.atomic import clear_leftovers, replacing_file, scratch_directory, unfinished
from boost_compile.ir.formats.storage.load import check_state, load
from boost_compile.ir.formats.storage.save import save

from tests.exact_resume import error_of
from tests.ir.formats.storage.two_graphs import two_graphs


@pytest.mark.parametrize("file", ["program.json", "apply.mindir", "accumulate.mindir", "state.safetensors"])
def test_every_flipped_bit_is_found(file: str, tmp_path: Path):
    home = tmp_path / "p.boost"
    save(two_graphs(), home)
    whole = (home / file).read_bytes()
    original = {n: bytes(v.data.view()) for n, v in load(home).state.items()}
    accepted = 0
    for at in range(0, len(whole), max(1, len(whole) // 300)):
        damaged = bytearray(whole)
        damaged[at] ^= 1 << at % 8
        (home / file).write_bytes(damaged)
        error = error_of(lambda: check_state(load(home)))
        if error is not None:
            assert str(home) in str(error)
        else:  # in what no reader looks at: names of tensors' notes, the padding of a header
            accepted += 1
            assert {n: bytes(v.data.view()) for n, v in load(home).state.items()} == original
    # One flip can make the seal itself a field of another name.
    assert accepted <= (file == "program.json") or file == "state.safetensors"


def test_damaged_state_is_not_compiled_on(tmp_path: Path):
    save(two_graphs(), tmp_path / "p.boost")
    path = tmp_path / "p.boost" / "state.safetensors"
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)
    program = load(tmp_path / "p.boost")
    with pytest.raises(FormatError, match=r"state\.safetensors: the bytes of .+ are not those that were written"):
        save(program, tmp_path / "q.boost")
    assert os.listdir(tmp_path) == ["p.boost"]


def test_a_program_that_was_moved_aside_is_named_and_put_back(tmp_path: Path):
    path = tmp_path / "p.boost"
    save(two_graphs(), path)
    aside = atomic.scratch_name(path, atomic.OLD)
    path.rename(aside)
    assert unfinished(path) == aside
    with pytest.raises(FormatError, match=f"is whole, as '{aside}'"):
        load(path)
    clear_leftovers(path)
    assert os.listdir(tmp_path) == ["p.boost"]
    assert load(path).name == two_graphs().name


@pytest.mark.skipif(sys.platform == "win32", reason="no locks")
def test_only_what_nobody_holds_is_cleared(tmp_path: Path):
    path = tmp_path / "file"
    script = f"""
import os, pathlib, signal
from boost_compile.ir.files.atomic import replacing_file, scratch_directory
with scratch_directory(pathlib.Path({str(path)!r})) as d, replacing_file(pathlib.Path({str(path)!r})) as f:
    f.write(b"half")
    (d / "x").write_bytes(b"half")
    os.kill(os.getpid(), signal.SIGKILL)
"""
    subprocess.run([sys.executable, "-c", script], check=False)
    assert len(os.listdir(tmp_path)) == 2
    with scratch_directory(path) as held:
        assert os.listdir(tmp_path) == [held.name]
        with replacing_file(path) as file:
            file.write(b"whole")
        assert held.is_dir()
    assert os.listdir(tmp_path) == ["file"]
