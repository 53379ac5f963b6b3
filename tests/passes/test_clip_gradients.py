"""Clipping of the averaged, unscaled gradient, before weight decay, against MindSpore's own clip functions."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import boost_compile as bc
from tests import reference
from tests.boundary import (
    LAST,
    check,
    every_other,
    slow,
    train,
    train_in,
)
from tests.compare import assert_close
from tests.networks import CASES, names
from tests.reference import Clip

Exported = Callable[[str], Path]

OPTIMIZERS = ["mlp_adam_decay", "mlp_adam_weight_decay_decomposed", "mlp_asgd_decay", "mlp_momentum_groups"]
OTHERS = [name for name in names("optimizer", runs_on_cpu=True) if name not in OPTIMIZERS]
STRUCTURES = ["gpt_tied", "shared_weights", *slow("lstm", "gpt", "recurrence_unrolled", "frozen_prefix", "experts")]
ACTIVE, INACTIVE = 0.05, 1e4


def accumulating(steps: int, split: str = "apply") -> str:
    return f"gradient-accumulation{{steps={steps},split={split}}}"


def clipping(by: str, limit: float) -> str:
    return f"clip-gradients{{by={by},limit={limit},report_norm=true}}"


@pytest.mark.parametrize(
    ("name", "by", "split"),
    every_other(["mlp_adam", "lenet_bn_decay"], ["global-norm", "tensor-norm", "value"], ["apply", "fused"]),
)
def test_clipping_of_the_mean(exported: Exported, name: str, by: str, split: str) -> None:
    limit = 0.01 if by == "value" else ACTIVE
    source = bc.load(str(exported(name)))
    data = CASES[name].cycles(3, 3)
    run = reference.train(name, data, clip=Clip(by, limit))
    assert all(cycle.norm is not None and cycle.norm > ACTIVE for cycle in run.cycles)
    ours = train(bc.compile(source, f"{accumulating(3, split)},{clipping(by, limit)}"), source, data)
    assert all(seen.norm is not None for seen in ours)
    check(ours, run, source)


@pytest.mark.parametrize("name", STRUCTURES)
def test_shared_and_tied_weights_count_once(exported: Exported, name: str) -> None:
    """Their gradients are sums: the norm is that of the sum, and the sum is clipped, not its terms."""
    source = bc.load(str(exported(name)))
    data = CASES[name].cycles(2, 2)
    run = reference.train(name, data, clip=Clip("global-norm", ACTIVE))
    check(train(bc.compile(source, f"{accumulating(2)},{clipping('global-norm', ACTIVE)}"), source, data), run, source)
    plain = [[batch] for cycle in data for batch in cycle]
    run = reference.train(name, plain, clip=Clip("global-norm", ACTIVE))
    check(train(bc.compile(source, clipping("global-norm", ACTIVE)), source, plain), run, source)


@pytest.mark.parametrize("name", [*OPTIMIZERS, *slow(*OTHERS)])
def test_clipping_stands_before_weight_decay(exported: Exported, name: str) -> None:
    source = bc.load(str(exported(name)))
    data = CASES[name].cycles(2, 1)
    run = reference.train(name, data, clip=Clip("global-norm", ACTIVE))
    check(train(bc.compile(source, clipping("global-norm", ACTIVE)), source, data), run, source)


@pytest.mark.parametrize(("by", "split"), every_other(["global-norm", "tensor-norm", "value"], ["apply", "fused"]))
def test_a_gradient_of_zero_stays_zero(exported: Exported, by: str, split: str) -> None:
    """With all weights zero and a target of zero every gradient is exactly zero, and so is its norm."""
    source = bc.load(str(exported("regression_mse")))
    session = bc.Session(bc.compile(source, f"{accumulating(2, split)},{clipping(by, 1.0)}"))
    weights = [name for name, variable in source.state.items() if variable.role == "weight"]
    start = session.state()
    session.load_state({name: np.zeros_like(start[name]) for name in weights}, strict=False)
    cycle = [(x, np.zeros_like(target)) for x, target in CASES["regression_mse"].batches(2)]
    [seen] = train_in(session, source, [cycle])
    assert seen.norm == 0.0
    assert not any(seen.state[name].any() for name in weights)
    assert all(np.isfinite(value).all() for value in session.state().values())


def test_a_norm_beyond_float32_clips_to_zero_as_natively(exported: Exported) -> None:
    """Finite gradients of 1e19 and more, whose squares are not finite: the limit over an infinite norm is zero."""
    source = bc.load(str(exported("mlp_adam")))
    data = [list(cycle) for cycle in CASES["mlp_adam"].cycles(3, 2)]
    data[1][0] = reference.overflowing(data[1][0], 1e20)
    run = reference.train("mlp_adam", data, clip=Clip("global-norm", ACTIVE))
    ours = train(bc.compile(source, f"{accumulating(2)},{clipping('global-norm', ACTIVE)}"), source, data)
    assert ours[1].norm == np.inf
    assert_close(ours[-1].state, run.cycles[-1].state, run.initial, LAST, run.noise())


def test_half_gradients(exported: Exported) -> None:
    """The squares of float16 gradients would overflow and underflow: the norm is taken in float32."""
    source = bc.load(str(exported("mlp_half_weights")))
    data = CASES["mlp_half_weights"].cycles(2, 2)
    run = reference.train("mlp_half_weights", data, clip=Clip("global-norm", ACTIVE))
    accumulate = "gradient-accumulation{steps=2,dtype=float32}"
    ours = train(bc.compile(source, f"{accumulate},{clipping('global-norm', ACTIVE)}"), source, data)
    unit = float(np.finfo(np.float16).eps)
    for seen, cycle in zip(ours, run.cycles, strict=True):
        assert seen.norm == pytest.approx(cycle.norm, rel=unit)
    for name, value in run.cycles[0].state.items():
        size = max(np.abs(value.astype("f8")).max(), np.abs(value.astype("f8") - run.initial[name]).max())
        assert np.abs(ours[0].state[name].astype("f8") - value).max() <= unit * size, name
