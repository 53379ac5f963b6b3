"""Gradient accumulation against native MindSpore: the same state, the same data, every parameter by name.

Judged by how far training moved each parameter (tests/compare.py): within 1e-5 after one cycle, 1e-3 after three. Deep
BatchNorm networks amplify one rounding difference from the second cycle on, so they are judged after one only.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import boost_compile as bc
from tests import native
from tests.boundary import every_other, slow, with_splits
from tests.compare import assert_close
from tests.networks import CASES, names
from tests.passes.accumulated import THREE_CYCLES, accumulated, accumulators, check, train

Exported = Callable[[str], Path]

OPTIMIZERS = names("optimizer", runs_on_cpu=True)
QUICK = [
    *("mlp_momentum_decay", "mlp_sgd_momentum", "mlp_adam", "mlp_amsgrad_decay"),
    *("mlp_lazy_adam_decay", "mlp_adam_weight_decay", "mlp_adam_weight_decay_decomposed"),
    *("mlp_rmsprop_centered", "mlp_adagrad", "mlp_ftrl_decay", "mlp_proximal_adagrad"),
    *("mlp_adafactor", "mlp_adamax_decay", "mlp_adadelta", "mlp_asgd", "mlp_rprop", "mlp_momentum_rate_list"),
    *("mlp_adam_rate_schedule", "mlp_momentum_groups", "mlp_adam_weight_decay_groups"),
]
"""Every optimizer class once, and every form of learning rate and groups; the others differ in one option."""
STRUCTURES = [
    "mlp",
    "lenet_bn",
    "gpt_tied",
    "two_inputs",
    "shared_weights",
    "frozen_prefix",
    "lstm",
    "branch",
    "loop",
]
DEEP = slow("resnet18", "mobilenet_v2")


@pytest.mark.parametrize(
    ("name", "split"),
    [
        *with_splits(STRUCTURES, fused=["mlp", "lenet_bn", "shared_weights"]),
        # gpt_tied is this network with one weight in two places.
        *(pytest.param("gpt", split, marks=pytest.mark.slow) for split in ("apply", "fused")),
    ],
)
def test_four_micro_batches_equal_native_accumulation(exported: Exported, name: str, split: str) -> None:
    check(name, exported(name), 4, split=split)


@pytest.mark.parametrize("name", [*QUICK, *slow(*(name for name in OPTIMIZERS if name not in QUICK))])
def test_every_optimizer(exported: Exported, name: str) -> None:
    """Slots, step counts, learning-rate schedules and beta powers advance once a cycle, whatever the optimizer's
    form."""
    first = check(name, exported(name), 4)
    assert first.bit_equal == len(first.rows), first


@pytest.mark.parametrize("name", DEEP)
@pytest.mark.parametrize("split", ["apply", *slow("fused")])
def test_deep_networks(exported: Exported, name: str, split: str) -> None:
    check(name, exported(name), 2, cycles=1, split=split)


@pytest.mark.parametrize("steps", [1, 5])
@pytest.mark.parametrize("split", ["apply", "fused"])
@pytest.mark.parametrize("name", ["lenet_bn", *slow("gpt")])
def test_other_cycle_lengths(exported: Exported, name: str, steps: int, split: str) -> None:
    check(name, exported(name), steps, split=split)


@pytest.mark.parametrize(("length", "split"), every_other([1, 2, 3], ["apply", "fused"]))
def test_a_short_cycle_divides_by_its_real_count(exported: Exported, split: str, length: int) -> None:
    case = CASES["lenet_bn"]
    full, short = case.cycles(2, 4)
    short = short[:length]
    reference = native.train_accumulated(case, [full, short])
    program = accumulated(exported(case.name), 4, split=split)
    session = bc.Session(program)
    for batch in full + short:
        session.step(*batch)
    result = session.flush()
    assert result is not None
    assert result.updated
    assert session.flush() is None
    state = {k: v for k, v in session.state().items() if k not in accumulators(program)}
    assert_close(state, reference.states[-1], native.initial_state(case), THREE_CYCLES, reference.noise())


@pytest.mark.parametrize(("name", "split"), every_other(["mlp_half_compute", "mlp_half_weights"], ["apply", "fused"]))
def test_half_gradients_accumulated_in_float32(exported: Exported, name: str, split: str) -> None:
    """Nearer to the exact mean than half-precision sums are: the mean of the same gradients, added up in float64."""
    case = CASES[name]
    program = accumulated(exported(name), 4, dtype="float32", split=split)
    kept = [v for v in program.state.values() if v.role == "accumulator"]
    assert kept
    assert {v.dtype for v in kept} == {"float32"}
    data = case.cycles(3, 4)
    reference = native.train_accumulated(case, data)
    [*_, ours] = train(program, data)
    unit = np.finfo(np.float16).eps
    initial = native.initial_state(case)
    for name_, value in reference.states[-1].items():
        moved = np.abs(value.astype("f8") - initial[name_]).max()
        scale = max(moved, np.abs(value.astype("f8")).max() if value.dtype == np.float16 else 0.0)
        assert np.abs(ours[name_].astype("f8") - value).max() <= 4 * unit * scale, name_


def test_micro_batches_draw_different_dropout_masks(exported: Exported) -> None:
    """With one mask for all, four identical micro-batches would leave the accumulated gradient an exact multiple of
    one."""
    program = accumulated(exported("dropout"), 4)
    session = bc.Session(program)
    [batch] = CASES["dropout"].batches(1)
    sums = []
    for _ in range(3):
        session.step(*batch)
        sums.append(session.state()["accum.hidden.weight"])
    assert not np.array_equal(sums[1], 2 * sums[0])
    assert not np.array_equal(sums[2] - sums[1], sums[1] - sums[0])


def test_slots_that_are_called_accum_keep_their_names(exported: Exported) -> None:
    program = accumulated(exported("mlp_adagrad"), 2)
    slots = {n for n, v in program.state.items() if v.role == "slot"}
    ours = {n for n, v in program.state.items() if v.role == "accumulator"}
    assert {f"accum.{n}" for n, v in program.state.items() if v.role == "weight"} == slots
    assert all(n.startswith("accum.gradient.") for n in ours)
