"""Loss scale: gradients of the scaled loss, unscaled once a cycle; static, and dynamic as MindSpore's update cell."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import boost_compile as bc
from tests import reference
from tests.boundary import Seen, check, slow, train, with_splits
from tests.compare import State, assert_equal
from tests.networks import CASES, Batch, names
from tests.reference import Cycle, LossScale, overflowing

Exported = Callable[[str], Path]

LOSSES = ["regression_mse", "token_cross_entropy_masked", "binary_cross_entropy", "binary_cross_entropy_logits"]
LINEAR = [*LOSSES, "mlp", "lenet_bn", "gpt", "mlp_sens", "mlp_adam_weight_decay_decomposed", "regularized"]
LINEAR += ["hidden_state"]
"""The scales of groups find their way in other networks: test_group_loss_scale.py."""
EVERY_SCALE = ("mlp", "lenet_bn")
FLOAT32 = [n for n in names(runs_on_cpu=True, without=("half", "refused", "random")) if n not in LINEAR]

DYNAMIC = "loss-scale{mode=dynamic,init=1024,factor=2,window=3}"


def accumulating(steps: int, split: str = "apply") -> str:
    return f"gradient-accumulation{{steps={steps},split={split},reduction=mean}}"


def static(scale: float) -> str:
    return f"loss-scale{{mode=static,init={scale}}}"


def with_overflows(name: str, cycles: int, steps: int, *places: tuple[int, int]) -> list[list[Batch]]:
    data = [list(cycle) for cycle in CASES[name].cycles(cycles, steps)]
    for cycle, micro in places:
        data[cycle][micro] = overflowing(data[cycle][micro])
    return data


@pytest.mark.parametrize("name", [*LINEAR, *slow(*FLOAT32)])
def test_powers_of_two_change_no_bit(exported: Exported, name: str) -> None:
    """In float32 a scale that is a power of two is exact on the way in and out, wherever the gradient is linear in its
    seed; a seed that was missed, or a factor that is not undone, shows at once."""
    source = bc.load(str(exported(name)))
    data = CASES[name].cycles(2, 1)
    plain = train(source, source, data)
    for scale in (1, 2, 1024) if name in EVERY_SCALE else (1024,):
        ours = train(bc.compile(source, static(scale)), source, data)
        for a, b in zip(ours, plain, strict=True):
            assert a.scale == scale
            np.testing.assert_array_equal(a.losses, b.losses)
            assert_equal(a.state, b.state)


@pytest.mark.parametrize("name", ["lenet_bn_decay", "regression_mse", "token_cross_entropy_masked"])
def test_any_scale_agrees_up_to_rounding(exported: Exported, name: str) -> None:
    source = bc.load(str(exported(name)))
    data = CASES[name].cycles(3, 2)
    ours = train(bc.compile(source, f"{accumulating(2)},{static(1000)}"), source, data)
    check(ours, reference.train(name, data, loss_scale=LossScale(1000.0)), source)


@pytest.mark.parametrize("split", ["apply", "fused"])
@pytest.mark.parametrize("name", ["mlp_adam", "lenet_bn_decay"])
def test_a_dynamic_scale_has_the_native_history(exported: Exported, name: str, split: str) -> None:
    """Growth, an overflow in each position, two in a row, one right before growth and one right after."""
    source = bc.load(str(exported(name)))
    data = with_overflows(name, 16, 3, (4, 0), (5, 1), (8, 2), (12, 0), (12, 2))
    program = bc.compile(source, f"{accumulating(3, split)},{DYNAMIC}")
    run = reference.train(name, data, loss_scale=LossScale(1024.0, 3), overflow="skip-cycle")
    ours = train(program, source, data)
    assert len({s.scale for s in ours}) >= 4
    assert sum(not s.updated for s in ours) == 4
    check(ours, run, source)


# -- half precision -------------------------------------------------------------------------------------------------

RECOVERING = "loss-scale{mode=dynamic,init=16777216,factor=2,window=3}"
TOO_LARGE = LossScale(2.0**24, 3)


def recovered(source: bc.Program, name: str, split: str) -> list[Seen]:
    """Cycles that begin with a scale that float16 gradients cannot bear; the accumulators are float32."""
    accumulate = f"gradient-accumulation{{steps=2,split={split},dtype=float32}}"
    program = bc.compile(source, f"{accumulate},{RECOVERING}")
    assert {v.dtype for v in program.state.values() if v.role == "accumulator"} == {"float32"}
    ours = train(program, source, CASES[name].cycles(18, 2))
    assert not ours[0].updated
    assert sum(s.updated for s in ours) >= 4
    return ours


def assert_half_close(ours: Seen, cycle: Cycle, initial: State) -> None:
    """Two roundings of the gradient, or of the weight where that is half precision."""
    unit = np.finfo(np.float16).eps
    for weight, value in cycle.state.items():
        moved = np.abs(value.astype("f8") - initial[weight]).max()
        size = max(moved, np.abs(value.astype("f8")).max() if value.dtype == np.float16 else 0.0)
        assert np.abs(ours.state[weight].astype("f8") - value).max() <= 2 * unit * size, weight


@pytest.mark.parametrize(
    ("name", "split"), with_splits(["mlp_mixed", "mlp_mixed_adam", "lenet_mixed"], fused=["mlp_mixed"])
)
def test_mixed_precision_recovers_from_too_large_a_scale(exported: Exported, name: str, split: str) -> None:
    """Level O2, whose loss is float32: the native history."""
    source = bc.load(str(exported(name)))
    ours = recovered(source, name, split)
    run = reference.train(name, CASES[name].cycles(18, 2), loss_scale=TOO_LARGE, overflow="skip-cycle")
    assert [s.scale for s in ours] == [c.scale for c in run.cycles]
    assert [s.updated for s in ours] == [not c.skipped for c in run.cycles]
    update = next(i for i, cycle in enumerate(run.cycles) if not cycle.skipped)
    assert_half_close(ours[update], run.cycles[update], run.initial)


@pytest.mark.parametrize("split", ["apply", "fused"])
@pytest.mark.parametrize("name", ["mlp_half_compute", "mlp_half_weights"])
def test_a_float16_loss_recovers_from_too_large_a_scale(exported: Exported, name: str, split: str) -> None:
    """Natively the seed itself is infinite above 65504; here a scale is too large only when a gradient is. The rule is
    the same."""
    source = bc.load(str(exported(name)))
    ours = recovered(source, name, split)
    scale, clean = TOO_LARGE.value, 0
    for seen in ours:
        assert (seen.scale, seen.updated) == (scale, not seen.overflow)
        scale, clean = reference.next_scale(TOO_LARGE, scale, clean, bool(seen.overflow))
    update = next(i for i, seen in enumerate(ours) if seen.updated)
    run = reference.train(name, CASES[name].cycles(18, 2)[update : update + 1], loss_scale=LossScale(1024.0))
    assert_half_close(ours[update], run.cycles[0], run.initial)


@pytest.mark.parametrize(
    "pipeline", ["loss-scale,dead-code-elimination", "loss-scale,dead-code-elimination,overflow-check"]
)
def test_clean_ups_leave_the_rule_to_the_pass_that_comes_second(exported: Exported, pipeline: str) -> None:
    session = bc.Session(bc.compile(bc.load(str(exported("mlp"))), pipeline))
    for number, batch in enumerate(CASES["mlp"].batches(3), 1):
        session.step(*batch)
        assert session.state()["loss_scale.clean_cycles"] == number


@pytest.mark.parametrize("passes", ["loss-scale{mode=static}", "gradient-accumulation,loss-scale{mode=static}"])
@pytest.mark.parametrize(("name", "target"), [("scaled_tensor_of_one", "ascend"), ("scaled_gpu", "gpu")])
def test_a_cell_that_scales_its_loss_is_refused_on_its_own_device_too(
    exported: Exported, name: str, target: str, passes: str
) -> None:
    """There nothing has to be legalized, which is where the scale among the results is told elsewhere."""
    with pytest.raises(bc.Error, match="scales its loss by itself"):
        bc.compile(bc.load(str(exported(name))), passes, target=target)
