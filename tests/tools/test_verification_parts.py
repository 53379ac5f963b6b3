"""Parts of boost-verify by themselves: what random programs showed of them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import mindspore as ms
import numpy as np
import pytest
from boost_compile.passes.framework.pipeline import parse_pipeline
from boost_compile.tools.verification.autodiff import LossGradients
from boost_compile.tools.verification.changes import make_changes, totals
from boost_compile.tools.verification.context import differing
from boost_compile.tools.verification.gradient_error import Exact
from boost_compile.tools.verification.probe import RAW
from boost_compile.tools.verification.promises import Promises
from boost_compile.tools.verification.reference import Reference
from boost_compile.tools.verification.report import PASSED
from boost_compile.tools.verification.states import draws_of
from boost_compile.tools.verification.subject import Subject
from boost_compile.tools.verification.tolerance import floors, signs
from mindspore import nn, ops

import boost_compile as bc
from tests.graphs import graph
from tests.networks import CASES, Case, export


def test_a_sequence_need_not_hold_the_whole_network(exported: Callable[[str], Path]) -> None:
    """With few cycles that train everything, none does before the sequence is over."""
    freeze = "gradient-freeze{groups=2,type=continuous,probability=0.1,total_steps=4}"
    program = bc.compile(bc.load(str(exported("mlp"))), freeze)
    assert program.schedule.choice is not None
    assert program.schedule.choice.of_cycle(0) == 1
    subject = Subject(program, list(program.state))
    subject.restart()
    assert subject.variant == 0


def test_frozen_weights_are_told_from_a_rate_of_zero(exported: Callable[[str], Path]) -> None:
    """A warm-up's first step moves no weight, so the first cycle says nothing of who is frozen."""
    original = bc.load(str(exported("mlp_adam_weight_decay_warmup")))
    program = bc.compile(original, "gradient-freeze{groups=2,total_steps=8}")
    assert bc.verify(original, program, bisect=False).result("frozen weights").status == PASSED


def test_autodiff_knows_the_gradients_of_the_loss(exported: Callable[[str], Path]) -> None:
    """Of a file with max pooling, by a Cell written from it; of TrainOneStepCell with sens, without its 1024."""
    for name, times in (("lenet_bn", 1.0), ("mlp_sens", 1024.0)):
        reference, batch = Reference(bc.load(str(exported(name)))), CASES[name].batches(1)[0]
        found = totals(reference.probe, reference.micro(reference.initial, batch).gradients)
        own = LossGradients(reference.base, "CPU").of(reference.initial, batch)
        assert own.keys() == found.keys()
        for weight, gradient in own.items():
            np.testing.assert_allclose(times * gradient, found[weight], rtol=1e-6, atol=1e-9)


@pytest.mark.parametrize("optimizer", ["proximal_adagrad", "ftrl"])
def test_proximal_steps_are_not_proportional_to_their_rate(optimizer: str, exported: Callable[[str], Path]) -> None:
    original = bc.load(str(exported(f"mlp_{optimizer}")))
    program = bc.compile(original, "parameter-groups{match=*.weight,lr_factor=0.5}")
    found = bc.verify(original, program, quick=True, bisect=False)
    assert "is not proportional to its learning rate" in found.result("different micro-batches").detail


def test_a_zero_in_a_gradient_that_is_all_noise_is_chance() -> None:
    """Exact zeros bind where the gradient says something (a row that no token takes), not in front of a BatchNorm."""
    noise = np.array([0.0, 3e-12, 1e-12])
    rows = np.array([[0.0, 0.0], [2e-3, 1e-3]])
    magnitudes = {"a": noise, "b": np.full(3, 1e-3), "c": rows}
    layers = {"a": "norm.beta", "b": "norm.gamma", "c": "embedding.table"}
    unmoved = {name: np.zeros_like(m) for name, m in magnitudes.items()}
    found = floors(magnitudes, layers, 2.0**-23, [unmoved, unmoved])
    assert (found["a"] > 3e-12).all()
    assert (found["b"] < 1e-6).all()
    assert (found["c"] > 0).tolist() == [[False, False], [True, True]]
    halves = floors(magnitudes, layers, 2.0**-10, [unmoved, unmoved], dict.fromkeys(magnitudes, 3e-8))
    assert halves["c"][0].tolist() == [3e-8, 3e-8], "what vanishes in float16 does not where it is scaled"


