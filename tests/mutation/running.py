"""Runs the fast tests against a mutant, in a fork of a process that has imported all but boost_compile."""

from __future__ import annotations

import importlib
import importlib.abc
import importlib.util
import os
import resource
import signal
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any

import pytest

from tests.mutation.mutants import Mutant
from tests.mutation.recording import ROOT

PREPARED = (
    *("numpy", "networkx", "hypothesis.strategies", "lit.ShUtil", "lit.formats", "filecheck.main", "click", "jinja2"),
    *("jsonschema", "rich.console", "rich.table", "google.protobuf.descriptor_pb2", "onnx", "safetensors", "graphviz"),
)
"""What tests import besides: imported once, before the forks."""
BUDGET = 8.0
"""Seconds of tests for each mutant; what survives so long survives. An endless loop ends after five times that."""
MEMORY = 4 << 30
FEW = 2
"""Files of tests that are asked first. Most mutants die there, and to collect a hundred files takes seconds."""
SURVIVED, KILLED, UNTESTED = "survived", "killed", "untested"


@dataclass(frozen=True)
class Verdict:
    mutant: Mutant
    outcome: str
    by: str
    """The test that failed, or why there was none."""


def prepare() -> None:
    for name in PREPARED:
        importlib.import_module(name)


def run(mutant: Mutant, tests: Sequence[str], modules: str) -> Verdict:
    """Whether a fork whose `modules` name is the mutant fails one of `tests` (node ids, in this order)."""
    if not tests:
        return Verdict(mutant, UNTESTED, "no fast test runs this line")
    with tempfile.TemporaryDirectory() as folder:
        note = Path(folder) / "note"
        child = os.fork()
        if not child:
            _child(mutant, tests, modules, note)
        _, status = os.waitpid(child, 0)
        said = note.read_text() if note.exists() else ""
    if os.WIFSIGNALED(status):
        return Verdict(mutant, KILLED, f"signal {os.WTERMSIG(status)} in {said or 'the import'}")
    code = os.WEXITSTATUS(status)
    if code == pytest.ExitCode.NO_TESTS_COLLECTED:
        return Verdict(mutant, UNTESTED, "the tests are gone: record anew")
    return Verdict(mutant, KILLED if code else SURVIVED, said)


def _child(mutant: Mutant, tests: Sequence[str], modules: str, note: Path) -> None:
    try:
        resource.setrlimit(resource.RLIMIT_CPU, (int(5 * BUDGET), int(5 * BUDGET) + 5))
        resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
        signal.signal(signal.SIGXCPU, signal.SIG_DFL)
        silent = os.open(os.devnull, os.O_RDWR)
        for stream in (0, 1, 2):
            os.dup2(silent, stream)
        os.chdir(note.parent)  # where a pass that crashes leaves a file
        sys.meta_path.insert(0, _Mutated(modules, compile(mutant.tree, str(mutant.path), "exec")))
        options = [
            "--unit",
            "-x",
            "-q",
            "--tb=no",
            "-p",
            "no:cacheprovider",
            f"--rootdir={ROOT}",
            f"-c{ROOT}/pyproject.toml",
        ]
        chosen, code = _Chosen(tests, note), 0
        files = list(dict.fromkeys(test.split("::")[0] for test in tests))
        for some in filter(None, (files[:FEW], files[FEW:])):
            code = int(pytest.main([*options, *(str(ROOT / file) for file in some)], plugins=[chosen]))
            if code:
                break
        os._exit(code)
    except BaseException:
        os._exit(1)


class _Mutated(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Imports the module `name` from `code`."""

    def __init__(self, name: str, code: CodeType):
        self.name, self.code = name, code

    def find_spec(self, name: str, path: Any, target: ModuleType | None = None) -> ModuleSpec | None:
        if name != self.name:
            return None
        sys.meta_path.remove(self)
        found = importlib.util.find_spec(name)
        assert found is not None
        assert found.origin is not None
        return importlib.util.spec_from_file_location(
            name, found.origin, loader=self, submodule_search_locations=found.submodule_search_locations
        )

    def exec_module(self, module: ModuleType) -> None:
        exec(self.code, module.__dict__)


class _Chosen:
    """Of what is collected runs `tests`, in their order; notes the one that runs and stops after `BUDGET`."""

    def __init__(self, tests: Sequence[str], note: Path):
        self.places = {test: place for place, test in enumerate(tests)}
        self.note, self.end = note, time.process_time() + BUDGET

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        items[:] = sorted((i for i in items if i.nodeid in self.places), key=lambda i: self.places[i.nodeid])

    def pytest_runtest_setup(self, item: pytest.Item) -> None:
        self.note.write_text(item.nodeid)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if time.process_time() > self.end and report.passed:
            os._exit(0)
