"""Which fast test runs which lines, and how long it takes: recorded once by coverage.py, kept in .cache/mutation/."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest
from coverage import CoverageData

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / ".cache" / "mutation"
TESTS = ("tests/ir", "tests/passes", "tests/tools", "tests/test_names.py")
MEASURED = ("ir", "passes")
LONG = 2.0
"""Seconds: a test that takes longer is not asked for each of many mutants."""


@dataclass(frozen=True)
class Recording:
    """`lines[file][line]` are the tests (node ids) that run a line; a file is a path from the root."""

    lines: dict[str, dict[int, set[str]]]
    seconds: dict[str, float]

    def tests(self, path: Path, lines: range | None) -> list[str]:
        """Tests that run one of these lines of the module, the quick ones first; for what its import runs (None), all
        that run any line of it. In front of them stand those of its own file, whatever they run: some judge what an
        import did."""
        here = self.lines.get(str(path), {})
        mirror = (f"test_{path.stem}.py", f"{path.stem}.ir")
        own = {test for test in self.seconds if Path(test.split("::")[0]).name in mirror}
        found = own.union(*(here if lines is None else {line: here.get(line, ()) for line in lines}).values())
        fast = [test for test in found if self.seconds.get(test, 0) <= LONG]
        return sorted(fast, key=lambda t: (t not in own, self.seconds.get(t, 0), t))


def recording(anew: bool = False, folders: Sequence[str] = TESTS) -> Recording:
    """What is recorded of the tests in `folders` (or files). Files of tests that changed since are run again; so are
    all when a measured source did."""
    folder = FOLDER / "+".join(folders).replace("/", ".")
    folder.mkdir(parents=True, exist_ok=True)
    stamp, times = folder / "coverage", folder / "seconds.json"
    recorded = stamp.stat().st_mtime if stamp.exists() and not anew else 0.0
    sources = [path for folder in MEASURED for path in (ROOT / folder).rglob("*.py")]
    if any(path.stat().st_mtime > recorded for path in sources):
        recorded = 0.0
    tests = [path for at in folders for path in (ROOT / at, *sorted((ROOT / at).rglob("*")))]
    tests = [path for path in tests if path.suffix in (".py", ".ir")]
    changed = [str(path.relative_to(ROOT)) for path in tests if path.stat().st_mtime > recorded]
    changed = [path for path in changed if path.endswith(".ir") or Path(path).name.startswith("test_")]
    if not recorded:
        stamp.unlink(missing_ok=True)
        _record(folders, times)
    elif changed:
        _record(changed, times)
        os.utime(stamp)
    data = CoverageData(str(stamp))
    data.read()
    lines: dict[str, dict[int, set[str]]] = {}
    for file in data.measured_files():
        here: defaultdict[int, set[str]] = defaultdict(set)
        for line, contexts in data.contexts_by_lineno(file).items():
            here[line] = {context.rsplit("|", 1)[0] for context in contexts if context}
        lines[str(Path(file).relative_to(ROOT))] = dict(here)
    return Recording(lines, json.loads(times.read_text()))


def _record(tests: Sequence[str], times: Path) -> None:
    """In a process of its own, which imports nothing that a mutant would have to import anew."""
    subprocess.run([sys.executable, "-m", "tests.mutation.recording", str(times), *tests], cwd=ROOT, check=True)


class _Durations:
    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self.seconds[report.nodeid] = self.seconds.get(report.nodeid, 0.0) + report.duration


if __name__ == "__main__":
    file, given = Path(sys.argv[1]), sys.argv[2:]
    os.environ["COVERAGE_FILE"] = str(file.with_name("coverage"))
    durations = _Durations()
    options = ["--unit", "-q", "-n2", "--dist=worksteal", "--cov-context=test", "--cov-append", "--cov-report="]
    code = pytest.main([*options, *(f"--cov={folder}" for folder in MEASURED), *given], plugins=[durations])
    known = json.loads(file.read_text()) if file.exists() else {}
    file.write_text(json.dumps(known | durations.seconds))
    sys.exit(0 if code in (0, 1, 5) else code)
