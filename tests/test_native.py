"""The references check themselves: what every other comparison rests on."""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Callable
from pathlib import Path

import mindspore as ms
import numpy as np
import pytest
from mindspore import nn

from tests import native
from tests.boundary import slow
from tests.networks import CASES, build
from tests.remember import forgetful

BIT_EQUAL = ["mlp", "mlp_adam", "mlp_momentum_rate_list", "mlp_sens", "lenet_bn_adam", "gpt_tied", "lstm", "dropout"]
MORE = ["mlp_adam_weight_decay", "mlp_rprop", "two_inputs", "branch"]


@pytest.mark.parametrize("name", [*BIT_EQUAL, *slow(*MORE)])
def test_one_micro_batch_a_cycle_is_plain_training(name: str) -> None:
    batches = CASES[name].batches(3)
    losses, state = native.train_steps(name, batches)
    run = native.train_accumulated(name, [[batch] for batch in batches])
    assert [cycle[0] for cycle in run.losses] == losses
    native.assert_equal(run.states[-1], state)


def test_a_cycle_is_the_mean_over_all_its_samples() -> None:
    """Without BatchNorm, accumulating equals one step on the joined batch, by another order of the same sums."""
    case = CASES["gpt"]
    [cycle] = case.cycles(1, 4)
    joined = tuple(np.concatenate(arrays) for arrays in zip(*cycle, strict=True))
    _, state = native.train_steps(case, [joined])
    run = native.train_accumulated(case, [cycle])
    native.assert_close(run.states[-1], state, native.initial_state(case), 2e-3, run.noise())


def test_the_sum_is_the_mean_times_the_count() -> None:
    """Rates of plain SGD scale with the gradient: the summed step is the averaged one, N times as far."""
    cycles = CASES["mlp_sgd"].cycles(1, 4)
    start = native.initial_state("mlp_sgd")
    mean = native.train_accumulated("mlp_sgd", cycles).states[0]
    total = native.train_accumulated("mlp_sgd", cycles, "sum").states[0]
    for name in ("hidden.weight", "output.bias"):
        assert np.abs(mean[name] - start[name]).max() > 1e-3
        np.testing.assert_allclose(total[name] - start[name], 4 * (mean[name] - start[name]), rtol=0, atol=1e-6)


def test_a_short_cycle_divides_by_its_real_count() -> None:
    full, short = CASES["mlp"].cycles(2, 3)
    run = native.train_accumulated("mlp", [full, short[:2]])
    again = native.train_accumulated("mlp", [full, short[:2]], "sum")
    assert int(run.states[-1]["global_step"][0]) == 2
    for name, gradient in run.gradients[0].items():
        np.testing.assert_array_equal(gradient, again.gradients[0][name] / 3)
    one = native.train_accumulated("mlp", [full, [short[0]]]).gradients[1]["hidden.weight"]
    other = native.train_accumulated("mlp", [full, [short[1]]]).gradients[1]["hidden.weight"]
    np.testing.assert_allclose(run.gradients[1]["hidden.weight"], (one + other) / 2, rtol=1e-5, atol=1e-7)


def test_statistics_advance_with_every_micro_batch() -> None:
    cycles = CASES["lenet_bn"].cycles(1, 3)
    state = native.train_accumulated("lenet_bn", cycles).states[0]
    # All micro-batches of a cycle see the same weights: plain steps see them too if the learning rate moves nothing.
    still = dataclasses.replace(CASES["lenet_bn"], optimizer=lambda p: nn.SGD(p, 0.0))
    _, plain = native.train_steps(still, cycles[0])
    for name in ("bn1.moving_mean", "bn1.moving_variance", "bn2.moving_mean", "bn2.moving_variance"):
        np.testing.assert_array_equal(state[name], plain[name])


def test_runs_do_not_share_parameters() -> None:
    cycles = CASES["mlp_adam"].cycles(2, 2)
    first = native.train_accumulated("mlp_adam", cycles)
    second = forgetful(native.train_accumulated)("mlp_adam", cycles)
    native.assert_equal(second.states[-1], first.states[-1])
    moved = native.compare(first.states[-1], native.initial_state("mlp_adam"), native.initial_state("mlp_adam"))
    assert moved.bit_equal < len(moved.rows) / 2


def test_a_process_of_its_own_gives_the_same() -> None:
    batches = CASES["mlp_adam"].batches(2)
    losses, state = native.isolated(native.train_steps, "mlp_adam", batches)
    here, state_here = native.train_steps("mlp_adam", batches)
    assert losses == here
    native.assert_equal(state, state_here)


@pytest.mark.parametrize("name", ["lenet_bn_adam", "gpt"])
def test_noise_is_the_bias_without_effect(name: str) -> None:
    run = native.train_accumulated(name, CASES[name].cycles(1, 4))
    noise = {weight: int(mask.sum()) for weight, mask in run.noise().items()}
    expected = [w for w in noise if w.endswith("key.bias") or w == "conv2.bias"]
    assert expected
    assert all(run.noise()[weight].all() for weight in expected)
    others = sum(count for weight, count in noise.items() if weight not in expected)
    assert others < 1e-3 * sum(mask.size for mask in run.noise().values())


def test_every_case_has_its_data_and_a_name_of_its_own() -> None:
    for name, case in CASES.items():
        assert case.name == name
        first, again = case.batches(2), case.batches(2)
        assert all(np.array_equal(a, b) for x, y in zip(first, again, strict=True) for a, b in zip(x, y, strict=True))
        assert not np.array_equal(first[0][0], first[1][0])
        assert {len(array) for array in first[0] if array.ndim} == {case.batch_size}


def test_the_build_is_in_graph_mode_and_training() -> None:
    step = build(CASES["dropout"]).train_step
    assert ms.get_context("mode") == ms.GRAPH_MODE
    assert step.network.training


def test_without_mindcv_the_network_says_how_to_install_it(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in [name for name in sys.modules if name.split(".")[0] == "mindcv"]:
        monkeypatch.delitem(sys.modules, module)
    monkeypatch.setitem(sys.modules, "mindcv", None)
    with pytest.raises(ModuleNotFoundError, match="pip install --no-deps mindcv"):
        CASES["resnet18"].network()


def test_an_unknown_case_is_named(exported: Callable[[str], Path]) -> None:
    with pytest.raises(KeyError, match=r"no case 'lenet_bm'.* lenet_bn,"):
        exported("lenet_bm")
