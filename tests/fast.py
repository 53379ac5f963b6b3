"""Which tests are fast: those that do without MindSpore (``pytest --unit``, `make unit`).

What needs MindSpore tells itself: a file that imports it, directly or through what it imports, has no fast tests, and a
test that uses one of the fixtures `NEED_MINDSPORE` is none. Others say so with `@pytest.mark.mindspore`. A guard holds
this: in a fast run tests/no_mindspore/ stands in MindSpore's place, here and in processes that a test starts, so a test
that says nothing and needs it fails.
"""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Iterable
from pathlib import Path

import pytest

from tests.text_ir import failure

NEED_MINDSPORE = {"exported", "split_export"}
MARKS = ("mindspore", "slow")
"""Marks of tests that are not fast."""


def stand_in_for_mindspore() -> None:
    folder = str(Path(__file__).parent / "no_mindspore")
    sys.path.insert(0, folder)
    os.environ["PYTHONPATH"] = os.pathsep.join([folder, *filter(None, [os.environ.get("PYTHONPATH")])])


def is_fast(item: pytest.Item) -> bool:
    needs = NEED_MINDSPORE & set(getattr(item, "fixturenames", ()))
    return not needs and not any(item.get_closest_marker(name) for name in MARKS)


class FastModule(pytest.Module):
    """A file of tests; without any if it cannot be imported without MindSpore."""

    def collect(self) -> Iterable[pytest.Item | pytest.Collector]:
        try:
            return list(super().collect())
        except self.CollectError as error:
            if getattr(error.__cause__, "name", None) == "mindspore":
                return []
            raise


class TextIR(pytest.File):
    """An ``.ir`` file: one test, its RUN lines in this process."""

    def collect(self) -> Iterable[pytest.Item]:
        yield RunLines.from_parent(self, name="run")


class RunLines(pytest.Item):
    def runtest(self) -> None:
        with tempfile.TemporaryDirectory() as scratch:
            found = failure(self.path, Path(scratch))
        assert not found, found

    def repr_failure(self, excinfo: pytest.ExceptionInfo[BaseException], style: object = None) -> str:
        return str(excinfo.value) if excinfo.errisinstance(AssertionError) else str(super().repr_failure(excinfo))

    def reportinfo(self) -> tuple[Path, int, str]:
        return self.path, 0, self.path.name
