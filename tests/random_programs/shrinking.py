"""A plan that fails made smaller: by hypothesis, which draws smaller plans, then pass by pass, then as a program."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import hypothesis
from boost_compile.ir.text import print_program
from boost_compile.passes.framework.pipeline import parse_pipeline
from boost_compile.tools.reduction.checks import Crash, Unverified
from boost_compile.tools.reduction.minimize import minimize
from boost_compile.tools.reduction.reducer import reduce
from hypothesis import HealthCheck, Phase

import boost_compile as bc

from .outcome import Outcome
from .plan import Plan
from .running import JUDGE_AND_VERIFY, Worker
from .training import PIPELINES, families


class _Fails(Exception):
    """What hypothesis looks for."""


def shrink(seed: int, fails: Callable[[Plan], bool]) -> Plan | None:
    """The smallest plan that `fails` of those that hypothesis tries, for five minutes at most, from the plan of a seed;
    None if that one does not fail."""
    smallest: list[Plan] = []

    @hypothesis.seed(seed // PIPELINES)
    @hypothesis.settings(
        max_examples=2,
        phases=[Phase.generate, Phase.shrink],
        database=None,
        deadline=None,
        report_multiple_bugs=False,
        suppress_health_check=list(HealthCheck),
    )
    @hypothesis.given(families())
    def example(family: tuple[Plan, ...]) -> None:
        plan = family[seed % PIPELINES]
        if fails(plan):
            smallest.append(plan)
            raise _Fails

    with suppress(_Fails, hypothesis.errors.Flaky):
        example()
    return fewer_passes(smallest[-1], fails) if smallest else None


def fewer_passes(plan: Plan, fails: Callable[[Plan], bool]) -> Plan:
    """As few passes as still fail, in one call."""

    def with_passes(some: list[str]) -> Plan:
        return replace(plan, pipeline=tuple(some), calls=(len(some),) if some else ())

    if not fails(with_passes(list(plan.pipeline))):
        return plan
    return with_passes(minimize(list(plan.pipeline), lambda some: fails(with_passes(list(some)))))


def shrink_case(seed: int, outcome: Outcome) -> Plan | None:
    """The smallest plan that fails as `outcome` did."""
    worker = Worker()

    def fails(plan: Plan) -> bool:
        nonlocal worker
        found = worker.judge(plan, JUDGE_AND_VERIFY)
        if not worker.alive:
            worker.close()
            worker = Worker()
        return found.failed and found.kind == outcome.kind

    try:
        return shrink(seed, fails)
    finally:
        worker.close()


def reduce_program(plan: Plan, outcome: Outcome, folder: Path) -> Path | None:
    """The smallest program, as text, that shows a failure of a pass or of boost-verify; None for another failure."""
    from tests.networks import export

    from .build import make_case

    passes = parse_pipeline(",".join(plan.pipeline))
    if not passes or outcome.stage not in ("crash", "compile", "verify"):
        return None
    # boost-verify takes seconds for each program.
    runs = outcome.stage == "verify"
    check, max_tests = (Unverified(passes, timeout=120), 50) if runs else (Crash(passes), 500)
    program = bc.load(str(export(make_case(plan), folder)))
    try:
        found = reduce(program, check, max_tests=max_tests)
    except bc.Error:
        return None  # it fails in another place than this check looks at
    path = folder / "reduced.ir"
    path.write_text(f"// {found.failure}\n{print_program(found.program)}", encoding="utf-8")
    return path
