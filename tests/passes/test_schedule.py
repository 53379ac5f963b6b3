"""Schedules of the learning rate, against MindSpore's optimizers that were built with the same one."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from boost_compile.ir.core.errors import PassError
from mindspore import nn

import boost_compile as bc
from tests.boundary import slow
from tests.compare import assert_equal
from tests.native import train_steps
from tests.networks import CASES
from tests.networks.optimizers import groups
from tests.passes.two_compilations import assert_found_later
from tests.reference import overflowing

Exported = Callable[[str], Path]

UPDATES = 8
WARMED = [*nn.warmup_lr(0.05, 3, 1, 3), *nn.cosine_decay_lr(0.005, 0.05, 5, 1, 5), 0.005]
LINEAR = nn.polynomial_decay_lr(0.05, 0.0, UPDATES + 1, 1, 5, 1.0)
SCHEDULES = {
    "schedule{total=8,warmup=3,lr=0.05,end=0.1}": WARMED,
    "schedule{kind=linear,total=5,lr=0.05}": LINEAR,
    "schedule{kind=table,table=[0.05,0.02,0.03]}": [0.05, 0.02, *[0.03] * UPDATES],
    "schedule{kind=constant,warmup=4,lr=0.05}": nn.warmup_lr(0.05, UPDATES + 1, 1, 4),
}
NATIVE = {
    "mlp_adam": lambda p, rates: nn.Adam(p, rates),
    "mlp_momentum_rate_list": lambda p, rates: nn.Momentum(p, rates, 0.9),
    "mlp_adam_rate_schedule": lambda p, rates: nn.Adam(p, rates),
    "mlp_momentum_groups": lambda p, rates: nn.Momentum(groups(p, rates, _halved(rates)), 0.1, 0.9),
    "mlp_rmsprop_centered": lambda p, rates: nn.RMSProp(p, rates, centered=True),
    "mlp_adam_weight_decay_groups": lambda p, rates: nn.AdamWeightDecay(
        groups(p, rates, _halved(rates)), 0.01, weight_decay=0.02
    ),
    "mlp_adafactor_fixed_rate": lambda p, rates: nn.AdaFactor(
        p, learning_rate=rates, scale_parameter=False, relative_step=False, weight_decay=1e-3
    ),
    "lenet_bn_sgd": lambda p, rates: nn.SGD(p, rates, momentum=0.9),
}  # fmt: skip
FEW = [("mlp_momentum_groups", 0), ("mlp_adam_rate_schedule", 1), ("mlp_momentum_rate_list", 2)]
MANY = [(name, i) for name in NATIVE for i in range(len(SCHEDULES)) if (name, i) not in FEW]


def _halved(rates: list[float]) -> list[float]:
    return [rate * 0.5 for rate in rates]


@pytest.mark.parametrize(("name", "number"), [*FEW, *(pytest.param(*given, marks=pytest.mark.slow) for given in MANY)])
def test_it_trains_as_an_optimizer_that_was_built_with_it(exported: Exported, name: str, number: int) -> None:
    schedule, rates = list(SCHEDULES.items())[number]
    case = CASES[name]
    batches = case.batches(UPDATES)
    natively = replace(case, name=f"{name}_scheduled", optimizer=lambda p: NATIVE[name](p, rates))
    wanted = {n: v for n, v in train_steps(natively, batches)[1].items() if "learning_rate" not in n}
    session = bc.Session(bc.compile(bc.load(exported(name)), schedule))
    for batch in batches:
        session.step(*batch)
    ours = session.state()
    assert_equal({n: ours[n] for n in wanted}, wanted)


@pytest.mark.parametrize("name", ["mlp_momentum_rate_list", *slow("mlp_adam", "mlp_asgd", "mlp_loss_scale_dynamic")])
@pytest.mark.parametrize("passes", ["overflow-check", *slow("loss-scale{init=8},gradient-accumulation{steps=2}")])
def test_a_skipped_update_does_not_count(exported: Exported, name: str, passes: str) -> None:
    if name == "mlp_loss_scale_dynamic":
        passes = passes.partition(",")[2] or "legalize"
    batches = CASES[name].batches(12)
    batches[2] = overflowing(batches[2], np.inf)
    session = bc.Session(bc.compile(bc.load(exported(name)), f"{passes},schedule{{kind=linear,total=4,lr=0.5}}"))
    (rate,) = [n for n in session.program.state if n.rpartition(".")[2].startswith("learning_rate")]
    done, shown = 0, session.program.state[rate].initial
    for batch in batches:
        result = session.step(*batch)
        if result.ended_cycle:
            if result.updated:
                shown = np.float32(0.5 * (1 - min(done, 4) / 4))
            np.testing.assert_equal(session.state([rate])[rate], shown)
            done += result.updated
    assert done > 3


def test_it_goes_on_where_a_saved_state_stands(exported: Exported, tmp_path: Path) -> None:
    """The state of a training without a schedule has all that one with it needs."""
    source = bc.load(exported("mlp_adam"))
    batches = CASES["mlp_adam"].batches(6)
    plain = bc.Session(source)
    for batch in batches[:3]:
        plain.step(*batch)
    plain.save(tmp_path / "state.safetensors")
    program = bc.compile(source, "schedule{kind=table,table=[1,1,1,0.01,0.01,0.01]}")
    program.save(tmp_path / "scheduled.mindir")
    session = bc.Session(program)
    session.load(tmp_path / "state.safetensors")
    for batch in batches[3:]:
        session.step(*batch)
        plain.step(*batch)
    assert_equal(session.state(), plain.state())
    alone = bc.Session(bc.load(tmp_path / "scheduled.mindir"))
    again = bc.Session(program)
    for batch in batches:
        alone.step(*batch)
        again.step(*batch)
    ours = again.state()
    assert_equal({n: v for n, v in alone.state().items() if n in ours}, ours)


def test_the_numbers_of_one_cycle(exported: Exported) -> None:
    """As its authors' library has them: three tenths up, the rest down, each on half a cosine."""
    program = bc.compile(bc.load(exported("mlp_adam")), "schedule{kind=one-cycle,total=10,lr=0.1}")
    table = program.state["schedule.rates"].initial

    def on_a_cosine(first: float, last: float, part: float) -> float:
        return last + (first - last) / 2 * (math.cos(math.pi * part) + 1)

    up = [on_a_cosine(0.004, 0.1, i / 3) for i in range(3)]
    down = [on_a_cosine(0.1, 4e-7, i / 7) for i in range(8)]
    np.testing.assert_allclose(table, [*up, *down], rtol=1e-6)


