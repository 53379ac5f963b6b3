"""Optimizers of one's own, which scale a gradient for what they keep: passes change what they are given, not that."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import mindspore as ms
import numpy as np
import pytest
from mindspore import nn, ops

import boost_compile as bc
from tests.networks.hand_optimizers import Ahead, Average, Bounded, Dampened, Normalised, Trusting, Values, Watching

Gradients = list[np.ndarray]
OPTIMIZERS = [Average, Ahead, Dampened, Normalised]
STEPS = 4


class Network(nn.Cell):
    def __init__(self) -> None:
        super().__init__()
        self.hidden, self.out = nn.Dense(6, 8, activation="relu"), nn.Dense(8, 3)

    def construct(self, x):  # type: ignore[no-untyped-def]
        return self.out(self.hidden(x))


def batches() -> list[tuple[Any, Any]]:
    rng = np.random.default_rng(0)
    shapes = [(rng.standard_normal((4, 6)), rng.integers(0, 3, 4)) for _ in range(STEPS)]
    return [(x.astype(np.float32), y.astype(np.int32)) for x, y in shapes]


def made(optimizer: Callable[..., Any]) -> tuple[Any, Any, Any]:
    ms.set_seed(1)
    network = Network()
    return network, nn.CrossEntropyLoss(), optimizer(network.trainable_params())


def unchanged(gradients: Gradients) -> Gradients:
    return gradients


def shortened(gradients: Gradients) -> Gradients:
    norm = np.sqrt(sum(np.square(g.astype(np.float64)).sum() for g in gradients))
    return [g * np.float32(0.1 / max(norm, 0.1)) for g in gradients]


def bounded(gradients: Gradients) -> Gradients:
    return [np.clip(g, -0.02, 0.02) for g in gradients]


def native(optimizer: Callable[..., Any], change: Callable[[Gradients], Gradients], steps: int) -> dict[str, Any]:
    """The state behind updates of the mean of ``steps`` gradients each, changed."""
    network, loss, update = made(optimizer)
    values = Values(nn.WithLossCell(network, loss), update.parameters).set_train()
    found = [[g.asnumpy() for g in values(*map(ms.Tensor, batch))[1]] for batch in batches()[:1]]
    assert sum(np.abs(g).max() > 0.02 for g in found[0]), "no limit is reached"
    for start in range(0, STEPS, steps):
        cycle = batches()[start : start + steps]
        found = [[g.asnumpy() for g in values(*map(ms.Tensor, batch))[1]] for batch in cycle]
        means = [sum(each[1:], each[0]) / np.float32(steps) for each in zip(*found, strict=True)]
        update(tuple(ms.Tensor(g) for g in change(means)))
    return {p.name: p.asnumpy() for p in update.get_parameters()}


def ours(optimizer: Callable[..., Any], pipeline: str) -> tuple[dict[str, Any], Sequence[str]]:
    network, loss, update = made(optimizer)
    program = bc.capture(network, loss, update, *batches()[0])
    session = bc.Session(bc.compile(program, pipeline))
    for batch in batches():
        session.step(*batch)
    return session.state(), [v.name for v in program.state.values() if v.role in ("weight", "slot")]


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
@pytest.mark.parametrize(
    ("pipeline", "change", "steps"),
    [
        ("clip-gradients{limit=0.1,unscale=none}", shortened, 1),
        ("clip-gradients{by=value,limit=0.02,unscale=none},gradient-accumulation{steps=2}", bounded, 2),
    ],
)
def test_gradients_are_clipped_as_the_optimizer_is_given_them(
    optimizer: Callable[..., Any], pipeline: str, change: Callable[[Gradients], Gradients], steps: int
) -> None:
    found, names = ours(optimizer, pipeline)
    wanted = native(optimizer, change, steps)
    assert names
    for name in names:
        np.testing.assert_allclose(found[name], wanted[name], rtol=1e-5, atol=1e-7, err_msg=name)


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_another_optimizer_keeps_nothing_of_it(optimizer: Callable[..., Any]) -> None:
    found, _ = ours(optimizer, 'replace-optimizer{to="sgd{lr=0.1}",unscale=none}')
    wanted = native(lambda parameters: nn.SGD(parameters, 0.1), unchanged, 1)
    for name in ("hidden.weight", "hidden.bias", "out.weight", "out.bias"):
        np.testing.assert_array_equal(found[name], wanted[name], err_msg=name)


def of_length(before: np.ndarray, step: np.ndarray) -> None:
    np.testing.assert_allclose(np.linalg.norm(step), 0.05 * (np.linalg.norm(before) + 0.01), rtol=1e-4)


def of_root_mean_square(_: np.ndarray, step: np.ndarray) -> None:
    np.testing.assert_allclose(np.sqrt(np.square(step).mean()), 0.01, rtol=1e-4)


@pytest.mark.parametrize(("optimizer", "holds"), [(Trusting, of_length), (Bounded, of_root_mean_square)])
def test_adapters_have_norms_of_their_own(
    optimizer: Callable[..., Any], holds: Callable[[np.ndarray, np.ndarray], None]
) -> None:
    """Each is trained as a weight: what the optimizer measures of one weight is measured of one adapter."""
    network, loss, update = made(optimizer)
    program = bc.compile(bc.capture(network, loss, update, *batches()[0]), "lora{match=hidden.weight,rank=2}")
    session = bc.Session(program)
    session.step(*batches()[0])  # B starts from zero, so A has no gradient yet
    before = session.state()
    session.step(*batches()[1])
    after = session.state()
    adapters = [name for name in before if "lora" in name]
    assert len(adapters) == 2
    for name in adapters:
        holds(before[name].astype(np.float64), after[name].astype(np.float64) - before[name])


@pytest.mark.parametrize(
    "pipeline",
    ["clip-gradients{limit=0.01}", "parameter-groups{weight_decay=0.5}", "lower-gradient-centralization"],
)
def test_what_a_cell_computes_of_its_gradients_is_no_update(pipeline: str, tmp_path: Path) -> None:
    """It returns a norm, and keeps another: both of the gradients, not of what its optimizer is given."""
    network, loss, update = made(lambda parameters: nn.Momentum(parameters, 0.1, 0.9))
    cell = Watching(nn.WithLossCell(network, loss), update).set_train()
    path = tmp_path / "watching.mindir"
    ms.export(cell, *map(ms.Tensor, batches()[0]), file_name=str(path), file_format="MINDIR")
    original = bc.load(path)
    program = bc.compile(original, pipeline)
    plain, passed = bc.Session(original), bc.Session(program)
    one, other = plain.step(*batches()[0]), passed.step(*batches()[0])
    (length,) = one.outputs.keys() - {"loss"}
    assert one.outputs[length] == other.outputs[length] != 0
    assert plain.state()["running"] == passed.state()["running"] != 0
    assert (plain.state()["out.weight"] != passed.state()["out.weight"]).any()
    found = bc.verify(original, program)
    assert found.verified, found


@pytest.mark.parametrize("pipeline", ["clip-gradients{limit=0.1}", "parameter-groups{weight_decay=0.3}"])
def test_a_loss_scale_of_the_optimizer_changes_no_pass(pipeline: str) -> None:
    """It unscales behind its decay, whatever the number: as without a scale, where these passes are held natively."""

    def trained(scale: float) -> dict[str, Any]:
        network, loss, update = made(
            lambda parameters: nn.Momentum(parameters, 0.1, 0.9, weight_decay=0.05, loss_scale=scale)
        )
        cell = nn.TrainOneStepCell(nn.WithLossCell(network, loss), update, sens=scale).set_train()
        session = bc.Session(bc.compile(bc.capture(cell, *batches()[0]), pipeline), share=False)
        for batch in batches():
            session.step(*batch)
        return session.state()

    plain = trained(1.0)
    for scale in (8.0, 24.0, 1024.0):
        scaled = trained(scale)
        for name in ("hidden.weight", "hidden.bias", "out.weight", "out.bias"):
            np.testing.assert_allclose(scaled[name], plain[name], rtol=1e-5, atol=1e-6, err_msg=f"{name} at {scale}")


class Eta(nn.Optimizer):
    """Its rate is a state of a name of its own, and no constant of the code multiplies the direction."""

    def __init__(self, parameters: Any) -> None:
        super().__init__(0.1, parameters)
        self.eta = ms.Parameter(ms.Tensor(0.05, ms.float32), name="eta", requires_grad=False)
        self.mean = self.parameters.clone(prefix="mean", init="zeros")

    def construct(self, gradients: Any) -> bool:
        for i in range(len(self.parameters)):
            mean = 0.9 * self.mean[i] + gradients[i]
            ops.assign(self.mean[i], mean)
            ops.assign_sub(self.parameters[i], self.eta * (mean + 0.01 * self.parameters[i]))
        return True


def test_a_schedule_sets_what_multiplies_the_direction() -> None:
    rates = [0.2, 0.05, 0.1]
    network, loss, update = made(Eta)
    source = bc.capture(nn.TrainOneStepCell(nn.WithLossCell(network, loss), update).set_train(), *batches()[0])
    session = bc.Session(bc.compile(source, "schedule{kind=table,table=[0.2,0.05,0.1]}"), share=False)
    network, loss, update = made(Eta)
    native = nn.TrainOneStepCell(nn.WithLossCell(network, loss), update).set_train()
    for rate, batch in zip(rates, batches(), strict=False):
        ops.assign(update.eta, ms.Tensor(rate, ms.float32))
        native(*map(ms.Tensor, batch))
        session.step(*batch)
    found = session.state()
    wanted = {p.name: p.asnumpy() for p in native.get_parameters() if p.name in found}
    assert {"eta", "hidden.weight", "mean.out.bias"} <= wanted.keys()
    for name, value in wanted.items():
        np.testing.assert_allclose(found[name], value, rtol=1e-5, atol=1e-6, err_msg=name)
