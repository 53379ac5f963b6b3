"""Writes the outputs into docs/ten-nodes.md, the way of one tiny network through the compiler.

    python docs/make_ten_nodes.py      # `--check` writes nothing, and fails where the page is not what it would write

The page's own blocks are run in order, in an empty folder: Python in one namespace, commands each by itself. What a
block prints stands in the block of text after it. The prose is written by hand; a node that it names must stand in an
output.
"""

from __future__ import annotations

import contextlib
import io
import os
import re
import runpy
import shlex
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

os.environ.setdefault("GLOG_v", "3")  # MindSpore's errors alone, before it is imported

PAGE = Path(__file__).parent / "ten-nodes.md"
BLOCK = re.compile(r"^```(python|sh)\n(.*?)^```\n(?:\n```text\n(.*?)^```\n)?", re.DOTALL | re.MULTILINE)


def main() -> None:
    old = PAGE.read_text(encoding="utf-8")
    new = made(old)
    shown = "".join(found[3] or "" for found in BLOCK.finditer(new))
    gone = sorted({name for name in re.findall(r"`(%[\w.:]+)`", BLOCK.sub("", new)) if name not in shown})
    if gone:
        sys.exit(f"docs/ten-nodes.md names nodes that no output has: {', '.join(gone)}")
    if "--check" in sys.argv[1:]:
        if new != old:
            sys.exit("docs/ten-nodes.md is not current: python docs/make_ten_nodes.py writes it anew")
        return
    PAGE.write_text(new, encoding="utf-8")


def made(page: str) -> str:
    """The page with what its blocks print now."""
    names: dict[str, Any] = {}

    def filled(found: re.Match[str]) -> str:
        kind, code, shown = found.groups()
        printed = run_python(code, names) if kind == "python" else "".join(map(run_command, code.splitlines()))
        output = "\n".join(line.rstrip() for line in printed.strip("\n").split("\n"))
        if (shown is None) != (not output):
            sys.exit(f"docs/ten-nodes.md: a block of text must follow a block that prints, and no other:\n{code}")
        return f"```{kind}\n{code}```\n" + (f"\n```text\n{output}\n```\n" if output else "")

    here = Path.cwd()
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        try:
            return BLOCK.sub(filled, page)
        finally:
            os.chdir(here)


def run_python(code: str, names: dict[str, Any]) -> str:
    """What the block prints. It stands in a file, since MindSpore reads the source of cells."""
    script = Path(f"block{len(list(Path().glob('block*.py')))}.py").resolve()
    script.write_text(code, encoding="utf-8")
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        names.update(runpy.run_path(str(script), init_globals=names))
    return printed.getvalue()


def run_command(line: str) -> str:
    name, *arguments = shlex.split(line, comments=True)
    command = [sys.executable, "-m", "boost_compile", name.removeprefix("boost-"), *arguments]
    environment = {**os.environ, "COLUMNS": "118", "NO_COLOR": "1"}
    done = subprocess.run(command, capture_output=True, text=True, check=True, env=environment)
    return done.stdout + done.stderr


if __name__ == "__main__":
    main()
