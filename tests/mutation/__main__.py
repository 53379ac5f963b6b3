"""python -m tests.mutation MODULE… [-n N]: breaks modules and prints which mutants the fast tests do not notice."""

from __future__ import annotations

import sys
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import click

from tests.mutation.equivalent import Judged, judged
from tests.mutation.mutants import Mutant, sample
from tests.mutation.recording import ROOT, TESTS, Recording, recording
from tests.mutation.running import KILLED, Verdict, prepare, run

SEED = 20


@click.command()
@click.argument("modules", nargs=-1, required=True, type=click.Path(exists=True, path_type=Path))
@click.option("-n", "count", default=40, show_default=True, help="How many mutants of each module.")
@click.option("--seed", default=SEED, show_default=True, help="Which ones.")
@click.option("--jobs", default=2, show_default=True, help="How many at once.")
@click.option("--tests", multiple=True, default=TESTS, help="Only those of these folders.  [all fast ones]")
@click.option("--record", is_flag=True, help="Record anew which test runs which lines.")
@click.option("--verbose", is_flag=True, help="Also say which test noticed each of the others.")
def main(
    modules: tuple[Path, ...], count: int, seed: int, jobs: int, tests: tuple[str, ...], record: bool, verbose: bool
) -> None:
    known, equivalents = recording(record, tests), judged()
    prepare()
    scores = {}
    for path in files(modules):
        mutants, sites = sample(path, count, seed)
        same = [mutant for mutant in mutants if Judged.of(mutant) in equivalents]
        found = verdicts([mutant for mutant in mutants if mutant not in same], known, jobs)
        for verdict in found:
            if verdict.outcome != KILLED or verbose:
                print(f"{verdict.outcome}: {verdict.mutant}\n    {verdict.by}")
        killed = sum(verdict.outcome == KILLED for verdict in found)
        scores[path] = (killed, len(found))
        drawn = f"{len(same)} are equivalent; drawn from {sites}"
        print(f"{path}: {killed} of {len(found)} mutants die, {drawn}", flush=True)
    killed, total = (sum(column) for column in zip(*scores.values(), strict=True))
    print(f"in all: {killed} of {total} mutants die ({100 * killed / max(1, total):.0f} %)")
    sys.exit(killed != total)


def files(given: tuple[Path, ...]) -> list[Path]:
    """Modules as paths from the root; of a folder all that hold code."""
    found = [file for path in given for file in (sorted(path.rglob("*.py")) if path.is_dir() else [path])]
    return [file.resolve().relative_to(ROOT) for file in found if file.name != "__init__.py"]


def verdicts(mutants: list[Mutant], known: Recording, jobs: int) -> list[Verdict]:
    """Those of `mutants`, in order. Tests that noticed others of the module are asked first."""
    killers: Counter[str] = Counter()

    def judge(mutant: Mutant) -> Verdict:
        tests = known.tests(mutant.path, mutant.lines)
        verdict = run(mutant, sorted(tests, key=lambda test: -killers[test]), module_of(mutant.path))
        if verdict.outcome == KILLED:
            killers[verdict.by] += 1
        return verdict

    with ThreadPoolExecutor(jobs) as pool:
        return list(pool.map(judge, mutants))


def module_of(path: Path) -> str:
    parts = path.with_suffix("").parts
    return ".".join(["boost_compile", *(parts[:-1] if parts[-1] == "__init__" else parts)])


main()