def test_noise_does_not_leave_with_a_mean() -> None:
    """Of four random signs in a row every eighth four are alike, and centralization takes them all away."""
    for seed in range(20):
        for shape in ((4, 4), (3, 2, 1), (2, 2, 3)):
            drawn = signs(shape, np.random.default_rng(seed))
            assert (np.abs(drawn) == 1).all()
            assert (np.abs(drawn.sum(axis=tuple(range(1, len(shape))))) < np.prod(shape[1:])).all()
    assert np.abs(signs((64,), np.random.default_rng(0)).sum()) < 40
    assert signs((3, 0), np.random.default_rng(0)).shape == (3, 0)


def test_what_clipping_rounds_is_left_behind_a_mean() -> None:
    """Seed 4087: where a row is clipped throughout, its mean leaves zeros or rounding, and AdaFactor makes a step of
    either."""
    passes = "tag-gradient-centralization,lower-gradient-centralization,clip-gradients{by=value,limit=0.05}"
    slots = [SimpleNamespace(name="g", weights=("w",))]
    cuts = [SimpleNamespace(stage=stage, gradients=slots) for stage in ("clip", "centralize")]
    probe: Any = SimpleNamespace(gradients=slots, cuts=cuts)
    changes = make_changes(probe, Promises(tuple(parse_pipeline(passes))), {"w"})

    def change(given: Any, state: Any, noise: Any = None) -> Any:
        return changes["centralize"](changes["clip"](given, state, noise), state, noise)

    given = {"g": np.array([[1.0, 2.0, 3.0], [0.01, 1.0, 0.02]], np.float32)}
    noise = {"g": np.array([[1.0, -1.0, 1.0], [1.0, 1.0, -1.0]]) * 1e-12}
    exact, moved = change(given, {}), change(given, {}, noise)
    assert not exact["g"][0].any()
    off = np.abs(moved["g"] - exact["g"])
    assert (off[0] > 1e-8).all()
    assert off.max() < 2e-7  # eight units of 0.05, twice, and their mean


def test_what_a_mean_rounds_reaches_elements_without_a_gradient() -> None:
    """Weights of a convolution at the edge of small maps have none. The mean of their row, added up in any order, is
    all that they get."""
    slots = [SimpleNamespace(name=n, weights=(n,)) for n in ("w", "free", "half")]
    probe: Any = SimpleNamespace(gradients=slots, cuts=[SimpleNamespace(stage="centralize", gradients=slots)])
    promises = Promises(tuple(parse_pipeline("lower-gradient-centralization")))
    change = make_changes(probe, promises, {"w", "half"})["centralize"]
    rows = np.array([[0.0, 0.0, 3.0], [0.0, 0.0, 3e-4], [0.0, 0.0, 0.0]], np.float32)
    given = {"w": rows, "free": rows, "half": rows.astype(np.float16)}
    signs = np.array([[1.0, -1.0, 1.0]] * 3)
    for direction in (1.0, -1.0):
        noise = dict.fromkeys(given, direction * signs * [0.0, 0.0, 1e-30])
        off = {n: (g - change(given, {})[n]) for n, g in change(given, {}, noise).items()}
        assert (np.sign(off["w"][:2]) == direction * signs[:2]).all()
        np.testing.assert_allclose(np.abs(off["w"][:2]), [[8 * 2.0**-23] * 3, [8e-4 * 2.0**-23] * 3], rtol=0.3)
        assert not off["w"][2].any()
        assert not off["free"].any()
        assert not off["half"].any(), "added up in float32, which float16 does not show"


