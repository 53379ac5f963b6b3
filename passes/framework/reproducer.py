"""The file that repeats a crash: the program as text, and the passes from the failing one on."""

from __future__ import annotations

import hashlib
import tempfile
from contextlib import suppress
from pathlib import Path

from ...ir.core.data import ZeroData
from ...ir.core.program import Program

KEPT_BYTES = 1024
"""State up to this size keeps its values; larger ones are weights, which say nothing about a crash and are nobody's
business in a bug report."""


def write_reproducer(program: Program, pipeline: str, what: str, directory: Path) -> Path | None:
    """Writes ``boost-compile-crash-HASH.ir`` into ``directory`` (the temporary one if that is not writable).

    Returns its path; None if the program cannot be printed or nothing can be written: a crash on the way to report
    a crash would hide the first.
    """
    try:
        from ...ir.text import print_program

        stripped = program.copy()
        for variable in stripped.state.values():
            if variable.nbytes > KEPT_BYTES:
                variable.data = ZeroData(variable.nbytes)
        first = f"boost-compile crash reproducer; state over {KEPT_BYTES} bytes is set to zeros"
        header = "".join(f"// {line}\n" for line in (first, *what.splitlines()))
        body = print_program(stripped)
    except Exception:
        return None
    name = f"boost-compile-crash-{hashlib.sha256((pipeline + body).encode()).hexdigest()[:12]}.ir"
    text = f"{header}// rerun with: boost-compile {name} --passes '{pipeline}'\n{body}"
    for place in (directory, Path(tempfile.gettempdir())):
        with suppress(OSError):
            path = place / name
            path.write_text(text, encoding="utf-8")
            return path
    return None
