"""What a window of micro-batches does with all that is no plain gradient, against MindSpore: the same cell on the
concatenated batch, or on the micro-batches one by one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import mindspore as ms
import numpy as np
import pytest
from mindspore import Parameter, Tensor, nn, ops

import boost_compile as bc

STEPS, ROWS = 3, 4
Batch = tuple[np.ndarray, ...]


def own(value: Any, name: str, dtype: str = "float32") -> Parameter:
    return Parameter(Tensor(np.asarray(value, dtype)), name=name, requires_grad=False)


class Cell(nn.Cell):
    """A dense layer, its gradients, and an optimizer; subclasses say what else happens."""

    def __init__(self) -> None:
        super().__init__(auto_prefix=False)
        self.layer = nn.Dense(6, 3)
        for parameter in self.layer.get_parameters():
            rng = np.random.default_rng(parameter.size)
            parameter.set_data(Tensor(rng.normal(0, 0.4, parameter.shape).astype("float32")))
        self.optimizer = nn.Momentum(self.layer.trainable_params(), 0.1, 0.9)
        self.gradients = ms.value_and_grad(self.loss, None, self.optimizer.parameters)
        self.begin()

    def begin(self) -> None:
        """The states of its own."""

    def loss(self, x, y):
        return ((self.layer(x) - y) ** 2).mean()

    def construct(self, x, y):
        loss, gradients = self.gradients(x, y)
        return ops.depend(loss, self.optimizer(gradients))


class Weighted(Cell):
    """Gradients times a number of the batch."""

    def construct(self, x, y):
        loss, gradients = self.gradients(x, y)
        factor = y[0, 0]
        return ops.depend(loss, self.optimizer(tuple(g * factor for g in gradients)))


class Queue(Cell):
    """The loss reads a queue, into which the batch goes where a pointer stands."""

    def begin(self) -> None:
        self.queue = own(np.full((16, 6), 0.1), "queue")
        self.pointer = own(0, "pointer", "int32")

    def loss(self, x, y):
        return ((self.layer(x) - y) ** 2).mean() + (self.layer(ops.stop_gradient(self.queue)) ** 2).mean()

    def construct(self, x, y):
        loss, gradients = self.gradients(x, y)
        loss = ops.depend(loss, self.optimizer(gradients))
        rows = x.shape[0]
        ops.scatter_update(self.queue, ((self.pointer + ops.arange(rows)) % 16).astype(ms.int32), x)
        ops.assign(self.pointer, (self.pointer + rows) % 16)
        return loss


class KeyEncoder(Cell):
    """Weights that follow the trained ones, by a rate that a count decides, in front of the forward part."""

    def begin(self) -> None:
        self.slow, self.count = own(np.zeros((3, 6)), "slow"), own(0.0, "count")

    def loss(self, x, y):
        keys = ops.matmul(x, ops.stop_gradient(self.slow).T)
        return ((self.layer(x) - y) ** 2).mean() + ((self.layer(x) - keys) ** 2).mean() / self.count

    def construct(self, x, y):
        ops.assign_add(self.count, Tensor(1.0, ms.float32))
        ops.assign(self.slow, self.slow * 0.9 + self.layer.weight * 0.1)
        loss, gradients = self.gradients(x, y)
        return ops.depend(loss, self.optimizer(gradients))


class Normalised(Cell):
    """Inputs by a running mean, variance and count."""

    def begin(self) -> None:
        self.mean, self.variance, self.count = own(np.zeros(6), "mean"), own(np.ones(6), "variance"), own(0.01, "count")

    def construct(self, x, y):
        total = self.count + 4.0
        apart = x.mean(0) - self.mean
        spread = ((x - x.mean(0)) ** 2).mean(0) * 4.0
        variance = (self.variance * self.count + spread + apart * apart * self.count * 4.0 / total) / total
        mean = self.mean + apart * 4.0 / total
        ops.assign(self.mean, mean)
        ops.assign(self.variance, variance)
        ops.assign(self.count, total)
        loss, gradients = self.gradients((x - mean) / ops.sqrt(variance + 1e-8), y)
        return ops.depend(loss, self.optimizer(gradients))


class Covariance(Cell):
    """A statistic that nothing else takes."""

    def begin(self) -> None:
        self.covariance = own(np.eye(6), "covariance")

    def construct(self, x, y):
        loss, gradients = self.gradients(x, y)
        loss = ops.depend(loss, self.optimizer(gradients))
        ops.assign(self.covariance, 0.9 * self.covariance + 0.1 * ops.matmul(x.T, x))
        return loss


class Plateau(Cell):
    """A rate that the loss decides about."""

    def begin(self) -> None:
        self.best = own(1.0, "best")

    def construct(self, x, y):
        loss, gradients = self.gradients(x, y)
        loss = ops.depend(loss, self.optimizer(gradients))
        rate = self.optimizer.learning_rate
        ops.assign(rate, ops.select(loss > self.best, rate * 0.5, rate * 1.0))
        ops.assign(self.best, ops.minimum(self.best, loss))
        return loss


class Slowed(Plateau):
    """A factor of the gradients that the loss decides about."""

    def construct(self, x, y):
        loss, gradients = self.gradients(x, y)
        slower = ops.select(loss > self.best, self.best * 0.5, self.best * 1.0)
        ops.assign(self.best, slower)
        halves = ()
        for gradient in gradients:
            halves = (*halves, gradient * slower)
        return ops.depend(loss, self.optimizer(halves))


class Polyak(Cell):
    """A step by the loss over the square of the gradients."""

    def construct(self, x, y):
        loss, gradients = self.gradients(x, y)
        square = ops.zeros((), ms.float32)
        for gradient in gradients:
            square = square + (gradient * gradient).sum()
        for weight, gradient in zip(self.optimizer.parameters, gradients):  # noqa: B905 - MindSpore's parser
            ops.assign_sub(weight, loss / square * gradient)
        return loss


class Gated(Cell):
    """An update that happens where the loss is small, or finite."""

    def construct(self, x, y):
        loss, gradients = self.gradients(x, y)
        if loss < 100.0:
            self.optimizer(gradients)
        return loss


class Finite(Cell):
    def construct(self, x, y):
        loss, gradients = self.gradients(x, y)
        if ops.isfinite(loss):
            self.optimizer(gradients)
        return loss


def batches(n: int, seed: int = 0) -> list[Batch]:
    rng = np.random.default_rng(seed)
    shapes = ((ROWS, 6), (ROWS, 3))
    return [tuple(rng.normal(0, 1, shape).astype("float32") for shape in shapes) for _ in range(n)]


def joined(data: Sequence[Batch]) -> list[Batch]:
    windows = [data[i : i + STEPS] for i in range(0, len(data), STEPS)]
    return [tuple(np.concatenate(parts) for parts in zip(*window, strict=True)) for window in windows]


def native(make: Callable[[], nn.Cell], data: Sequence[Batch]) -> dict[str, np.ndarray]:
    cell = make().set_train()
    for batch in data:
        cell(*map(Tensor, batch))
    return {p.name: p.asnumpy() for p in cell.get_parameters()}


def ours(make: Callable[[], nn.Cell], data: Sequence[Batch], options: str = "") -> dict[str, np.ndarray]:
    program = bc.compile(bc.capture(make().set_train(), *data[0]), f"gradient-accumulation{{steps={STEPS}{options}}}")
    session = bc.Session(program, share=False)
    for batch in data:
        session.step(*batch)
    return session.state()


def compare(want: dict[str, np.ndarray], got: dict[str, np.ndarray], names: Sequence[str] = ()) -> None:
    for name in names or want.keys() & got.keys():
        np.testing.assert_allclose(got[name], want[name], rtol=1e-5, atol=1e-5, err_msg=name)


@pytest.mark.parametrize(
    ("make", "options"),
    [
        (Queue, ""), (Queue, ",split=fused"), (KeyEncoder, ""), (KeyEncoder, ",split=fused"), (Finite, ""),
        (Plateau, ",carry=mean"), (Plateau, ",carry=loss:mean,split=fused"), (Polyak, ",carry=[loss:mean]"),
        (Gated, ",carry=mean"), (Slowed, ",carry=mean"),
    ],
)  # fmt: skip
def test_the_state_after_windows_is_that_of_big_batches(make: type[Cell], options: str) -> None:
    data = batches(2 * STEPS)
    compare(native(make, joined(data)), ours(make, data, options))


@pytest.mark.parametrize(("make", "names"), [(Normalised, ["mean", "variance", "count"]), (Covariance, ["covariance"])])
@pytest.mark.parametrize("split", ["apply", "fused"])
def test_statistics_move_with_every_micro_batch(make: type[Cell], names: list[str], split: str) -> None:
    data = batches(2 * STEPS)
    compare(native(make, data), ours(make, data, f",split={split}"), names)


@pytest.mark.parametrize("split", ["apply", "fused"])
def test_a_factor_of_the_batch_is_applied_before_gradients_are_added(split: str) -> None:
    """The update by the mean of the products: one step of plain momentum from rest."""
    data = batches(STEPS)
    start = native(Weighted, [])
    steps = [{n: start[n] - v for n, v in native(Weighted, [batch]).items()} for batch in data]
    want = {n: start[n] - np.mean([s[n] for s in steps], axis=0) for n in ("weight", "bias")}
    compare(want, ours(Weighted, data, f",split={split}"), list(want))


@pytest.mark.parametrize(
    ("make", "states", "options"),
    [
        (Plateau, "'learning_rate', 'best'", ""), (Polyak, "'weight', 'bias'", ""), (Gated, "'weight'", ""),
        (Slowed, "'best'", ""),
        (Polyak, "takes gradients too", ",carry=each"), (Covariance, "no value of that name", ",carry=lost:mean"),
    ],
)  # fmt: skip
def test_what_the_update_takes_of_the_batch_besides_gradients_is_refused(
    make: type[Cell], states: str, options: str
) -> None:
    with pytest.raises(bc.Error, match=states):
        ours(make, batches(1), options)


def test_what_the_user_is_told() -> None:
    with pytest.raises(bc.Error, match=r"the value 'loss' of .*carry=loss:last"):
        ours(Gated, batches(1))


@pytest.mark.parametrize("make", [KeyEncoder, Queue])
def test_a_check_for_overflows_leaves_writes_in_front_of_the_forward_part(make: type[Cell]) -> None:
    data = batches(3)
    session = bc.Session(bc.compile(bc.capture(make().set_train(), *data[0]), "overflow-check"), share=False)
    for batch in data:
        session.step(*batch)
    compare(native(make, data), session.state())


@pytest.mark.parametrize(
    ("make", "reason"), [(Queue, "the network reads 'queue'"), (Weighted, "besides averaged grad")]
)
def test_what_the_verifier_cannot_compute_is_said(make: type[Cell], reason: str) -> None:
    data = batches(4)
    original = bc.capture(make().set_train(), *data[0])
    found = bc.verify(original, bc.compile(original, "gradient-accumulation{steps=2}"), data=data)
    results = {result.name: result for result in found.results}
    assert not found.verified
    assert not any(result.failed for result in found.results)
    assert reason in results["different micro-batches"].detail
