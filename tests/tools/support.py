"""Runs a command in this process and says what a shell would see."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click
import numpy as np
import pytest
from boost_compile.tools import cli

from tests.advice import wrong_advice
from tests.waiting import PATIENCE

PYTHON_ARGUMENTS = re.compile(r"\b(strict|allow_nonfinite|resume|batch_size|allow_no_match|dimensions|evaluate)=")


@dataclass(frozen=True)
class Shell:
    code: int
    out: str
    err: str

    @property
    def document(self) -> Any:
        """stdout as one JSON document (which it must be as a whole)."""
        return json.loads(self.out)


def shell(capsys: pytest.CaptureFixture[str], command: click.Command, *arguments: object) -> Shell:
    capsys.readouterr()
    with pytest.raises(SystemExit) as caught:
        cli.run(command, [str(a) for a in arguments])
    out, err = capsys.readouterr()
    code = caught.value.code
    assert isinstance(code, int)
    return Shell(code, out, err)


def write_data(path: Path, batches: Iterable[tuple[np.ndarray, ...]]) -> Path:
    """The micro-batches one after the other, as a file for ``--data``; returns its path."""
    np.savez(path, *(np.concatenate(arrays) for arrays in zip(*batches, strict=True)))
    return path


def process(module: str, *arguments: object, stdin: str = "") -> Shell:
    """The same in a process of its own."""
    command = [sys.executable, "-m", f"boost_compile.tools.{module}", *map(str, arguments)]
    done = subprocess.run(command, input=stdin, capture_output=True, text=True, timeout=PATIENCE)
    return Shell(done.returncode, done.stdout, done.stderr)


def assert_one_error(shell: Shell, command: str, *fragments: str) -> None:
    """Exit 2, nothing on stdout, and one message on stderr that holds the fragments; no traceback, and no advice that
    the command's user cannot follow."""
    assert shell.code == 2, shell
    assert shell.out == ""
    assert shell.err.startswith(f"{command}: error: ")
    assert shell.err.count("error:") == 1
    assert "Traceback" not in shell.err
    # The options of passes are written like Python's arguments, and right in a command.
    faults = [] if "No such option" in shell.err else wrong_advice(shell.err, [command])
    assert [fault for fault in faults if "is Python" not in fault] == []
    assert not PYTHON_ARGUMENTS.search(shell.err), shell.err
    for fragment in fragments:
        assert fragment in shell.err, shell.err
