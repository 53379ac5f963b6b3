"""Runs the RUN lines of a text-IR test (``.ir``) in this process, as lit would with tests/lit.cfg.py.

A shell of lit starts two or three interpreters for each line. Here the commands of boost-compile and filecheck run as
the click command and the function that these interpreters would call, with pipes that are byte strings. lit parses the
lines (pipes, `&&`, redirections) and its configuration gives the substitutions, so the files mean the same to both;
tests/test_lit.py holds the two against each other.
"""

from __future__ import annotations

import importlib
import io
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace

from lit.formats import ShTest
from lit.ShCommands import Command, Pipeline, Seq
from lit.ShUtil import ShParser

HERE = Path(__file__).parent
FILES = sorted(path for path in HERE.rglob("*.ir") if path.parent.name != "material")
RUN = re.compile(r"\bRUN:\s*(.*?)\s*$", re.MULTILINE)


def failure(path: Path, scratch: Path) -> str:
    """What the first RUN line of `path` that fails printed, below that line; "" if all hold. Files go to `scratch`."""
    lines = run_lines(path, scratch)
    if not lines:
        return "no RUN line"
    for line in lines:
        code, printed = _run(ShParser(line, pipefail=True).parse(), b"")
        if code:
            return f"{line}\nexit code {code}\n{printed}"
    return ""


def run_lines(path: Path, scratch: Path) -> list[str]:
    """The RUN lines with lit's substitutions done: those of tests/lit.cfg.py first, then %s, %S and %t."""
    text = re.sub(r"\\\n.*?RUN:", "", path.read_text())
    substitutions = [
        *_configured(),
        ("%s", str(path)),
        ("%S", str(path.parent)),
        ("%t", str(scratch / path.name) + ".tmp"),
    ]
    lines = []
    for line in RUN.findall(text):
        for pattern, replacement in substitutions:
            line = re.sub(pattern, lambda _, text=replacement: text, line)
        lines.append(line)
    return lines


def _configured() -> list[tuple[str, str]]:
    config = SimpleNamespace()
    lit_config = SimpleNamespace(params={})
    source = HERE / "lit.cfg.py"
    exec(
        compile(source.read_text(), source, "exec"),
        {"__file__": str(source), "config": config, "lit_config": lit_config},
    )
    assert isinstance(config.test_format, ShTest)
    return config.substitutions


def _run(part: Seq | Pipeline, given: bytes) -> tuple[int, str]:
    """The exit code, and all that was printed, for whoever looks for what went wrong."""
    if isinstance(part, Seq):
        assert part.op == "&&", f"{part.op!r}: only '&&' joins commands here"
        code, printed = _run(part.lhs, given)
        return (code, printed) if code else _run(part.rhs, given)
    codes, printed = [], []
    for command in part.commands:
        code, given, error = _run_command(command, given)
        codes.append(code)
        printed.append(error.decode(errors="replace"))
    failed = next((code for code in codes if code), 0)
    return (not failed if part.negate else failed), "".join([*printed, given.decode(errors="replace")])


def _run_command(command: Command, given: bytes) -> tuple[int, bytes, bytes]:
    arguments = list(command.args)
    negated = arguments[0] == "not"
    code, out, error = _dispatch(arguments[negated:], given)
    for redirect, target in command.redirects:
        if redirect == (">", 2) and target == "/dev/null":
            error = b""
        elif redirect == (">&", 2) and target == "1":
            out, error = out + error, b""
        elif redirect == (">",):
            Path(target).write_bytes(out)
            out = b""
        else:
            raise ValueError(f"a redirection that this runner does not know: {redirect} {target}")
    return (not code if negated else code), out, error


def _dispatch(arguments: list[str], given: bytes) -> tuple[int, bytes, bytes]:
    if arguments[:2] != [sys.executable, "-m"]:
        done = subprocess.run(arguments, input=given, capture_output=True, check=False)
        return done.returncode, done.stdout, done.stderr
    module, rest = arguments[2], arguments[3:]
    with _streams(given) as (out, error):
        try:
            if module == "filecheck":
                importlib.import_module("filecheck.main").main(["filecheck", *rest])
            else:
                tool = importlib.import_module(module)
                importlib.import_module("boost_compile.tools.cli").run(tool.command, rest)
            code = 0
        except SystemExit as end:
            code = int(end.code or 0)
        out.flush()
        error.flush()
        return code, out.buffer.getvalue(), error.buffer.getvalue()


@contextmanager
def _streams(given: bytes) -> Iterator[tuple[io.TextIOWrapper, io.TextIOWrapper]]:
    """Standard streams of a command's own, as pipes are: bytes below text."""
    kept = sys.stdin, sys.stdout, sys.stderr
    sys.stdin, sys.stdout, sys.stderr = (io.TextIOWrapper(io.BytesIO(b), encoding="utf-8") for b in (given, b"", b""))
    try:
        yield sys.stdout, sys.stderr
    finally:
        sys.stdin, sys.stdout, sys.stderr = kept
