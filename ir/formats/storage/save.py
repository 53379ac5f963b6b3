"""Writing a program in the form that the suffix of its name says, at once or not at all."""

from __future__ import annotations

import os
from pathlib import Path

from ...core.errors import Error
from ...core.program import Program
from ...files.atomic import explained, replacing_file
from ...files.heads import is_like_its_name
from ...rewrite.ranks.adasum import needs_job
from .compiled import note_compiled
from .suffixes import form_to_write


def save(program: Program, path: str | os.PathLike[str], *, force: bool = False) -> None:
    """``NAME.boost`` (or a name without a suffix) writes a program directory, ``NAME.mindir`` one self-contained
    MindIR, ``NAME.ir`` or ``NAME.txt`` the text form.

    What stood there before is replaced at once when the new one is complete. Raises Error when the suffix is another,
    the place cannot be written or lies inside a program, or something stands there that is no program (with ``force``
    a file is replaced whatever it holds).
    """
    path = Path(path)
    if not path.name:
        raise Error(f"'{path}' names no file: give a name such as program.boost")
    form = form_to_write(path)
    with explained(path):
        refuse_inside_program(path)
        if path.is_file() and not force and not is_like_its_name(path):
            raise Error(f"{path}: what stands there is not what its name says; remove it or choose another name")
        if form == "mindir":
            _save_mindir(program, path)
        elif form == "text":
            from ...text import print_program

            with replacing_file(path) as file:
                file.write(print_program(program).encode("utf-8"))
        else:
            from .directory import write_directory

            write_directory(program, path)


def refuse_inside_program(path: Path) -> None:
    """Error for a place inside a program directory, which holds nothing but its own files."""
    from .directory import PROGRAM

    inside = next((folder for folder in path.absolute().parents if (folder / PROGRAM).is_file()), None)
    if inside is not None:
        raise Error(f"{path}: this is inside the program {inside}; choose a place outside of it")


def _save_mindir(program: Program, path: Path) -> None:
    from ..mindir.writer import write_mindir

    cycle = program.schedule.cycle
    # One that was read from a self-contained file runs the same graph for each micro-batch, and is one already.
    is_single = len(program.graphs) == 1 and len(cycle) == 1
    if is_single and not any(map(needs_job, program.graphs.values())):
        graph, state = program.graphs[cycle[0].graph], program.state
        noted = note_compiled(program, state, self_contained=False)
    else:
        from .self_contained import lower_to_single_graph

        graph, state = lower_to_single_graph(program)
        noted = note_compiled(program, state, self_contained=True)
    write_mindir(path, graph, state, noted)
