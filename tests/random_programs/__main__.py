"""python -m tests.random_programs: random programs judged, counted, and reduced where they fail."""

from __future__ import annotations

import argparse
import json
import sys
from collections import Counter
from dataclasses import asdict
from pathlib import Path

from .outcome import Outcome
from .pipelines import name_of
from .plan import Plan
from .running import draw, judge_alone, run


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.random_programs", description=__doc__)
    parser.add_argument("--cases", type=int, default=500, help="how many")
    parser.add_argument("--first", type=int, default=0, help="the seed of the first; the others count on from there")
    parser.add_argument("--seed", type=int, help="this case alone, with boost-verify")
    parser.add_argument("--plan", type=Path, help="a plan in a file of JSON, with boost-verify")
    parser.add_argument(
        "--verify-every", type=int, default=10, help="boost-verify for every so-many-th case (default 10)"
    )
    parser.add_argument("--log", type=Path, help="a line of JSON for each case")
    parser.add_argument("--reduce", type=Path, metavar="FOLDER", help="make what fails smaller, and write it there")
    parser.add_argument("--show", action="store_true", help="print the plan of --seed, run nothing")
    arguments = parser.parse_args()
    if arguments.show:
        print(draw(arguments.seed or 0).to_json())
        return 0
    if arguments.plan is not None:
        plan = Plan.from_json(arguments.plan.read_text(encoding="utf-8"))
        outcome = judge_alone(plan)
        _tell(0, plan, outcome)
        return 1 if outcome.failed else 0
    seeds = range(arguments.first, arguments.first + arguments.cases)
    verify_every = arguments.verify_every
    if arguments.seed is not None:
        seeds, verify_every = range(arguments.seed, arguments.seed + 1), 1
    return _run(seeds, verify_every, arguments.log, arguments.reduce)


def _run(seeds: range, verify_every: int, log: Path | None, reduced: Path | None) -> int:
    counts: Counter[str] = Counter()
    judges: Counter[str] = Counter()
    failed: list[int] = []
    refusals: Counter[str] = Counter()
    for seed, plan, outcome in run(seeds, verify_every):
        counts[outcome.status] += 1
        judges.update(outcome.judges)
        refusals.update(name_of(piece) for piece in outcome.refusals)
        if outcome.bit_equal is not None:
            judges["equal in every bit"] += outcome.bit_equal
        _tell(seed, plan, outcome)
        if log is not None:
            with open(log, "a", encoding="utf-8") as file:
                file.write(json.dumps({"seed": seed, "plan": plan.to_json(), **asdict(outcome)}) + "\n")
        if outcome.failed:
            failed.append(seed)
            if reduced is not None:
                _reduce(seed, plan, outcome, reduced)
    print(", ".join(f"{n} {status}" for status, n in counts.most_common()))
    print("compared by: " + ", ".join(f"{judge} {n}" for judge, n in judges.most_common()))
    print("passes that refused: " + ", ".join(f"{name} {n}" for name, n in refusals.most_common()))
    for seed in failed:
        print(f"again: python -m tests.random_programs --seed {seed}")
    return 1 if failed else 0


def _reduce(seed: int, plan: Plan, outcome: Outcome, folder: Path) -> None:
    from .shrinking import reduce_program, shrink_case

    smaller = shrink_case(seed, outcome) or plan
    case = folder / str(seed)
    case.mkdir(parents=True, exist_ok=True)
    (case / "plan.json").write_text(smaller.to_json() + "\n", encoding="utf-8")
    print(f"    reduced to: {smaller}\n    {case / 'plan.json'}", flush=True)
    program = reduce_program(smaller, outcome, case)
    if program is not None:
        print(f"    {program}", flush=True)


def _tell(seed: int, plan: Plan, outcome: Outcome) -> None:
    print(f"{seed}: {outcome.status} ({outcome.seconds:.0f} s): {plan}", flush=True)
    if outcome.failed:
        print(f"    {outcome.stage}: {outcome.message}\n    plan: {plan.to_json()}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
