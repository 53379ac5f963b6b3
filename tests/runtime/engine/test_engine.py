"""How the engine takes a program into memory."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from boost_compile.ir.core.data import BytesData
from boost_compile.ir.core.program import Program, StateVariable
from boost_compile.ir.text import parse_program
from boost_compile.runtime.engine import engine

import boost_compile as bc
from tests.networks import CASES

MAPS = Path("/proc/self/smaps")


def resident(file: Path) -> int:
    """Bytes of a mapped file that are in memory."""
    found = re.findall(rf"{re.escape(str(file))}\n(?:(?!\w+-\w+ ).*\n)*?Rss: +(\d+) kB", MAPS.read_text())
    return 1024 * sum(map(int, found))


def eight_states() -> Program:
    """256 kB each, none of them zero."""
    states = "".join(f"state %w{k}: float32[65536] role=weight\n" for k in range(8))
    program = parse_program(f"{states}graph @step(%x: float32[4]) {{\n  %y = Neg(%x)\n  return %y\n}}\n")
    for k, variable in enumerate(program.state.values()):
        variable.data = BytesData(np.full(65536, k + 1, np.float32).tobytes())
    return program


@pytest.mark.skipif(not MAPS.exists(), reason="Linux says what is in memory")
def test_the_state_is_never_in_memory_twice(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The pages of a file are given back with each Parameter that was made of them, not in the end."""
    eight_states().save(str(tmp_path / "states.boost"))
    program = bc.load(tmp_path / "states.boost")
    file, make = tmp_path / "states.boost" / "state.safetensors", engine.new_parameter
    seen = []

    def made(variable: StateVariable) -> object:
        parameter = make(variable)
        seen.append(resident(file))
        return parameter

    monkeypatch.setattr(engine, "new_parameter", made)
    session = bc.Session(program)
    assert len(seen) == 8
    assert 256 << 10 <= max(seen) <= 512 << 10, "one state, and what the kernel maps around it"
    assert resident(file) == 0
    assert [float(value[0]) for value in session.state().values()] == [k + 1 for k in range(8)]


def test_a_run_that_failed_ends_its_graph_and_the_error_says_what_to_do(exported: Callable[[str], Path]) -> None:
    """MindSpore's own message says only that an earlier step failed."""
    program = bc.load(exported("mlp"))
    session = bc.Session(program)
    x, labels = CASES["mlp"].batches(1)[0]
    with pytest.raises(bc.Error, match="MindSpore could not run it on CPU"):
        session.step(x, labels + 1000)
    with pytest.raises(bc.Error, match=r"'step' runs no more: .* Make a new bc\.Session of the program"):
        session.step(x, labels)
    assert np.isfinite(bc.Session(program).step(x, labels).loss)
