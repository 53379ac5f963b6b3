"""Scripts as users write them. Each trains on the micro-batches of :mod:`steps`, or on the same samples in batches of a
whole window, ``big``, and returns its Parameters by name."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import mindspore as ms
import mindspore.dataset as ds
import numpy as np
from mindspore import Tensor, amp, mint, nn, ops, train
from mindspore.experimental import optim

from tests.runtime.in_compiler import steps
from tests.runtime.in_compiler.steps import values

WINDOW = 4
Values = dict[str, np.ndarray]


def dataset(big: bool) -> ds.Dataset:
    data = {"x": steps.X.reshape(-1, 4), "y": steps.Y.reshape(-1)}
    return ds.NumpySlicesDataset(data, shuffle=False).batch(steps.MICRO * (WINDOW if big else 1))


def batches(big: bool) -> list[tuple[Tensor, Tensor]]:
    return steps.big_batches() if big else steps.micro_batches()


def cross_entropy_of(net: nn.Cell) -> Callable[..., Any]:
    def forward(x, y):
        return ops.cross_entropy(net(x), y)

    return forward


def function_step(loss_of: Callable[..., Any], weights: Any, optimizer: Any) -> Callable[..., Any]:
    gradients_of = ms.value_and_grad(loss_of, None, weights)

    @ms.jit
    def step(*data):
        loss, gradients = gradients_of(*data)
        optimizer(gradients)
        return loss

    return step


class Losses(train.Callback):
    def __init__(self) -> None:
        self.seen: list[float] = []

    def on_train_step_end(self, run_context: Any) -> None:
        self.seen.append(float(run_context.original_args().net_outputs.asnumpy()))


def model_with_callbacks(big: bool) -> Values:
    """A rate that decays by the count of updates, LossMonitor, checkpoints, a callback of the user's own."""
    net, losses = steps.network(), Losses()
    rate = nn.cosine_decay_lr(0.01, 0.1, 4, 2, 2)
    optimizer = nn.Momentum(net.trainable_params(), rate, 0.9)
    model = train.Model(net, steps.loss_function(), optimizer, metrics={"accuracy"})
    with tempfile.TemporaryDirectory() as folder:
        config = train.CheckpointConfig(save_checkpoint_steps=2, keep_checkpoint_max=2)
        saving = train.ModelCheckpoint("net", folder, config)
        model.train(2, dataset(big), callbacks=[train.LossMonitor(2), losses, saving], dataset_sink_mode=False)
        assert list(Path(folder).glob("*.ckpt"))
    assert len(losses.seen) == (4 if big else 16)
    return values(net)


def fit_with_evaluation(big: bool) -> Values:
    net = steps.network()
    optimizer = nn.Adam(net.trainable_params(), 0.01)
    model = train.Model(net, steps.loss_function(), optimizer, metrics={"accuracy", "loss"})
    stopping = train.EarlyStopping(monitor="loss", patience=5)
    sinks = {"dataset_sink_mode": False, "valid_dataset_sink_mode": False}
    model.fit(3, dataset(big), dataset(True), callbacks=[stopping, train.LossMonitor()], **sinks)
    return values(net)


def quickstart(big: bool) -> Values:
    """The loops of MindSpore's quickstart."""
    ms.set_context(mode=ms.PYNATIVE_MODE)
    net, loss_function = steps.network(), nn.CrossEntropyLoss()
    optimizer = nn.SGD(net.trainable_params(), 0.1)

    def forward(data, label):
        logits = net(data)
        return loss_function(logits, label), logits

    gradients_of = ms.value_and_grad(forward, None, optimizer.parameters, has_aux=True)

    @ms.jit
    def train_step(data, label):
        (loss, _), gradients = gradients_of(data, label)
        optimizer(gradients)
        return loss

    for _ in range(2):
        net.set_train()
        for data, label in dataset(big).create_tuple_iterator():
            train_step(data, label)
        net.set_train(False)
        right = [(net(data).argmax(1) == label).asnumpy() for data, label in dataset(big).create_tuple_iterator()]
        assert 0 <= np.concatenate(right).mean() <= 1
    return values(net)


class Clipping(nn.Cell):
    """A Cell with @ms.jit on construct that clips its gradients itself."""

    def __init__(self, net: nn.Cell, optimizer: nn.Cell):
        super().__init__(auto_prefix=False)
        self.net, self.optimizer, self.loss = net, optimizer, nn.CrossEntropyLoss()
        self.gradients_of = ms.value_and_grad(self.forward, None, optimizer.parameters)

    def forward(self, x, y):
        return self.loss(self.net(x), y)

    @ms.jit
    def construct(self, x, y):
        loss, gradients = self.gradients_of(x, y)
        self.optimizer(ops.clip_by_global_norm(gradients, 0.1))
        return loss


def cell_with_jit(big: bool) -> Values:
    ms.set_context(mode=ms.PYNATIVE_MODE)
    net = steps.network()
    return run(Clipping(net, nn.AdamWeightDecay(net.trainable_params(), 0.01)), big, net)


def run(step: Callable[..., Any], big: bool, *nets: nn.Cell) -> Values:
    for data in batches(big):
        step(*data)
    return {name: value for net in nets for name, value in values(net).items()}


def two_models(big: bool) -> Values:
    one, two = steps.network("one."), steps.network("two.")
    first = steps.cell_step(one, steps.momentum(one.trainable_params()))
    second = steps.cell_step(two, nn.Adam(two.trainable_params(), 0.01))
    return run(lambda x, y: (first(x, y), second(x, y)), big, one, two)


