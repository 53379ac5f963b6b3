"""The overflow check: a cycle with a gradient that is not finite leaves weights, slots, step count and rate alone."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from mindspore import nn

import boost_compile as bc
from tests import reference
from tests.boundary import (
    Cycles,
    check,
    slow,
    train,
    train_in,
)
from tests.compare import assert_equal
from tests.networks import CASES, Batch, export, names
from tests.reference import overflowing

Exported = Callable[[str], Path]

SKIP_CYCLE, SKIP_MICRO = "overflow-check{policy=skip-cycle}", "overflow-check{policy=skip-micro}"
NETWORKS = ["mlp_adam", "lenet_bn_decay"]
SCHEDULES = ["mlp_adam_rate_schedule", "mlp_adam_weight_decay_decomposed", "mlp_asgd_decay", "mlp_adafactor"]
SCHEDULES += ["mlp_momentum_groups_rate_list"]
OTHERS = [name for name in names("optimizer", runs_on_cpu=True) if name not in SCHEDULES]


def accumulating(steps: int, split: str = "apply") -> str:
    return f"gradient-accumulation{{steps={steps},split={split}}}"


def hit(cycles: Cycles, *places: tuple[int, int], value: float = np.inf) -> list[list[Batch]]:
    """The cycles with an overflow in each (cycle, micro-batch) of `places`."""
    data = [list(cycle) for cycle in cycles]
    for cycle, micro in places:
        data[cycle][micro] = overflowing(data[cycle][micro], value)
    return data


def at_each_position(name: str) -> list[list[Batch]]:
    """A clean cycle, one cycle for each position of the overflow, two clean ones."""
    return hit(CASES[name].cycles(7, 4), (1, 0), (2, 1), (3, 2), (4, 3))


@pytest.mark.parametrize("split", ["apply", "fused"])
@pytest.mark.parametrize("name", NETWORKS)
def test_an_overflow_at_each_position_skips_its_cycle(exported: Exported, name: str, split: str) -> None:
    source = bc.load(str(exported(name)))
    data = at_each_position(name)
    ours = train(bc.compile(source, f"{accumulating(4, split)},{SKIP_CYCLE}"), source, data)
    assert [s.overflow for s in ours] == [False, True, True, True, True, False, False]
    check(ours, reference.train(name, data, overflow="skip-cycle"), source)


@pytest.mark.parametrize("scale", [24.0, 64.0])
def test_a_bound_on_elements_hides_no_overflow_where_the_optimizer_decays_first(scale: float, tmp_path: Path) -> None:
    """An optimizer with ``loss_scale`` unscales behind its weight decay; a clip by value makes infinity a number."""
    case = CASES["mlp"]
    scaled = replace(
        case,
        name="decays_first",
        wrap=lambda network, optimizer: nn.TrainOneStepCell(network, optimizer, sens=scale),
        optimizer=lambda weights: nn.Momentum(weights, 0.1, 0.9, weight_decay=0.05, loss_scale=scale),
    )
    program = bc.compile(export(scaled, tmp_path), f"{SKIP_CYCLE},clip-gradients{{by=value,limit=0.05}}")
    session = bc.Session(program)
    (good, other) = case.batches(2)
    assert session.step(*good).updated
    before = session.state()
    assert session.step(*overflowing(other)).overflow
    trained = before.keys() - {"overflow.skipped_cycles"}
    assert_equal(session.state(trained), {name: before[name] for name in trained})


@pytest.mark.parametrize("split", ["apply", "fused"])
@pytest.mark.parametrize("name", NETWORKS)
def test_only_the_bad_micro_batches_are_dropped(exported: Exported, name: str, split: str) -> None:
    """Behind a drop at each position: three of four dropped, then all, then none."""
    source = bc.load(str(exported(name)))
    data = hit(at_each_position(name), (5, 0), (5, 1), (5, 3))
    last = CASES[name].cycles(2, 4, seed=5)
    data += hit(last, (0, 0), (0, 1), (0, 2), (0, 3))
    ours = train(bc.compile(source, f"{accumulating(4, split)},{SKIP_MICRO}"), source, data)
    assert [s.updated for s in ours] == [True] * 7 + [False, True]
    check(ours, reference.train(name, data, overflow="skip-micro"), source)


@pytest.mark.parametrize("name", [*SCHEDULES, *slow(*OTHERS)])
def test_step_count_and_rate_stay_where_they_are(exported: Exported, name: str) -> None:
    """Rates that change with the step, beta powers, and slots that advance without a gradient."""
    source = bc.load(str(exported(name)))
    data = hit(CASES[name].cycles(4, 2), (1, 1), (2, 0))
    ours = train(bc.compile(source, f"{accumulating(2)},{SKIP_CYCLE}"), source, data)
    check(ours, reference.train(name, data, overflow="skip-cycle"), source)


@pytest.mark.parametrize("policy", ["skip-cycle", "skip-micro"])
@pytest.mark.parametrize("name", ["mlp", "gated_update"])
def test_sums_are_used_before_they_are_cleared(exported: Exported, name: str, policy: str) -> None:
    """Nothing divides them, so that the update gets the memory of the accumulators itself."""
    source, accumulate = bc.load(str(exported(name))), "gradient-accumulation{steps=2,reduction=sum,carry=last}"
    checked = bc.Session(bc.compile(source, f"{accumulate},overflow-check{{policy={policy}}}"))
    plain = bc.Session(bc.compile(source, accumulate))
    before = plain.state()
    for batch in CASES[name].batches(4):
        checked.step(*batch)
        plain.step(*batch)
    after, ours = plain.state(), checked.state()
    assert any(not np.array_equal(before[n], after[n]) for n in before if n.endswith("weight"))
    for key, value in after.items():
        np.testing.assert_array_equal(ours[key], value, err_msg=key)


@pytest.mark.parametrize("split", ["apply", "fused"])
def test_every_weight_is_looked_at(exported: Exported, split: str) -> None:
    """One bad element in the sum of one weight's gradients, for each weight in turn."""
    source = bc.load(str(exported("lenet_bn_decay")))
    program = bc.compile(source, f"{accumulating(2, split)},{SKIP_CYCLE}")
    session = bc.Session(program)
    first, second = CASES["lenet_bn_decay"].batches(2)
    sums = [name for name, variable in program.state.items() if variable.role == "accumulator"]
    assert len(sums) == sum(variable.role == "weight" for variable in source.state.values())
    start = session.state()
    for name in sums:
        session.step(*first)
        bad = session.state()[name]
        bad.flat[-1] = np.nan
        session.load_state({name: bad}, strict=False)
        result = session.step(*second)
        assert result.overflow, name
        assert not result.updated
    after = session.state()
    kept = [n for n, variable in source.state.items() if variable.role != "statistic"]
    assert_equal({n: after[n] for n in kept}, {n: start[n] for n in kept})
    session.step(*first)
    assert session.step(*second).updated


