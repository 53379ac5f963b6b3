"""Whether a program shows the failure that is looked for: each check learns from the original what that is."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import sys
import tempfile
import traceback
from abc import ABC, abstractmethod
from collections.abc import Sequence
from pathlib import Path

from ...ir.core.errors import Error, OptionError
from ...ir.core.program import Program
from ...ir.text import print_program
from ...passes.framework.base import Pass
from ...passes.framework.manager import compile_program

PLACE = "{}"
"""Where the file stands in a command."""
TIMEOUT = "runs longer than the time limit"
_PARTICULAR = re.compile(r"%[^\s,():]+|'[^']*'|\"[^\"]*\"|<[^>]*>|\[[^\]]*\]|\d+")
"""The parts of an error's message that differ between programs: names, shapes, numbers."""


class Check(ABC):
    """``passes``: the pipeline that the failure needs, to be reduced too; empty where there is none."""

    passes: list[Pass]

    @abstractmethod
    def failures(self, program: Program, passes: list[Pass]) -> Sequence[str]:
        """The failures, the gravest first: text that is the same for the same failure."""

    @abstractmethod
    def rerun(self, path: str, passes: list[Pass]) -> str:
        """The command that shows the failure of a file."""

    def learn(self, program: Program) -> str:
        """The failure of the original. OptionError if there is none."""
        found = self.failures(program, self.passes)
        if not found:
            raise OptionError(f"nothing to reduce: {self.rerun('the file', self.passes)} shows no failure")
        return found[0]

    def shows(self, failure: str, program: Program, passes: list[Pass]) -> bool:
        return failure in self.failures(program, passes)


class Crash(Check):
    """A pipeline that ends with an error, raised at the same place and saying the same but for names and numbers.

    ``match``: text that the message must hold.
    """

    def __init__(self, passes: list[Pass], match: str = ""):
        self.passes = passes
        self._match = match

    def failures(self, program: Program, passes: list[Pass]) -> Sequence[str]:
        try:
            compile_program(program, passes, reproducer_directory=None)
        except Exception as error:
            if self._match not in str(error):
                return ()
            cause = error.__cause__ or error
            last = traceback.extract_tb(cause.__traceback__)[-1]
            said = " ".join(cause.at_command().splitlines()[:2]) if isinstance(cause, Error) else ""
            where = f"{type(cause).__name__} in {Path(last.filename).name}, {last.name}"
            return (f"{where}: {_PARTICULAR.sub('_', said)[:120]}" if said else where,)
        return ()

    def rerun(self, path: str, passes: list[Pass]) -> str:
        from ...passes.framework.pipeline import print_pipeline

        return f"boost-compile {path} --passes {shlex.quote(print_pipeline(passes))}"


class Command(Check):
    """A command that ends with the exit status that it has for the original, and prints ``match``. ``timeout``: after
    so many seconds it is stopped, which is a failure of its own."""

    def __init__(self, command: str, match: str = "", timeout: float | None = None):
        if PLACE not in command:
            raise OptionError(f"--check '{command}' does not say where the file goes: write {PLACE} there")
        self.passes = []
        self._command, self._match, self._timeout = command, match, timeout

    def failures(self, program: Program, passes: list[Pass]) -> Sequence[str]:
        with tempfile.TemporaryDirectory(prefix="boost-reduce-") as folder:
            path = Path(folder) / "candidate.ir"
            path.write_text(print_program(program), encoding="utf-8")
            try:
                done = subprocess.run(
                    self._command.replace(PLACE, shlex.quote(str(path))),
                    shell=True, capture_output=True, text=True, errors="replace", timeout=self._timeout, cwd=folder,
                )  # fmt: skip
            except subprocess.TimeoutExpired:
                return (TIMEOUT,)
        if self._match not in done.stdout + done.stderr:
            return ()
        return (f"exit status {done.returncode}",)

    def rerun(self, path: str, passes: list[Pass]) -> str:
        return self._command.replace(PLACE, path)


class Unverified(Check):
    """A pipeline whose result boost-verify finds wrong, in the same property."""

    def __init__(self, passes: list[Pass], timeout: float | None = None):
        self.passes = passes
        self._timeout = timeout

    def failures(self, program: Program, passes: list[Pass]) -> Sequence[str]:
        with tempfile.TemporaryDirectory(prefix="boost-reduce-") as folder:
            original, compiled = Path(folder) / "original.ir", Path(folder) / "compiled.boost"
            original.write_text(print_program(program), encoding="utf-8")
            try:
                compile_program(program, passes, reproducer_directory=None).save(str(compiled))
            except Error:
                return ()
            verify = [sys.executable, "-m", "boost_compile.tools.verify", str(original), str(compiled)]
            try:
                done = subprocess.run(
                    [*verify, "--no-store", "--no-bisect", "--json"],
                    capture_output=True, text=True, errors="replace", timeout=self._timeout,
                )  # fmt: skip
                document = json.loads(done.stdout) if done.returncode == 1 else {"results": []}
            except (subprocess.TimeoutExpired, json.JSONDecodeError):
                return ()
        return tuple(f"property '{r['name']}' fails" for r in document["results"] if r["status"] == "failed")

    def rerun(self, path: str, passes: list[Pass]) -> str:
        from ...passes.framework.pipeline import print_pipeline

        return f"boost-compile {path} --verify --passes {shlex.quote(print_pipeline(passes))}"