def rate_that_is_set(big: bool) -> Values:
    net = steps.network()
    optimizer = steps.momentum(net.trainable_params())
    step = steps.cell_step(net, optimizer)
    for at, data in enumerate(batches(big)):
        step(*data)
        if at == (0 if big else WINDOW - 1):
            optimizer.learning_rate.set_data(Tensor(0.01, ms.float32))
    return values(net)


def mint_optimizer(big: bool) -> Values:
    ms.set_context(mode=ms.PYNATIVE_MODE)
    net = steps.network()
    weights = net.trainable_params()
    optimizer = mint.optim.SGD(weights, lr=0.1, momentum=0.9)
    return run(function_step(cross_entropy_of(net), weights, optimizer), big, net)


def experimental_optimizer_with_scheduler(big: bool) -> Values:
    ms.set_context(mode=ms.PYNATIVE_MODE)
    net = steps.network()
    optimizer = optim.Adam(net.trainable_params(), lr=0.1)
    scheduler = optim.lr_scheduler.StepLR(optimizer, step_size=1, gamma=0.5)
    step = function_step(cross_entropy_of(net), net.trainable_params(), optimizer)
    for at, data in enumerate(batches(big)):
        step(*data)
        if big or at % WINDOW == WINDOW - 1:
            scheduler.step()
    return values(net)


def scaled_loss(big: bool) -> Values:
    """Mixed precision's way around an optimizer: scaled, unscaled, tested."""
    ms.set_context(mode=ms.PYNATIVE_MODE)
    net, scaler = steps.network(), amp.StaticLossScaler(1024)
    optimizer = steps.momentum(net.trainable_params())

    def forward(x, y):
        return scaler.scale(ops.cross_entropy(net(x), y))

    gradients_of = ms.value_and_grad(forward, None, optimizer.parameters)

    @ms.jit
    def step(x, y):
        loss, gradients = gradients_of(x, y)
        gradients = scaler.unscale(gradients)
        if amp.all_finite(gradients):
            optimizer(gradients)
        return scaler.unscale(loss)

    return run(step, big, net)


class Averaging(nn.Cell):
    """Keeps a moving average of the weights, in the step."""

    def __init__(self, net: nn.Cell, optimizer: nn.Cell):
        super().__init__(auto_prefix=False)
        self.network, self.optimizer = nn.WithLossCell(net, steps.loss_function()), optimizer
        self.weights = optimizer.parameters
        self.average = self.weights.clone(prefix="average", init="same")
        self.gradients_of = ops.GradOperation(get_by_list=True)

    def construct(self, x, y):
        loss = self.network(x, y)
        loss = ops.depend(loss, self.optimizer(self.gradients_of(self.network, self.weights)(x, y)))
        for i in range(len(self.average)):
            ops.assign(self.average[i], self.average[i] * 0.9 + self.weights[i] * 0.1)
        return loss


def moving_average(big: bool) -> Values:
    net = steps.network()
    step = Averaging(net, steps.momentum(net.trainable_params())).set_train()
    return run(step, big, step)


def adversaries(big: bool) -> Values:
    """A generator and a discriminator, each with a step of its own, a window of one after a window of the other."""
    ms.set_context(mode=ms.PYNATIVE_MODE)
    ms.set_seed(2)
    generator = nn.SequentialCell(nn.Dense(3, 8), nn.ReLU(), nn.Dense(8, 4))
    judge = nn.SequentialCell(nn.Dense(4, 8), nn.LeakyReLU(0.2), nn.Dense(8, 1))
    generator.update_parameters_name("generator.")
    judge.update_parameters_name("judge.")
    tell = nn.BCEWithLogitsLoss()

    def judging(x, noise):
        real, false = judge(x), judge(generator(noise))
        return tell(real, ops.ones_like(real)) + tell(false, ops.zeros_like(false))

    def making(noise):
        made = judge(generator(noise))
        return tell(made, ops.ones_like(made))

    nets = (judge, generator)
    judges, makes = (
        function_step(loss, net.trainable_params(), nn.Adam(net.trainable_params(), 0.01))
        for net, loss in zip(nets, (judging, making), strict=True)
    )
    noise = np.random.default_rng(0).standard_normal((*steps.X.shape[:2], 3)).astype(np.float32)

    def parts(of: np.ndarray, at: int) -> Iterable[Tensor]:
        window = of[at : at + WINDOW]
        return [Tensor(window.reshape(-1, of.shape[-1]))] if big else map(Tensor, window)

    for at in range(0, len(steps.X), WINDOW):
        for data in zip(parts(steps.X, at), parts(noise, at), strict=True):
            judges(*data)
        for data in parts(noise, at):
            makes(data)
    return values(judge) | values(generator)


SCRIPTS: dict[str, tuple[Callable[[bool], Values], int]] = {
    made.__name__: (made, trained)
    for made, trained in (
        (model_with_callbacks, 1), (fit_with_evaluation, 1), (quickstart, 1), (cell_with_jit, 1), (two_models, 2),
        (rate_that_is_set, 1), (mint_optimizer, 1), (experimental_optimizer_with_scheduler, 1), (scaled_loss, 1),
        (moving_average, 1), (adversaries, 2),
    )
}  # fmt: skip
"""Each script, and how many steps it trains. Two more stand beside: two ranks (test_doors.py), and a training that is
resumed in the middle of a window (test_state.py)."""
