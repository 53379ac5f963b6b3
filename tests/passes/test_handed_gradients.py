"""A gradient is what the optimizer is handed, whoever made it: autodiff, a cell's own bprop, or neither."""

from __future__ import annotations

from typing import Any

import mindspore as ms
import numpy as np
import pytest
from mindspore import Parameter, Tensor, nn, ops

import boost_compile as bc

Arrays = dict[str, np.ndarray]


class Product(nn.Cell):
    """Autodiff has nothing left to compute where dout is 1: the gradient of w is x, or what is made of it before."""

    def construct(self, x, w):
        return (x * w).sum()

    def bprop(self, x, w, out, dout):
        return w * dout, x * dout


class Given(Product):
    def bprop(self, x, w, out, dout):
        return x, w


class Learned(nn.Cell):
    """A learned step size: the derivative of a number."""

    def construct(self, x, s):
        return ops.round(x / s) * s

    def bprop(self, x, s, out, dout):
        return dout, (dout * (out - x) / s).sum()


class Net(nn.Cell):
    def __init__(self) -> None:
        super().__init__()
        rng = np.random.default_rng(7)
        self.v = Parameter(rng.normal(0, 1, 3).astype(np.float32), name="v")
        self.w = Parameter(rng.normal(0, 1, (4, 3)).astype(np.float32), name="w")
        self.s = Parameter(Tensor(0.3, ms.float32), name="s")
        self.product, self.given, self.learned = Product(), Given(), Learned()


class ForwardValue(Net):
    def construct(self, x):
        return (ops.tanh(x * self.v) * self.w).sum() * self.s


class AnInput(Net):
    def construct(self, x):
        return (x * self.w).sum() + ops.tanh(x * self.v * self.s).mean()


class AWeight(Net):
    def construct(self, x):
        return (self.v * self.w).sum() + ops.tanh(x * self.s).mean()


class OwnBackward(Net):
    def construct(self, x):
        return self.product(ops.tanh(x * self.v * self.s), self.w)


class OwnBackwardOfAnInput(Net):
    def construct(self, x):
        return self.product(x, self.w) + ops.tanh(x * self.v * self.s).mean()


class TheWeight(Net):
    def construct(self, x):
        return self.given(x, self.w) + ops.tanh(x * self.v * self.s).mean()


class StepSize(Net):
    def construct(self, x):
        return ((self.learned(x * self.v, self.s) * self.w) ** 2).mean()


class InputAlone(Net):
    """There is no backward node at all."""

    def construct(self, x):
        return (x * self.w).sum() + self.v.sum() + 2.0 * self.s


class Constants(Net):
    def construct(self, x):
        return x.sum() + self.w.sum() + self.v.sum() + 2.0 * self.s


NETWORKS = [
    ForwardValue,
    AnInput,
    AWeight,
    OwnBackward,
    OwnBackwardOfAnInput,
    TheWeight,
    StepSize,
    InputAlone,
    Constants,
]


class WithoutInputs(Net):
    """It holds its data itself."""

    def __init__(self) -> None:
        super().__init__()
        self.x = Tensor(batches()[0])

    def construct(self):
        return (ops.tanh(self.x * self.v * self.s) * self.w).sum()


def cell(network: type[Net]) -> Any:
    net = network()
    return nn.TrainOneStepCell(net, nn.Momentum(net.trainable_params(), 0.1, 0.9)).set_train()


def batches() -> list[np.ndarray]:
    rng = np.random.default_rng(3)
    return [rng.normal(0, 1, (4, 3)).astype(np.float32) for _ in range(2)]


def natively(network: type[Net], given: list[np.ndarray]) -> Arrays:
    trained = cell(network)
    for x in given:
        trained(Tensor(x))
    return {p.name: p.asnumpy().astype(np.float64) for p in trained.get_parameters()}


def session(network: type[Net], passes: str) -> bc.Session:
    return bc.Session(bc.compile(bc.capture(cell(network), batches()[0]), passes), share=False)


SCALED = ",loss-scale?,overflow-check,clip-gradients{limit=1e6}"


@pytest.mark.parametrize(
    ("network", "more"),
    [*((n, "") for n in NETWORKS), (ForwardValue, SCALED), (TheWeight, SCALED), (InputAlone, SCALED)],
)
def test_what_is_handed_is_averaged(network: type[Net], more: str) -> None:
    """One update from the same state is affine in the gradient: from the mean it leads to the mean of both."""
    first, second = (natively(network, [x]) for x in batches())
    run = session(network, "gradient-accumulation{steps=2}" + more)
    for x in batches():
        run.step(x)
    for key in ("v", "w", "s", "moments.v", "moments.w", "moments.s"):
        np.testing.assert_allclose(run.state()[key], (first[key] + second[key]) / 2, atol=2e-6, err_msg=key)