# -- never a silent endless skip ------------------------------------------------------------------------------------


def never_finite(count: int, steps: int = 2) -> list[list[Batch]]:
    cycles = CASES["mlp_adam"].cycles(count, steps)
    return hit(cycles, *((c, m) for c in range(count) for m in range(steps)))


@pytest.mark.parametrize("split", ["apply", "fused"])
@pytest.mark.parametrize("policy", ["skip-cycle", "skip-micro"])
def test_step_ends_after_too_many_skipped_cycles(exported: Exported, split: str, policy: str) -> None:
    """Three are allowed; the fourth is an error, told when the next cycle ends, so that no step waits for it."""
    source = bc.load(str(exported("mlp_adam")))
    check_ = f"overflow-check{{policy={policy},max_skipped=3}}"
    session = bc.Session(bc.compile(source, f"{accumulating(2, split)},{check_}"))
    cycles = never_finite(5)
    train_in(session, source, cycles[:4])
    session.step(*cycles[4][0])
    with pytest.raises(bc.Error, match=r"last 4 windows were all skipped.*max_skipped"):
        session.step(*cycles[4][1])


def test_a_clean_cycle_starts_the_count_again(exported: Exported) -> None:
    source = bc.load(str(exported("mlp_adam")))
    session = bc.Session(bc.compile(source, f"{accumulating(2)},overflow-check{{max_skipped=2}}"))
    clean = CASES["mlp_adam"].cycles(1, 2)
    seen = train_in(session, source, never_finite(2) + clean + never_finite(2) + clean)
    assert [s.updated for s in seen] == [False, False, True, False, False, True]


def test_fit_ends_after_too_many_skipped_cycles(exported: Exported) -> None:
    source = bc.load(str(exported("mlp_adam")))
    session = bc.Session(bc.compile(source, f"{accumulating(2)},overflow-check{{max_skipped=3}}"))
    x, labels = CASES["mlp_adam"].batch(np.random.default_rng(0), 64)
    with pytest.raises(bc.Error, match=r"last 4 windows were all skipped"):
        session.fit((np.full_like(x, np.nan), labels), epochs=3)


@pytest.mark.parametrize("policy", [SKIP_CYCLE, SKIP_MICRO])
def test_fit_goes_on_after_an_overflow(exported: Exported, policy: str) -> None:
    source = bc.load(str(exported("mlp_adam")))
    session = bc.Session(bc.compile(source, f"{accumulating(2)},{policy}"))
    x, labels = CASES["mlp_adam"].batch(np.random.default_rng(0), 64)
    x[20] = np.nan
    history = session.fit((x, labels), epochs=2, shuffle=False)
    skipped = [2, 10] if policy is SKIP_CYCLE else []
    assert [i for i, cycle in enumerate(history.cycles) if not cycle.updated] == skipped
    assert all(np.isfinite(value).all() for value in session.state().values())
