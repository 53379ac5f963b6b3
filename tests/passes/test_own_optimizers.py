"""The optimizers that stand here, against their papers' formulas in numpy, on gradients that MindSpore computes."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import boost_compile as bc
from tests.boundary import slow
from tests.compare import assert_equal
from tests.networks import CASES
from tests.passes.optimizer_formulas import RULES, Array
from tests.reference import overflowing

Exported = Callable[[str], Path]


def replaced(source: bc.Program, to: str, passes: str = "") -> bc.Program:
    return bc.compile(source, f'replace-optimizer{{to="{to}"}}{passes}')


def gradients(source: bc.Program) -> Callable[[dict[str, Array], tuple[Array, ...]], dict[str, Array]]:
    """What a step of plain gradient descent moves the weights by, at any weights."""
    session = bc.Session(replaced(source, "sgd{lr=1.0}"))
    names = [n for n, v in source.state.items() if v.role == "weight"]

    def of(weights: dict[str, Array], batch: tuple[Array, ...]) -> dict[str, Array]:
        session.load(weights, strict=False)
        session.step(*batch)
        after = session.state(names)
        return {n: weights[n].astype(np.float64) - after[n] for n in names}

    return of


@pytest.mark.parametrize("name", ["mlp", *slow("lenet_bn", "gpt_sgd")])
@pytest.mark.parametrize("kind", RULES)
def test_it_updates_as_its_paper_says(exported: Exported, kind: str, name: str) -> None:
    """Each update from the weights and the gradient as they stand, so that errors do not add up. A gradient is the
    difference of two weights, which bounds what can be told: 1e-5, relative to the size of the weights."""
    to, rule = RULES[kind]
    source = bc.load(exported(name))
    names = [n for n, v in source.state.items() if v.role == "weight"]
    session, measured = bc.Session(replaced(source, to), seed=0), gradients(source)
    kept: dict[str, Array] = {}
    before = {n: source.state[n].initial for n in names}
    for t, batch in enumerate(CASES[name].batches(3), 1):
        g = measured(before, batch)
        session.step(*batch)
        after = session.state(names)
        for n in names:
            g_large = np.abs(g[n]) > 1e-4 * np.abs(g[n]).max()  # a sign, and a ratio of moments, of what is no noise
            apart = np.abs(g[n]).max() < 1e-6  # no gradient but noise: a bias in front of a BatchNorm
            w = before[n].astype(np.float64)
            wanted = rule(kept, n, w, g[n], t)
            if apart:
                continue
            if kind == "muon" and w.ndim > 1:
                g_large[...] = True
            size = np.abs(wanted).max()
            np.testing.assert_allclose(after[n][g_large], wanted[g_large], rtol=0, atol=1e-5 * max(size, 1), err_msg=n)
            if "average." + n in kept:
                x = session.state(["average." + n])["average." + n]
                np.testing.assert_allclose(x[g_large], kept["average." + n][g_large], rtol=0, atol=2e-5 * max(size, 1))
        before = after


def test_schedule_free_is_evaluated_at_its_average(exported: Exported) -> None:
    case = CASES["mlp_adam"]
    session = bc.Session(replaced(bc.load(exported("mlp_adam")), "schedule-free-adamw"))
    for batch in case.batches(3):
        session.step(*batch)
    images = case.batches(1)[0][0]
    trained = session.predict(images)
    session.weights = "average"
    assert not np.array_equal(session.predict(images), trained)


@pytest.mark.parametrize("kind", ["lion", *slow("lamb", "muon", "schedule-free")])
@pytest.mark.parametrize("split", ["apply", *slow("fused")])
def test_accumulation_and_a_skipped_update(exported: Exported, kind: str, split: str) -> None:
    """Two equal micro-batches are one step; one that overflows leaves weights, slots and counts as they were."""
    source = bc.load(exported("mlp_adam"))
    cycle = bc.Session(
        replaced(source, RULES[kind][0], f",overflow-check,gradient-accumulation{{steps=2,split={split}}}")
    )
    step = bc.Session(replaced(source, RULES[kind][0]))
    batches = CASES["mlp_adam"].batches(3)
    for batch in batches[:2]:
        step.step(*batch)
        cycle.step(*batch)
        cycle.step(*batch)
    wanted = step.state()
    assert_equal({n: cycle.state()[n] for n in wanted}, wanted)
    cycle.step(*batches[2])
    assert not cycle.step(*overflowing(batches[2], np.inf)).updated
    assert_equal({n: cycle.state()[n] for n in wanted}, wanted)


@pytest.mark.parametrize("kind", ["muon", *slow("lion", "lamb", "schedule-free")])
def test_it_verifies_with_other_passes(exported: Exported, kind: str) -> None:
    source = bc.load(exported("mlp_adam"))
    passes = ",gradient-accumulation{steps=2},clip-gradients{limit=0.05},schedule{kind=linear,total=9}"
    found = bc.verify(source, replaced(source, RULES[kind][0], passes), quick=True)
    assert found.verified, [(r.name, r.status, r.detail) for r in found.results]


def test_a_file_with_lamb_trains_on_a_cpu(exported: Exported) -> None:
    """MindSpore's own Lamb has no kernel there."""
    source = bc.load(exported("mlp_lamb"))
    session = bc.Session(bc.compile(source, "replace-optimizer{to=lamb}", target="cpu"))
    before = session.state()
    session.step(*CASES["mlp_lamb"].batches(1)[0])
    after = session.state()
    trained = [n for n, v in source.state.items() if v.role == "weight"]
    assert trained
    assert all(not np.array_equal(before[n], after[n]) for n in trained)
