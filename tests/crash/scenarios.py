"""What is written again and again: an old artefact stands there, a process replaces it by a new one and is killed."""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
from boost_compile.ir.core.data import from_numpy
from boost_compile.ir.core.program import Program
from boost_compile.ir.files import atomic
from boost_compile.ir.formats.mindir.writer import write_mindir
from boost_compile.ir.formats.storage.load import check_state, load
from boost_compile.ir.formats.storage.save import save
from boost_compile.runtime.state.checkpoint import read_state_and_notes, write_state
from boost_compile.runtime.training.retention import previous_states, save_and_retain

import boost_compile as bc


class Scenario(ABC):
    """``write(folder, which)`` writes artefact 0 or 1; ``read(folder)`` says which of them stands there."""

    name: str
    suffix = ""

    @abstractmethod
    def write(self, folder: Path, which: int) -> None: ...

    @abstractmethod
    def read(self, folder: Path) -> int: ...

    def expected(self, which: int) -> set[str]:
        """The names in the folder when the artefact was written and nothing is left over."""
        return {"x" + self.suffix}


class Directory(Scenario):
    name, suffix = "program directory", ".boost"

    def __init__(self, programs: tuple[Program, Program]):
        self.programs = programs

    def write(self, folder: Path, which: int) -> None:
        save(self.programs[which], folder / "x.boost")

    def read(self, folder: Path) -> int:
        program = load(folder / "x.boost")
        check_state(program)
        return which_of(program, self.programs)


class DirectoryInTwoRenames(Directory):
    """As on a system that cannot exchange names: for an instant none stands there, and that is said."""

    name = "program directory, two renames"

    def write(self, folder: Path, which: int) -> None:
        atomic.exchange = lambda a, b: False  # type: ignore[assignment]
        super().write(folder, which)

    def read(self, folder: Path) -> int:
        try:
            return super().read(folder)
        except bc.Error as error:
            left = atomic.unfinished(folder / "x.boost")
            if left is None or str(left) not in str(error):
                raise
            program = load(left)
            check_state(program)
            return which_of(program, self.programs)


class WithDataFile(Directory):
    """A self-contained MindIR whose parameters are in a second file."""

    name, suffix = "MindIR with a data file", ".mindir"

    def write(self, folder: Path, which: int) -> None:
        program = self.programs[which]
        graph = next(iter(program.graphs.values()))
        write_mindir(folder / "x.mindir", graph, program.state, program.metadata, external=1)

    def read(self, folder: Path) -> int:
        found = load(folder / "x.mindir").state
        used = [{n for n in found if found[n].data == p.state[n].data} for p in self.programs]
        assert set(found) in used, "weights of both"
        return used.index(set(found))

    def expected(self, which: int) -> set[str]:
        return {"x.mindir", "x_variables"}


class Checkpoint(Scenario):
    """A state file of 4 MB, written by itself or as the newest of two."""

    def __init__(self, suffix: str, keep: int):
        self.name = f"{suffix} checkpoint" + (f", the last {keep} kept" if keep > 1 else "")
        self.suffix, self.keep = suffix, keep
        self.values = [{f"w{i}": np.full(125_000, i + 10 * which, np.float32) for i in range(8)} for which in (0, 1)]

    def write(self, folder: Path, which: int) -> None:
        def save(path: Path, sync: str) -> None:
            write_state(path, {}, self.values[which], {"boost_compile.data_position": str(which)})

        session: Any = SimpleNamespace(
            save=save, ranks=SimpleNamespace(rank=0), data_position=SimpleNamespace(cycle=which)
        )
        save_and_retain(session, folder / f"x{self.suffix}", self.keep)

    def read(self, folder: Path) -> int:
        path = folder / f"x{self.suffix}"
        for place in (path, *previous_states(path)):
            found, notes = read_state_and_notes(place)
            which = int(notes["boost_compile.data_position"])
            assert all(np.array_equal(found[name], value) for name, value in self.values[which].items())
        return int(read_state_and_notes(path)[1]["boost_compile.data_position"])

    def expected(self, which: int) -> set[str]:
        names = {f"x{self.suffix}"}
        return names | {f"x.cycle-{n}{self.suffix}" for n in (0, 1)} if self.keep > 1 else names


def which_of(program: Program, programs: tuple[Program, Program]) -> int:
    """The one of two that a program is, in every graph and bit."""
    from tests.equality import programs_equal

    equal = [programs_equal(program, each) is None for each in programs]
    assert equal.count(True) == 1, "neither the old program nor the new one"
    return equal.index(True)


def names(folder: Path) -> set[str]:
    return set(os.listdir(folder))


def two_programs(source: Path) -> tuple[Program, Program]:
    """Programs of the same graphs' names and other weights."""
    program = bc.load(source)
    other = bc.load(source)
    for name, variable in other.state.items():
        other.state[name].data = from_numpy(np.add(variable.initial, 1, dtype=variable.initial.dtype))[1]
    return bc.compile(program, "gradient-accumulation{steps=2}"), bc.compile(other, "gradient-accumulation{steps=3}")