def test_frozen_weights_have_no_part_in_a_norm() -> None:
    """Not in that of a training cell either, which gets zeros for them (seed 4145); of two weights with one gradient,
    both must be frozen."""
    slots = [SimpleNamespace(name="a", weights=("v",)), SimpleNamespace(name="b", weights=("v", "w"))]
    change = make_changes(cast(Any, SimpleNamespace(gradients=slots, cuts=())), Promises(()), set(), {"v"})[RAW]
    ones = np.ones(2, np.float32)
    changed = change({"a": ones, "b": ones}, {})
    assert {n: g.tolist() for n, g in changed.items()} == {"a": [0.0, 0.0], "b": [1.0, 1.0]}
    assert make_changes(cast(Any, SimpleNamespace(cuts=())), Promises(()), set()) == {}


def test_the_derivative_knows_the_scale_of_a_file_that_needs_other_primitives(exported: Callable[[str], Path]) -> None:
    """A training cell with a loss scale of its own, exported with primitives that the CPU lacks."""
    original = bc.load(str(exported("scaled_lenet_adam")))
    program = bc.compile(original, "normalised-head")
    result = bc.verify(original, program, bisect=False).result("derivative")
    assert result.status == PASSED
    assert "with the original's loss scale of" in result.detail


def test_draws_are_the_same_with_other_seeds_and_not_with_another_chance() -> None:
    """The graphs of a program have seeds of their own."""

    def draws(attributes: str, name: str = "StandardNormal", part: str = "@f") -> tuple[list[str], list[str]]:
        made = f"%n = {name}((2, 2)) {{{attributes}, side_effect_hidden = true}} : float32[2,2] {part}"
        return draws_of(graph(f"{made}\nreturn %n"))

    assert draws("seed = 1, seed2 = 0") == draws("seed = 350, seed2 = 350")
    assert draws("seed = 1, seed2 = 0") != draws("seed = 1, seed2 = 0", "StandardLaplace")
    assert draws("keep_prob = 0.5") != draws("keep_prob = 0.25")
    assert draws("seed = 1", part="") == draws("seed = 1")[::-1] != draws("seed = 1")


def test_a_zero_that_lost_its_sign_is_no_other_value() -> None:
    was = {"zero": np.float32([-0.0, 1.0]), "nan": np.float32([np.nan]), "moved": np.float32([1.0])}
    now = {
        "zero": np.float32([0.0, 1.0]),
        "nan": np.float32([np.nan]),
        "moved": np.nextafter(was["moved"], np.float32(2)),
    }
    assert differing(was, now, list(was)) == ["moved"]
    assert differing({"w": np.float32([1.0])}, {"w": np.float64([1.0])}, ["w"]) == ["w"]


class Equilibrium(nn.Cell):
    """A fixed point, found by a loop without gradients, and one step from there that has them."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Dense(4, 4)
        self.again = nn.Dense(4, 4)

    def construct(self, x, y):
        first = self.first(x)
        still = ops.stop_gradient(first)
        z, count = ops.zeros_like(still), ms.Tensor(0, ms.int32)
        while count < 3:
            z, count = ops.tanh(self.again(z) + still), count + 1
        return ((ops.tanh(self.again(ops.stop_gradient(z)) + first) - y) ** 2).mean()


def test_a_loss_scale_behind_a_function_is_no_error_of_half_precision(tmp_path: Path) -> None:
    """The scale stands behind the call, where the gradient that the function returns has none yet."""

    def rows(rng: np.random.Generator, size: int) -> tuple[np.ndarray, ...]:
        return tuple(rng.standard_normal((size, 4)).astype(np.float32) for _ in range(2))

    case = Case("equilibrium", Equilibrium, lambda p: nn.SGD(p, 0.1), rows)
    errors = Exact(bc.load(export(case, tmp_path)), case.batches(1)).errors(parse_pipeline("mixed-precision{level=O2}"))
    assert len(errors) == 4
    assert max(errors.values()) < 0.05