LATER = ["parameter-groups{match=[*.bias],lr_factor=0.5}", "overflow-check", "gradient-accumulation{steps=2}"]


@pytest.mark.parametrize("later", [LATER[0], *slow(*LATER[1:], "gradient-freeze{groups=2,type=interval}")])
def test_passes_of_a_later_compilation_find_the_same_training(exported: Exported, later: str) -> None:
    assert_found_later(exported("mlp_adam"), "schedule{kind=table,table=[0.3,0.1,0.2]}", later)


@pytest.mark.parametrize(
    ("name", "pipeline", "said"),
    [
        (
            "mlp_momentum_rate_list",
            "replace-optimizer{to=lion},schedule{total=5}",
            "give keep_schedule=false to replace",
        ),
        ("mlp_adam_rate_schedule", "schedule{total=5}", "so its largest value is not known: give lr"),
        ("mlp_adafactor", "schedule{total=5}", "nothing there is a learning rate"),
        ("mlp_ftrl", "schedule{total=5}", "divides by the learning rate, which would be zero"),
    ],
)
def test_what_has_no_place_for_a_schedule_is_named(exported: Exported, name: str, pipeline: str, said: str) -> None:
    with pytest.raises(PassError, match=said):
        bc.compile(bc.load(exported(name)), pipeline)
