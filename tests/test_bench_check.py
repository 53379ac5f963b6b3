"""`make bench-check`: which figures are worse than in the recorded run, what is said of them, and the exit status."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PRINTED = """\
Times:

| step | layers 1,000<br>1,016 nodes | layers 10,000<br>10,006 nodes | flat | goal |
| --- | --: | --: | --: | --: |
| load | {load} | 14.0 ± 2% | × 1.05 | 15 |
| *protobuf* | 0.4 (0.4 to 0.5) | 0.5 (0.5 to 0.5) | | |

### Memory

| step | layers 1,000 | layers 10,000 |
| --- | --: | --: |
| load | {kept} | 1.54 kB |
| whole | {whole} | 3.1 |
| verify | {little} | |

| 20 nodes | layers 1,000 |
| --- | --: |
| whole | 7.0 ± 1% |
"""
RECORD = """
import sys
from pathlib import Path
from benchmarks.figures import Record, figures, record
record("a machine", "compile_cost", Record("2026-01-02", 0.5, 0.01, figures(sys.stdin.read())), Path(sys.argv[1]))
"""
FASTER = """
from benchmarks.figures import Figure, Record, worse
before = Record("2026-01-02", 0.5, 0.010, {"time": Figure(10.0, 0.0), "memory": Figure(10.0, None)})
for yardstick, value in ((0.012, 12.0), (0.008, 10.0), (0.010, 10.4)):
    now = Record("2026-01-03", 0.5, yardstick, {"time": Figure(value, 0.0), "memory": Figure(10.0, None)})
    print([one.name for one in worse(before, now)])
"""

JOINED = """
from benchmarks.run import joined
head = "| net | a |\\n| --- | --: |"
before = f"2026-01-02. A machine. Load average: 1\\n\\nNotes.\\n\\n{head}\\n| x, 1 | 2 |\\n| y, 1 | 3 |"
printed = f"Notes.\\n\\n{head}\\n| y, 1 | 4 |\\n| z, 1 | 5 |"
for machine in ("A machine", "Another"):
    print(joined(before, f"2026-01-02. {machine}. Load average: 7", printed))
"""


def printed(
    load: str = "14.0 ± 4%", kept: str = "1.50 kB", whole: str = "254 ms (250 to 256)", little: str = "0.00 kB"
) -> str:
    return PRINTED.format(load=load, kept=kept, whole=whole, little=little)


def python(*arguments: str, given: str = "") -> subprocess.CompletedProcess[str]:
    command = [sys.executable, *arguments]
    return subprocess.run(command, cwd=ROOT, input=given, capture_output=True, text=True, check=False)


@pytest.fixture(scope="module")
def records(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("records") / "results.json"
    assert python("-c", RECORD, str(path), given=printed()).returncode == 0
    return path


def check(records: Path, folder: Path, now: str, machine: str = "a machine") -> subprocess.CompletedProcess[str]:
    (folder / "now.md").write_text(now, encoding="utf-8")
    options = ["--records", str(records), "--machine", machine, "--printed", str(folder / "now.md")]
    return python("-m", "benchmarks.check", "compile_cost", *options)


def test_the_same_figures_pass_and_so_does_what_the_spread_explains(records: Path, tmp_path: Path) -> None:
    done = check(
        records, tmp_path, printed(load="15.9 ± 5%", kept="1.57 kB", whole="265 ms (264 to 280)", little="0.01 kB")
    )
    assert done.returncode == 0, done.stderr
    assert "compile_cost: 7 figures, none worse than on 2026-01-02" in done.stdout


def test_what_got_worse_is_named_with_by_how_much_and_what_to_do(records: Path, tmp_path: Path) -> None:
    done = check(
        records, tmp_path, printed(load="16.8 ± 2%", kept="1.59 kB", whole="290 ms (285 to 291)", little="0.02 kB")
    )
    assert done.returncode == 1
    assert "compile_cost: 4 of 7 figures got worse since 2026-01-02:" in done.stderr
    assert "load, layers 1,000: 14 to 16.8, 20% more (allowed are 5% and the spread of both runs, ± 4% and ± 2%)" in (
        done.stderr
    )
    assert "Memory: load, layers 1,000 (memory): 1.5 to 1.59, 6% more (allowed are 5%)" in done.stderr
    assert "Memory: verify, layers 1,000 (memory): 0 to 0.02, none before" in done.stderr
    assert "Memory: whole, layers 1,000: 254 to 290, 14% more" in done.stderr
    assert "git log --since=2026-01-02" in done.stderr
    assert "python -m benchmarks.run compile_cost" in done.stderr


def test_another_machine_has_nothing_to_compare_with(records: Path, tmp_path: Path) -> None:
    done = check(records, tmp_path, printed(), machine="another machine")
    assert done.returncode == 2
    assert "nothing to compare with" in done.stderr
    assert "(another machine); there are runs of: a machine" in done.stderr
    assert check(tmp_path / "none.json", tmp_path, printed()).returncode == 2


def test_a_run_that_lacks_the_recorded_figures_is_no_pass(records: Path, tmp_path: Path) -> None:
    done = check(records, tmp_path, "Nothing was measured.")
    assert done.returncode == 2
    assert "none of its 7 recorded figures was measured" in done.stderr


def test_a_machine_that_is_slower_at_the_moment_makes_no_figure_worse() -> None:
    """The first is as much slower as plain Python is; the second as fast as ever, where plain Python is faster."""
    assert python("-c", FASTER).stdout.splitlines() == ["[]", "['time']", "[]"]


def test_rows_that_are_measured_alone_take_the_place_of_theirs() -> None:
    """The others stay, but for those of another day or machine."""
    table = "\n\nNotes.\n\n| net | a |\n| --- | --: |\n"
    assert python("-c", JOINED).stdout == (
        f"2026-01-02. A machine. Load average: 7{table}| x, 1 | 2 |\n| y, 1 | 4 |\n| z, 1 | 5 |\n"
        f"2026-01-02. Another. Load average: 7{table}| y, 1 | 4 |\n| z, 1 | 5 |\n"
    )


KEPT = """
import os, sys
from benchmarks.machine import KEPT, kept
count = []
def measure(name):
    count.append(name)
    return {"times": [len(count)]}
print([kept("a", measure, "x") for _ in range(2)])
os.environ[KEPT] = sys.argv[1]
print([kept(key, measure, "x") for key in ("a", "a", "b")])
"""


def test_what_a_cut_off_run_has_measured_is_kept(tmp_path: Path) -> None:
    """Only where somebody asks for it; the next run begins with it."""
    path = str(tmp_path / "kept.json")
    first, second = (python("-c", KEPT, path).stdout.splitlines() for _ in range(2))
    assert first == [str([{"times": [n]} for n in numbers]) for numbers in ((1, 2), (3, 3, 4))]
    assert second == [first[0], first[1]]


def test_every_section_has_a_benchmark() -> None:
    names = python("-c", "from benchmarks import run; print(*run.SECTIONS)").stdout.split()
    assert len(names) >= 10
    for name in names:
        module = ROOT / "benchmarks" / name.partition(".")[0]
        assert module.is_dir() or module.with_suffix(".py").exists(), name
