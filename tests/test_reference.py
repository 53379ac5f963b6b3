"""The composed reference checks itself against what MindSpore has of its own."""

from __future__ import annotations

import mindspore as ms
import numpy as np
import pytest
from mindspore import nn, ops

from tests import native, reference
from tests.compare import assert_equal
from tests.networks import CASES
from tests.reference import Clip, LossScale, overflowing
from tests.remember import forgetful


@pytest.mark.parametrize("name", ["lenet_bn_decay", "mlp_adam", "mlp_mixed"])
def test_with_nothing_between_it_is_native_accumulation(name: str) -> None:
    data = CASES[name].cycles(2, 4)
    plain = native.train_accumulated(name, data)
    run = reference.train(name, data)
    assert [c.losses for c in run.cycles] == plain.losses
    assert_equal(run.cycles[-1].state, plain.states[-1])


@pytest.mark.parametrize("name", ["mlp_adam", "lenet_bn_decay", "loop"])
def test_cells_that_have_served_start_anew(name: str) -> None:
    data = CASES[name].cycles(2, 2)
    train = forgetful(reference.train)
    reference.of_zoo.cache_clear()
    first, again = train(name, data), train(name, data)
    assert [cycle.losses for cycle in again.cycles] == [cycle.losses for cycle in first.cycles]
    assert_equal(again.cycles[-1].state, first.cycles[-1].state)


def test_a_loss_scale_that_is_a_power_of_two_changes_no_bit() -> None:
    data = CASES["lenet_bn_decay"].cycles(2, 2)
    plain, scaled = (reference.train("lenet_bn_decay", data, loss_scale=LossScale(v)) for v in (1.0, 1024.0))
    assert_equal(scaled.cycles[-1].state, plain.cycles[-1].state)


@pytest.mark.parametrize("window", [1, 3])
def test_the_dynamic_rule_is_that_of_the_native_cell(window: int) -> None:
    ms.set_context(mode=ms.GRAPH_MODE, device_target="CPU")
    cell = nn.DynamicLossScaleUpdateCell(loss_scale_value=64, scale_factor=2, scale_window=window)
    held = ms.Parameter(ms.Tensor(64.0, ms.float32), name="scale_sense")
    rule = LossScale(64.0, window, maximum=np.inf)
    scale, clean = 64.0, 0
    seen = set()
    for overflow in np.random.default_rng(3).random(80) < 0.4:
        cell(held, ms.Tensor(bool(overflow)))
        scale, clean = reference.next_scale(rule, scale, clean, bool(overflow))
        assert float(held.asnumpy()) == scale
        seen.add(scale)
    assert len(seen) > 4


def test_clipping_by_the_norm_of_each_tensor() -> None:
    rng = np.random.default_rng(0)
    gradients = [rng.standard_normal(shape).astype(np.float32) * size for shape, size in (((3, 4), 5), ((7,), 0.01))]
    ours = reference.clipped(gradients, Clip("tensor-norm", 0.5))
    assert np.linalg.norm(ours[0]) == pytest.approx(0.5, rel=1e-6)
    np.testing.assert_allclose(
        ours[0] / np.linalg.norm(ours[0]), gradients[0] / np.linalg.norm(gradients[0]), rtol=1e-6
    )
    np.testing.assert_array_equal(ours[1], gradients[1])
    value = reference.clipped(gradients, Clip("value", 0.5))
    np.testing.assert_array_equal(value[0], ops.clip_by_value(ms.Tensor(gradients[0]), -0.5, 0.5).asnumpy())


@pytest.mark.parametrize(
    ("name", "slot"),
    [("mlp_momentum_decay", "moments"), ("mlp_adam_decay", "moment1"), ("mlp_adam_weight_decay", "adam_m")],
)
def test_centralization_stands_behind_the_decay(name: str, slot: str) -> None:
    """A first moment starts as a multiple of the gradient that reaches the update: no mean, decay included."""
    [cycle] = CASES[name].cycles(1, 2)
    weights = ["hidden.weight", "output.weight"]
    state = reference.train(name, [cycle], centralize=weights).cycles[0].state
    plain = reference.train(name, [cycle]).cycles[0].state
    for weight in weights:
        moment, other = state[f"{slot}.{weight}"], plain[f"{slot}.{weight}"]
        np.testing.assert_allclose(moment.mean(1), 0, atol=1e-6 * np.abs(moment).max())
        assert np.abs(other.mean(1)).max() > 1e-2 * np.abs(moment).max()
        np.testing.assert_allclose(moment, reference.centered(other), atol=1e-6 * np.abs(moment).max())


@pytest.mark.parametrize("position", [0, 1])
def test_an_overflow_stops_the_cycle_or_the_micro_batch(position: int) -> None:
    data = CASES["mlp_adam"].cycles(3, 2)
    hit = [list(cycle) for cycle in data]
    hit[1][position] = overflowing(hit[1][position])
    skip = reference.train("mlp_adam", hit, overflow="skip-cycle")
    assert [c.skipped for c in skip.cycles] == [c.overflow for c in skip.cycles] == [False, True, False]
    assert_equal(skip.cycles[1].state, skip.cycles[0].state)
    drop = reference.train("mlp_adam", hit, overflow="skip-micro")
    assert [c.skipped for c in drop.cycles] == [False, False, False]
    alone = native.train_accumulated("mlp_adam", [data[0], [data[1][1 - position]], data[2]])
    assert_equal(drop.cycles[-1].state, alone.states[-1])
    unchecked = reference.train("mlp_adam", hit)
    assert not np.isfinite(unchecked.cycles[1].state["hidden.weight"]).all()


def test_the_weighted_mean() -> None:
    """Weights in proportion 3 to 1 are one cycle of the first micro-batch three times and the second once."""
    [[one, other]] = CASES["mlp"].cycles(1, 2)
    weights = {id(one): 6.0, id(other): 2.0}
    run = reference.train("mlp", [[one, other]], weight=lambda batch: weights[id(batch)])
    again = native.train_accumulated("mlp", [[one, one, one, other]])
    native.assert_close(run.cycles[0].state, again.states[0], run.initial, 1e-5)
