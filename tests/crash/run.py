"""Kills writers at random points and looks at what is left (`make crash`).

python -m tests.crash.run [--points N] [--seed S] [--training N] [--quick]
"""

from __future__ import annotations

import argparse
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.crash import killing, training
from tests.crash.killing import Limit
from tests.crash.scenarios import (
    Checkpoint,
    Directory,
    DirectoryInTwoRenames,
    Scenario,
    WithDataFile,
    names,
    two_programs,
)

PAGE = 4096
"""Bytes in which a file system in memory counts."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--points", type=int, default=80, help="kill points for each scenario")
    parser.add_argument("--training", type=int, default=20, help="trainings that are killed and resumed")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--quick", action="store_true", help="without MindSpore: no .ckpt, no training")
    parser.add_argument("--model", type=Path, help="a MindIR with parameters [exported for this]")
    options = parser.parse_args()
    dice = random.Random(options.seed)
    print(f"seed {options.seed}", flush=True)
    with tempfile.TemporaryDirectory(prefix="crash-") as name:
        folder = Path(name)
        model = options.model or training.exported(folder)
        programs = two_programs(model)
        scenarios: list[Scenario] = [Directory(programs), DirectoryInTwoRenames(programs), WithDataFile(programs)]
        scenarios += [Checkpoint(".safetensors", 1), Checkpoint(".safetensors", 2)]
        if not options.quick:
            import mindspore  # noqa: F401 - before the forks

            scenarios.append(Checkpoint(".ckpt", 2))
        for scenario in scenarios:
            kill(scenario, folder / "kill", options.points, dice)
            fill(scenario, folder / "fill", max(2, options.points // 8), dice)
        if not options.quick:
            training.kill_and_resume(model, folder / "training", options.training, dice)


def kill(scenario: Scenario, folder: Path, points: int, dice: random.Random) -> None:
    """Half of the points at an operation on files, half at a time."""
    found: Counter[str] = Counter()
    with standing(scenario, folder):
        operations = killing.count(lambda: scenario.write(folder, 1))
    with standing(scenario, folder):
        began = time.perf_counter()
        assert killing.run(lambda: scenario.write(folder, 1)) == killing.DONE
        seconds = time.perf_counter() - began
    for i in range(points):
        if i % 2:
            limit = Limit(seconds=dice.uniform(0, 1.1) * seconds)
        else:
            limit = Limit(operation=dice.randint(1, operations), after=dice.random() < 0.5)
        with standing(scenario, folder):
            code = killing.run(lambda: scenario.write(folder, 1), limit)
            found["killed" if code == -9 else "done before"] += 1
            found[("old", "new")[scenario.read(folder)]] += 1
            found["with leftovers"] += any(name.startswith(".") for name in names(folder))
            cleared(scenario, folder)
    print(f"{scenario.name}: {operations} operations; {points} points: {summary(found)}", flush=True)


def fill(scenario: Scenario, folder: Path, points: int, dice: random.Random) -> None:
    """Limits to the size of a file, and small disks where this process may mount them."""
    found: Counter[str] = Counter()
    with standing(scenario, folder):
        largest = max(p.stat().st_size for p in folder.rglob("*") if p.is_file())
        found_files = {p.stat().st_ino: p.stat().st_size for p in (folder, *folder.rglob("*"))}
        pages = sum(-(-size // PAGE) + 1 for size in found_files.values())
    for _ in range(points):
        with standing(scenario, folder):
            refused(scenario, folder, Limit(size=dice.randint(0, int(largest * 1.1))), "file size", found)
    for _ in range(points):
        with small_disk(folder, PAGE * (pages + 2 + dice.randint(0, pages))) as mounted:
            if not mounted:
                found["small disks: not allowed here"] = 1
                break
            with standing(scenario, folder / "on", remove=False):
                refused(scenario, folder / "on", Limit(), "small disk", found)
    print(f"{scenario.name}, full disk: {summary(found)}", flush=True)


def refused(scenario: Scenario, folder: Path, limit: Limit, what: str, found: Counter[str]) -> None:
    code = killing.run(lambda: scenario.write(folder, 1), limit)
    assert code in (killing.DONE, killing.FAILED), f"{scenario.name}: not an Error, but {code}"
    which = scenario.read(folder)
    found[f"{what}: {'done' if code == killing.DONE else 'refused'}"] += 1
    if code == killing.FAILED:
        assert which == 0 or scenario.expected(1) != {f"x{scenario.suffix}"}, "an error, and yet it was replaced"
        assert not [name for name in names(folder) if name.startswith(".")], names(folder)


def cleared(scenario: Scenario, folder: Path) -> None:
    """The next one that writes there removes what was left."""
    assert killing.run(lambda: scenario.write(folder, 1)) == killing.DONE
    assert scenario.read(folder) == 1
    assert names(folder) == scenario.expected(1), names(folder)


@contextmanager
def standing(scenario: Scenario, folder: Path, remove: bool = True) -> Iterator[None]:
    """A folder in which the old artefact stands."""
    if remove:
        shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True, exist_ok=True)
    assert killing.run(lambda: scenario.write(folder, 0)) == killing.DONE
    assert scenario.read(folder) == 0
    yield


@contextmanager
def small_disk(folder: Path, size: int) -> Iterator[bool]:
    """A file system in memory of so many bytes; False where this process may not mount one."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    mounted = (
        shutil.which("mount") is not None
        and not subprocess.run(
            ["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(folder)], capture_output=True, check=False
        ).returncode
    )
    try:
        yield mounted
    finally:
        if mounted:
            subprocess.run(["umount", str(folder)], check=True)


def summary(found: Counter[str]) -> str:
    return ", ".join(f"{name} {count}" for name, count in sorted(found.items()))


if __name__ == "__main__":
    sys.exit(main())