@pytest.mark.parametrize("network", NETWORKS)
def test_what_is_handed_is_measured_and_clipped(network: type[Net]) -> None:
    x = batches()[0]
    gradients = {key: value for key, value in natively(network, [x]).items() if key.startswith("moments.")}
    norm = np.sqrt(sum(np.square(g).sum() for g in gradients.values()))
    run = session(network, "clip-gradients{limit=0.125,report_norm=true}")
    np.testing.assert_allclose(float(run.step(x).outputs["gradient_norm"]), norm, rtol=1e-5)
    for key, g in gradients.items():
        np.testing.assert_allclose(run.state()[key], g * min(1, 0.125 / norm), atol=1e-6, err_msg=key)


@pytest.mark.parametrize(
    ("passes", "runs"),
    [
        ("overflow-check,clip-gradients{limit=1e6}", 1),
        ("loss-scale,recompute?", 1),
        ('replace-optimizer{to="momentum{lr=0.1,momentum=0.9}"}', 1),
        ("gradient-accumulation{steps=2},loss-scale,overflow-check{policy=skip-micro}", 2),
        ("gradient-accumulation{steps=2,split=fused},overflow-check{policy=skip-micro}", 2),
    ],
)
def test_a_cell_without_inputs(passes: str, runs: int) -> None:
    trained = cell(WithoutInputs)
    run = bc.Session(bc.compile(bc.capture(cell(WithoutInputs)), passes), share=False)
    assert run.cycle_length == runs
    for _ in range(3):
        trained()
        for _ in range(runs):
            run.step()
    for p in trained.get_parameters():
        np.testing.assert_allclose(run.state()[p.name], p.asnumpy(), atol=2e-6, err_msg=p.name)


class Cases(nn.Cell):
    """It takes another gradient in each case."""

    def __init__(self) -> None:
        super().__init__()
        self.network = ForwardValue()
        self.optimizer = nn.Momentum(self.network.trainable_params(), 0.1, 0.9)
        self.grad = ops.value_and_grad(self.network, None, self.optimizer.parameters)

    def construct(self, x):
        if x.sum() > 0:
            loss, gradients = self.grad(x)
        else:
            loss, gradients = self.grad(x * -0.5)
        self.optimizer(gradients)
        return loss


@pytest.mark.parametrize("more", ["", ",loss-scale,overflow-check,clip-gradients{limit=1e6}"], ids=["", "scaled"])
def test_gradients_of_branches_are_averaged(more: str) -> None:
    first, second = batches()
    assert first.sum() * second.sum() < 0
    ends = []
    for x in (first, second):
        trained = Cases().set_train()
        trained(Tensor(x))
        ends.append({p.name: p.asnumpy().astype(np.float64) for p in trained.get_parameters()})
    passes = "gradient-accumulation{steps=2}" + more
    run = bc.Session(bc.compile(bc.capture(Cases().set_train(), first), passes), share=False)
    for x in (first, second):
        run.step(x)
    for key in (k for k in ends[0] if k.rpartition(".")[2] in "vws"):
        np.testing.assert_allclose(run.state()[key], (ends[0][key] + ends[1][key]) / 2, atol=2e-6, err_msg=key)


class ByHand(nn.Cell):
    """Plain descent in the training cell itself: w moves by a forward value, as a statistic does."""

    def __init__(self) -> None:
        super().__init__()
        rng = np.random.default_rng(7)
        self.v = Parameter(rng.normal(0, 1, 3).astype(np.float32), name="v")
        self.w = Parameter(rng.normal(0, 1, (4, 3)).astype(np.float32), name="w")
        self.grad = ops.value_and_grad(self.loss, None, ms.ParameterTuple([self.v, self.w]))

    def loss(self, x):
        return (ops.tanh(x * self.v) * self.w).sum()

    def construct(self, x):
        loss, (v, w) = self.grad(x)
        ops.assign_sub(self.v, 0.1 * v)
        ops.assign_sub(self.w, 0.1 * w)
        return loss


def test_what_descends_by_a_forward_value_is_no_statistic() -> None:
    program = bc.capture(ByHand().set_train(), batches()[0])
    with pytest.raises(bc.Error, match=r"the update of 'w' .* depends on the batch by"):
        bc.compile(program, "gradient-accumulation{steps=2}")


@pytest.mark.parametrize("network", [ForwardValue, InputAlone])
def test_what_is_handed_is_compared(network: type[Net]) -> None:
    program = bc.capture(cell(network), batches()[0])
    report = bc.verify(program, bc.compile(program, "gradient-accumulation{steps=2}"))
    assert "Verified: " in str(report)
