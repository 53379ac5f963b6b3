"""Loss scales of groups: exact while nothing overflows; each follows upstream's rule by itself."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from fractions import Fraction
from math import floor, log2
from pathlib import Path

import mindspore as ms
import numpy as np
import pytest

import boost_compile as bc
from tests import reference
from tests.boundary import (
    Seen,
    check,
    every_other,
    slow,
    train,
    train_unpacked,
)
from tests.compare import State, assert_equal
from tests.native import tensors
from tests.networks import CASES, Batch, build
from tests.reference import overflowing

Exported = Callable[[str], Path]

THREE = "group-loss-scale{groups=3,init=[4,8192,64]}"
TWO = "group-loss-scale{groups=2,init=[2048,4]}"

NETWORKS = {
    "mlp_adam": TWO,
    "lenet_bn_decay": THREE,
    "shared_weights": THREE,  # twice in one group
    "gpt_tied": THREE,  # the embedding is used in the first and in the last group
    "recurrence_unrolled": THREE,  # both weights take turns
    "lstm": THREE,
    "loop": THREE,  # a function computes the gradients of one group only
    "loop_weights": THREE,  # and of several
    "branch": TWO,
    "branch_in_loop": TWO,
    "experts": THREE,
    "two_heads": THREE,
    "two_inputs": THREE,
    "gradient_penalty": TWO,
    "at_once": THREE,
    "residual_after": "group-loss-scale{groups=5,init=[4,8192,64,1,512]}",
}
SLOW = {"gpt": THREE, "resnet18": THREE, "vit": THREE, "mobilenet_v2": THREE, "clip_global_norm": TWO, "penalized": TWO}


def scales_of(seen: Seen) -> tuple[float, ...]:
    """The scales that the next cycle will have."""
    n = sum(name.endswith(".steps") for name in seen.own)
    return tuple(seen.own[f"loss_scale.group{k}.value"].item() for k in range(n))


@pytest.mark.parametrize("name", [*NETWORKS, *slow(*SLOW)])
def test_training_keeps_every_bit(exported: Exported, name: str) -> None:
    """Scales that differ widely between groups, at every way in which groups can hang together: where a factor was
    missed, or reached a gradient of another group, or was not undone, the weights differ at once."""
    source = bc.load(str(exported(name)))
    data = CASES[name].cycles(2, 1)
    ours = train(bc.compile(source, {**NETWORKS, **SLOW}[name]), source, data)
    assert_same_user_training(ours, train(source, source, data))


@pytest.mark.parametrize("name", ["mlp_adam", "lenet_bn_decay", "shared_weights", *slow("residual_after", "gpt_tied")])
def test_training_is_the_native_one(exported: Exported, name: str) -> None:
    source = bc.load(str(exported(name)))
    data = CASES[name].cycles(3, 2)
    program = bc.compile(source, f"gradient-accumulation{{steps=2}},{NETWORKS[name]}")
    check(train(program, source, data), reference.train(name, data), source)


CLIP = "clip-gradients{by=global-norm,limit=0.5}"
CENTRALIZE = "tag-gradient-centralization,lower-gradient-centralization"
FREEZE = "gradient-freeze{groups=3,probability=0.3,total_steps=10}"


@pytest.mark.parametrize("split", ["apply", pytest.param("fused", marks=pytest.mark.slow)])
@pytest.mark.parametrize("others", [CLIP, *slow(FREEZE, CENTRALIZE, "less-bn")])
def test_other_passes_in_any_order(exported: Exported, others: str, split: str) -> None:
    name = "residual_after" if others == "less-bn" else "lenet_bn_decay"
    source = bc.load(str(exported(name)))
    users = bc.compile(source, others) if others == "less-bn" else source
    data = CASES[name].cycles(5, 3)
    accumulate = f"gradient-accumulation{{steps=3,split={split}}}"
    scale = "group-loss-scale{groups=3,init=[4,8192,64],window=4}"
    # On CPU the norms of a group are joined.
    run = train_unpacked if others == CLIP else train
    plain = run(bc.compile(source, f"{accumulate},overflow-check,{others}"), users, data)
    first = others if others == "less-bn" else scale
    second = f"{accumulate},{scale if others == 'less-bn' else others}"
    for program in (
        bc.compile(source, f"{others},{scale},{accumulate}"),
        bc.compile(bc.compile(source, first), second),
        bc.compile(bc.compile(source, f"{accumulate},overflow-check,{others}"), scale),
    ):
        ours = run(program, users, data)
        assert_same_user_training(ours, plain)
        assert [scales_of(seen) for seen in ours[3:]] == [(8.0, 16384.0, 128.0)] * 2


def assert_same_user_training(ours: Sequence[Seen], plain: Sequence[Seen]) -> None:
    for a, b in zip(ours, plain, strict=True):
        assert a.updated
        np.testing.assert_array_equal(a.losses, b.losses)
        assert_equal(a.state, b.state)


# -- overflow -------------------------------------------------------------------------------------------------------


class Upstream:
    """``BoostTrainOneStepWithLossScaleCell``: an overflow multiplies the scale of its group by 1/√2, every other cycle
    by 2^(1/1000); any overflow skips the optimizer. Logarithms, so that nothing rounds. Not upstream's: whose overflow
    it is where infinities have spread, the bounds, and that the power of two below is what is applied."""

    def __init__(self, scales: Sequence[float], window: int = 1000, least: float = 1, most: float = 2.0**24) -> None:
        self.octaves = [Fraction(round(log2(scale) * window), window) for scale in scales]
        self.up = Fraction(1, window)
        self.least, self.most = Fraction(log2(least)), Fraction(log2(most))

    def applied(self) -> tuple[float, ...]:
        return tuple(2.0 ** floor(octaves) for octaves in self.octaves)

    def cycle(self, infinite: Sequence[int]) -> None:
        """``infinite``: the groups whose gradients are not finite, numbered from the input."""
        shrinking = {max(infinite)} if infinite else set()
        for k in range(len(self.octaves) - 1):
            if k in shrinking and floor(self.octaves[k]) == self.least:
                shrinking.add(k + 1)
        for k, octaves in enumerate(self.octaves):
            moved = octaves - Fraction(1, 2) if k in shrinking else octaves + self.up
            self.octaves[k] = min(max(moved, self.least), self.most)


INFECTED = [(), (2, 1, 0), (), (1, 0), (1, 0), (0,), (), (2,), (2, 0), (0,), (0,), (), (1,), (), (), (), (2, 1)]


@pytest.mark.parametrize(("split", "window"), every_other(["apply", "fused"], [1000, 4]))
def test_each_group_follows_upstreams_rule(exported: Exported, split: str, window: int) -> None:
    """Infinities put into the gradients of some groups, cycle by cycle; a cycle is judged once."""
    source = bc.load(str(exported("lenet_bn_decay")))
    first, *_ = initial = (4096.0, 1000.0, 2.0)
    scale = f"group-loss-scale{{groups=3,init=[{first},{initial[1]},{initial[2]}],window={window},max=8192}}"
    program = bc.compile(source, f"gradient-accumulation{{steps=2,split={split}}},{scale}")
    members = [program.state[f"loss_scale.group{k}.value"].info["weights"] for k in range(3)]
    session = bc.Session(program)
    model = Upstream(initial, window, most=8192)
    for i, (infinite, cycle) in enumerate(zip(INFECTED, CASES["lenet_bn_decay"].cycles(len(INFECTED), 2), strict=True)):
        session.step(*cycle[0])
        for k in infinite:
            name = f"accum.{members[k][-1]}"
            assert name in program.state
            bad = session.state()[name]
            bad.flat[0] = (np.inf, -np.inf, np.nan)[i % 3]
            session.load_state({name: bad}, strict=False)
        before = session.state()
        result = session.step(*cycle[1])
        after = session.state()
        assert result.loss_scales == model.applied()
        assert result.overflow == bool(infinite)
        assert result.updated != bool(infinite)
        changed = any((after[w] != before[w]).any() for weights in members for w in weights)
        assert changed == result.updated
        model.cycle(infinite)
        kept = [after[f"loss_scale.group{k}.steps"] / window for k in range(3)]
        assert tuple(after[f"loss_scale.group{k}.value"].item() for k in range(3)) == model.applied()
        np.testing.assert_allclose(kept, [float(o % 1) for o in model.octaves], rtol=1e-6)
        for name in after:
            assert not name.startswith("accum.") or not after[name].any()


@pytest.mark.parametrize("scales", [(2.0**24, 1.0), (1.0, 2.0**24)])
def test_half_precision_finds_a_scale_for_the_group_that_overflows(
    exported: Exported, scales: tuple[float, float]
) -> None:
    """Real infinities of float16, which the last group's overflow spreads to the first; only the one shrinks that has
    too large a scale, until it does not overflow any more."""
    source = bc.load(str(exported("mlp_mixed")))
    program = bc.compile(source, f"group-loss-scale{{groups=2,init=[{scales[0]},{scales[1]}]}}")
    data = CASES["mlp_mixed"].cycles(30, 1)
    ours = train(program, source, data)
    large = scales.index(2.0**24)
    model = Upstream(scales)
    for seen in ours:
        model.cycle([large] if seen.overflow else [])
        assert scales_of(seen) == model.applied()
        assert seen.updated == (not seen.overflow)
    skipped = [seen.overflow for seen in ours]
    assert skipped[0]
    assert not skipped[-1]
    assert 1 < model.applied()[large] < 2.0**24
    assert model.applied()[1 - large] == 1.0
    # What the last overflow left behind is the native training of the cycles that were not skipped.
    kept = [cycle for cycle, skip in zip(data, skipped, strict=True) if not skip]
    run = reference.train("mlp_mixed", kept)
    update = skipped.index(False)
    assert_half_close(ours[update].state, run.cycles[0].state, run.initial)


def assert_half_close(ours: State, native: State, initial: State) -> None:
    """Two roundings of a float16 gradient."""
    unit = np.finfo(np.float16).eps
    for weight, value in native.items():
        moved = np.abs(value.astype("f8") - initial[weight]).max()
        assert np.abs(ours[weight].astype("f8") - value).max() <= 2 * unit * moved, weight


def test_gradients_that_would_vanish_survive(exported: Exported) -> None:
    """The point of it: small weights in the last layer, and small inputs, make the gradients of the first layer too
    small for float16, at a scale that suits the last one. The judge is the same network in float32."""
    full, mixed = (bc.load(str(exported(name))) for name in ("mlp", "mlp_mixed"))
    [[(x, labels)]] = CASES["mlp"].cycles(1, 1)
    batch = (x * np.float32(2.0**-8), labels)
    start = bc.Session(full).state()
    start["output.weight"] = start["output.weight"] * np.float32(2.0**-8)
    moved = []
    for program in (
        full,
        bc.compile(mixed, "loss-scale{mode=static,init=1}"),
        bc.compile(mixed, "group-loss-scale{groups=2,init=[16384,1]}"),
    ):
        session = bc.Session(program)
        session.load_state(start, strict=False)
        session.step(*batch)
        moved.append(session.state()["hidden.weight"].astype("f8") - start["hidden.weight"])
    errors = [np.abs(m - moved[0]).max() / np.abs(moved[0]).max() for m in moved[1:]]
    assert errors[0] > 0.02
    assert errors[1] < 0.002


@pytest.mark.parametrize("split", ["apply", "fused"])
def test_an_infinite_input_counts_where_it_reaches(exported: Exported, split: str) -> None:
    """Infinite inputs make NaNs, of which ReLU makes zeros: natively too the first group's gradients alone are not
    finite."""
    source = bc.load(str(exported("mlp_adam")))
    accumulate = f"gradient-accumulation{{steps=3,split={split}}}"
    program = bc.compile(source, f"{accumulate},group-loss-scale{{groups=2,init=[64,256],window=2}}")
    data = [list(cycle) for cycle in CASES["mlp_adam"].cycles(12, 3)]
    for cycle, micro in ((1, 0), (4, 1), (5, 2), (9, 0)):
        data[cycle][micro] = overflowing(data[cycle][micro])
    ours = train(program, source, data)
    run = reference.train("mlp_adam", data, overflow="skip-cycle")
    check(ours, run, source)
    members = [program.state[f"loss_scale.group{k}.value"].info["weights"] for k in range(2)]
    infinite = infinite_groups("mlp_adam", data[1][0], members)
    assert infinite == [0]
    model = Upstream((64, 256), 2)
    for seen, cycle in zip(ours, run.cycles, strict=True):
        model.cycle(infinite if cycle.overflow else [])
        assert scales_of(seen) == model.applied()


def infinite_groups(name: str, batch: Batch, members: Sequence[Sequence[str]]) -> list[int]:
    """The groups whose native gradients are not finite."""
    built = build(CASES[name])
    weights = built.optimizer.parameters
    backward = reference.Backward(built.loss_network, weights).set_train()
    _, gradients = backward(ms.Tensor(1.0, ms.float32), *tensors(batch))
    infinite = {w.name for w, g in zip(weights, gradients, strict=True) if not np.isfinite(g.asnumpy()).all()}
    return [k for k, names in enumerate(members) if infinite.intersection(names)]


def test_where_it_is_not_known_whose_overflow_it_is_all_shrink(exported: Exported) -> None:
    """Micro-batches that overflow are dropped, and the gradients that are left are finite."""
    source = bc.load(str(exported("mlp_adam")))
    check_each = "gradient-accumulation{steps=3},overflow-check{policy=skip-micro}"
    program = bc.compile(source, f"{check_each},group-loss-scale{{groups=2,init=[64,256],window=2}}")
    data = [list(cycle) for cycle in CASES["mlp_adam"].cycles(3, 3)]
    data[1][1] = overflowing(data[1][1])
    first, second, third = train(program, source, data)
    assert second.overflow
    assert second.updated
    model = Upstream((64, 256), 2)
    model.cycle([])
    assert scales_of(first) == model.applied()
    model.octaves = [octaves - Fraction(1, 2) for octaves in model.octaves]
    assert scales_of(second) == model.applied()
    model.cycle([])
    assert scales_of(third) == model.applied()


# -- errors and reports ---------------------------------------------------------------------------------------------
