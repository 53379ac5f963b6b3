"""Loss scale: gradients of the scaled loss, unscaled once a cycle; static, and dynamic as MindSpore's update cell."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import boost_compile as bc
from tests import reference
from tests.boundary import Seen, assert_same_training, check, slow, train, train_file, train_in, with_splits
from tests.compare import State, assert_equal
from tests.networks import CASES, Batch, names
from tests.reference import Cycle, LossScale, overflowing

Exported = Callable[[str], Path]

LOSSES = ["regression_mse", "token_cross_entropy_masked", "binary_cross_entropy", "binary_cross_entropy_logits"]
LINEAR = [*LOSSES, "mlp", "lenet_bn", "gpt", "gpt_tied", "lstm", "two_inputs", "shared_weights", "branch", "mlp_sens"]
LINEAR += ["mlp_adam_weight_decay_decomposed", "regularized", "at_once", "loop", "experts", "hidden_state"]
EVERY_SCALE = ("mlp", "lenet_bn", "gpt_tied")
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


@pytest.mark.parametrize("split", ["apply", "fused"])
@pytest.mark.parametrize("name", ["lenet_bn_decay", "token_cross_entropy_masked", *slow("gpt")])
def test_powers_of_two_change_no_bit_of_accumulated_training(exported: Exported, name: str, split: str) -> None:
    source = bc.load(str(exported(name)))
    data = CASES[name].cycles(2, 3)
    plain = train(bc.compile(source, accumulating(3, split)), source, data)
    for scale in (2, 1024):
        ours = train(bc.compile(source, f"{accumulating(3, split)},{static(scale)}"), source, data)
        for a, b in zip(ours, plain, strict=True):
            np.testing.assert_array_equal(a.losses, b.losses)
            assert_equal(a.state, b.state)


@pytest.mark.parametrize("name", ["mlp_adam", "lenet_bn_decay", *LOSSES])
def test_any_scale_agrees_up_to_rounding(exported: Exported, name: str) -> None:
    source = bc.load(str(exported(name)))
    data = CASES[name].cycles(3, 2)
    ours = train(bc.compile(source, f"{accumulating(2)},{static(1000)}"), source, data)
    check(ours, reference.train(name, data, loss_scale=LossScale(1000.0)), source)


def test_the_scale_really_reaches_the_backward_part(exported: Exported) -> None:
    """The accumulators hold the gradients of the scaled loss."""
    source = bc.load(str(exported("mlp")))
    [batch] = CASES["mlp"].batches(1)
    sums = []
    for scale in (1, 1024):
        program = bc.compile(source, f"{accumulating(2)},{static(scale)}")
        session = bc.Session(program)
        session.step(*batch)
        state = session.state()
        sums.append({n: state[n] for n, variable in program.state.items() if variable.role == "accumulator"})
    assert sums[0]
    assert_equal(sums[1], {name: np.float32(1024) * value for name, value in sums[0].items()})
    assert all(value.any() for value in sums[0].values())


@pytest.mark.parametrize("split", ["apply", "fused"])
@pytest.mark.parametrize("name", ["mlp_adam", "lenet_bn_decay"])
def test_a_static_scale_with_overflows(exported: Exported, name: str, split: str) -> None:
    source = bc.load(str(exported(name)))
    data = with_overflows(name, 12, 3, (1, 0), (5, 1), (6, 2))
    program = bc.compile(source, f"{accumulating(3, split)},{static(1024)},overflow-check")
    run = reference.train(name, data, loss_scale=LossScale(1024.0), overflow="skip-cycle")
    ours = train(program, source, data)
    assert {s.scale for s in ours} == {1024.0}
    check(ours, run, source)


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


@pytest.mark.parametrize("name", ["mlp_adam", "lenet_bn_decay"])
def test_a_dynamic_scale_without_accumulation(exported: Exported, name: str) -> None:
    source = bc.load(str(exported(name)))
    data = with_overflows(name, 14, 1, (0, 0), (4, 0), (5, 0), (9, 0))
    run = reference.train(name, data, loss_scale=LossScale(1024.0, 3), overflow="skip-cycle")
    check(train(bc.compile(source, DYNAMIC), source, data), run, source)


def test_the_scale_stays_within_its_bounds(exported: Exported) -> None:
    source = bc.load(str(exported("mlp_adam")))
    data = with_overflows("mlp_adam", 16, 1, *((i, 0) for i in range(6, 11)))
    program = bc.compile(source, "loss-scale{mode=dynamic,init=16,factor=4,window=1,min=8,max=128}")
    rule = LossScale(16.0, 1, factor=4.0, minimum=8.0, maximum=128.0)
    ours = train(program, source, data)
    assert {8.0, 128.0} <= {s.scale for s in ours}
    check(ours, reference.train("mlp_adam", data, loss_scale=rule, overflow="skip-cycle"), source)


def test_the_position_of_the_rule_is_state(exported: Exported, tmp_path: Path) -> None:
    """A checkpoint in the middle of a window goes on to the same growth."""
    source = bc.load(str(exported("mlp_adam")))
    program = bc.compile(source, f"{accumulating(2)},{DYNAMIC}")
    data = with_overflows("mlp_adam", 10, 2, (1, 1))
    session = bc.Session(program)
    train_in(session, source, data[:4])
    state = session.state()
    assert state["loss_scale.value"].item() == 512.0
    assert state["loss_scale.clean_cycles"].item() == 2
    session.save(tmp_path / "midway.safetensors")
    again = bc.Session(program)
    again.load_state(tmp_path / "midway.safetensors")
    ours, others = train_in(session, source, data[4:]), train_in(again, source, data[4:])
    assert ours[1].scale == 1024.0
    assert_same_training(ours, others)


@pytest.mark.parametrize("split", ["apply", "fused"])
def test_the_file_alone_has_the_same_scale_history(exported: Exported, tmp_path: Path, split: str) -> None:
    source = bc.load(str(exported("lenet_bn_decay")))
    program = bc.compile(source, f"{accumulating(3, split)},{DYNAMIC}")
    program.save(str(tmp_path / "whole.mindir"))
    data = with_overflows("lenet_bn_decay", 12, 3, (4, 0), (5, 1), (8, 2))
    ours = train(program, source, data)
    alone = train_file(tmp_path / "whole.mindir", source, data)
    assert_same_training(alone, ours)
    assert len({float(s.own["loss_scale.value"]) for s in alone}) >= 3


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
