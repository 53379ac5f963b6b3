"""replace-optimizer where the training cell does something with gradients, or trains besides its optimizer: another
optimizer is handed what the file's was. Judged by MindSpore, with that optimizer in the cell."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import mindspore as ms
import numpy as np
import pytest
from mindspore import Parameter, nn, ops

import boost_compile as bc


class Net(nn.Cell):
    def __init__(self) -> None:
        super().__init__()
        rng = np.random.default_rng(0)
        self.first = nn.Dense(6, 5, ms.Tensor(rng.normal(0, 0.4, (5, 6)).astype("float32")), "zeros")
        self.last = nn.Dense(5, 3, ms.Tensor(rng.normal(0, 0.4, (3, 5)).astype("float32")), "zeros")

    def construct(self, x: Any, y: Any) -> Any:
        return ((self.last(ops.tanh(self.first(x))) - y) ** 2).mean()


class Cell(nn.Cell):
    def __init__(self, make: Callable[[Any], Any]) -> None:
        super().__init__(auto_prefix=False)
        self.net = Net()
        self.optimizer = make(self.net.trainable_params())
        self.turn = Parameter(ms.Tensor(np.float32(0.25)), name="turn", requires_grad=False)
        self.gradients = ms.value_and_grad(self.net, None, self.optimizer.parameters)

    def construct(self, x: Any, y: Any) -> Any:
        loss, g = self.gradients(x, y)
        return ops.depend(loss, self.optimizer(self.changed(g)))

    def changed(self, g: Any) -> Any:
        return g


class Signs(Cell):
    def changed(self, g: Any) -> Any:
        return ops.sign(g[0]), g[1] + 0.1, g[2] - g[2].mean(1, True), g[3] * ops.abs(self.optimizer.parameters[3])


class InPlace(Cell):
    """In place, and for the native reference not: MindSpore's compiler may drop what nobody takes the result of."""

    def changed(self, g: Any) -> Any:
        halves = ()
        for v in g:
            half = v * 1.0
            if isinstance(self.optimizer, nn.SGD):
                half = 0.5 * half + 0.01
            else:
                half.mul_(0.5)
                half.add_(0.01)
            halves = (*halves, half)
        return halves


class Masked(Cell):
    """By a state that the cell moves."""

    def changed(self, g: Any) -> Any:
        turn = self.turn * 1.0
        ops.assign(self.turn, 1 - turn)
        return g[0] * turn, g[1], g[2] * (1 - turn), g[3]


class Lasts(Cell):
    """The first layer trains by the last step's gradient."""

    def __init__(self, make: Callable[[Any], Any]) -> None:
        super().__init__(make)
        self.old = Parameter(ms.Tensor(np.zeros((5, 6), "float32")), name="old", requires_grad=False)

    def construct(self, x: Any, y: Any) -> Any:
        loss, g = self.gradients(x, y)
        last = self.old * 1.0
        loss = ops.depend(loss, self.optimizer((last, *g[1:])))
        ops.assign(self.old, ops.depend(g[0], last))
        return loss


class Sharp(Cell):
    """Takes its gradients where the loss is higher (SAM), and goes back."""

    def construct(self, x: Any, y: Any) -> Any:
        loss, g = self.gradients(x, y)
        for i in range(4):
            loss = ops.depend(loss, ops.assign_add(self.optimizer.parameters[i], 0.01 * g[i]))
        x = ops.depend(x, loss)
        far, h = self.gradients(x, y)
        for i in range(4):
            far = ops.depend(far, ops.assign_sub(self.optimizer.parameters[i], ops.depend(0.01 * g[i], h)))
        return ops.depend(loss, self.optimizer(ops.depend(h, far)))


class Climbing(Cell):
    """A perturbation of the inputs climbs by hand."""

    def __init__(self, make: Callable[[Any], Any]) -> None:
        super().__init__(make)
        self.delta = Parameter(ms.Tensor(np.full((4, 6), 0.01, "float32")), name="delta")
        self.both = ms.value_and_grad(self.moved, None, ms.ParameterTuple([*self.optimizer.parameters, self.delta]))

    def moved(self, x: Any, y: Any) -> Any:
        return self.net(x + self.delta, y)

    def construct(self, x: Any, y: Any) -> Any:
        loss, g = self.both(x, y)
        loss = ops.depend(loss, self.optimizer(g[:4]))
        ops.assign_add(self.delta, 0.1 * ops.sign(g[4]))
        return loss


class InTurns(nn.Cell):
    """The second layer is trained where the first has been."""

    def __init__(self, make: Callable[[Any], Any]) -> None:
        super().__init__(auto_prefix=False)
        self.net = Net()
        weights = self.net.trainable_params()
        self.one, self.two = make(weights[:2]), make(weights[2:])
        for p in self.two.get_parameters():
            p.name = p.name if "last" in p.name else f"two.{p.name}"
        self.first = ms.value_and_grad(self.net, None, self.one.parameters)
        self.second = ms.value_and_grad(self.net, None, self.two.parameters)

    def construct(self, x: Any, y: Any) -> Any:
        loss, g = self.first(x, y)
        loss = ops.depend(loss, self.one(g))
        x = ops.depend(x, loss)
        again, h = self.second(x, y)
        return ops.depend(loss + again, self.two(h))


class ClippedInTurns(InTurns):
    def construct(self, x: Any, y: Any) -> Any:
        loss, g = self.first(x, y)
        loss = ops.depend(loss, self.one(ops.clip_by_global_norm(g, 0.1)))
        x = ops.depend(x, loss)
        again, h = self.second(x, y)
        return ops.depend(loss + again, self.two(ops.clip_by_global_norm(h, 0.1)))


class ByHand(nn.Optimizer):
    def __init__(self, parameters: Any) -> None:
        super().__init__(0.1, parameters)
        self.mean = self.parameters.clone(prefix="mean", init="zeros")

    def construct(self, g: Any) -> bool:
        for i in range(len(self.parameters)):
            mean = 0.9 * self.mean[i] + 0.1 * g[i] + 0.01 * self.parameters[i]
            ops.assign(self.mean[i], mean)
            ops.assign_sub(self.parameters[i], 0.1 * mean)
        return True


class Dividing(ByHand):
    def construct(self, g: Any) -> bool:
        for i in range(len(self.parameters)):
            mean = 0.9 * self.mean[i] + g[i] / 24.0
            ops.assign(self.mean[i], mean)
            ops.assign_sub(self.parameters[i], 0.1 * mean)
        return True


class Scaled(Cell):
    """Its own optimizer divides by what the loss is multiplied by; others are handed the quotient."""

    def __init__(self, make: Callable[[Any], Any]) -> None:
        super().__init__(make)
        self.gradients = ms.value_and_grad(self.scaled, None, self.optimizer.parameters)

    def scaled(self, x: Any, y: Any) -> Any:
        return self.net(x, y) * 24.0

    def changed(self, g: Any) -> Any:
        return g if isinstance(self.optimizer, Dividing) else (g[0] / 24.0, g[1] / 24.0, g[2] / 24.0, g[3] / 24.0)


class Twice(Cell):
    def construct(self, x: Any, y: Any) -> Any:
        loss, g = self.gradients(x, y)
        loss = ops.depend(loss, self.optimizer(g))
        return ops.depend(loss, self.optimizer(ops.depend(g, loss)))


class WithoutOptimizer(Cell):
    def construct(self, x: Any, y: Any) -> Any:
        loss, g = self.gradients(x, y)
        for i in range(4):
            ops.assign_sub(self.optimizer.parameters[i], 0.1 * g[i])
        return loss


def batches() -> list[tuple[np.ndarray, np.ndarray]]:
    rng = np.random.default_rng(3)
    return [(rng.normal(0, 1, (4, 6)).astype("float32"), rng.normal(0, 1, (4, 3)).astype("float32")) for _ in range(3)]


def momentum(parameters: Any) -> Any:
    return nn.Momentum(parameters, 0.1, 0.9, weight_decay=0.01)


def replaced(cell: Any) -> bc.Program:
    return bc.compile(bc.capture(cell.set_train(), *batches()[0]), 'replace-optimizer{to="sgd{lr=0.05}"}')


@pytest.mark.parametrize(
    ("kind", "old"),
    [(Signs, momentum), (Signs, ByHand), (Masked, momentum), (Lasts, momentum), (Sharp, ByHand), (Climbing, momentum),
     (InTurns, momentum), (InPlace, lambda parameters: nn.Momentum(parameters, 0.1, 0.9)), (Scaled, Dividing)],
)  # fmt: skip
def test_another_optimizer_is_handed_what_the_old_one_was(kind: Any, old: Callable[[Any], Any]) -> None:
    native = kind(lambda parameters: nn.SGD(parameters, 0.05)).set_train()
    session = bc.Session(replaced(kind(old)), share=False)
    for batch in batches():
        native(*map(ms.Tensor, batch))
        session.step(*batch)
    ours = session.state()
    for p in native.get_parameters():
        if p.name in ours and "rate" not in p.name:
            np.testing.assert_allclose(ours[p.name], p.asnumpy(), rtol=0, atol=1e-6, err_msg=p.name)


def test_optimizers_that_take_turns_are_clipped_in_turns() -> None:
    """No norm of all gradients exists before the first update."""
    native = ClippedInTurns(momentum).set_train()
    source = bc.capture(InTurns(momentum).set_train(), *batches()[0])
    program = bc.compile(source, "clip-gradients{limit=0.1}")
    session = bc.Session(program, share=False)
    for batch in batches():
        native(*map(ms.Tensor, batch))
        session.step(*batch)
    ours = session.state()
    for p in native.get_parameters():
        np.testing.assert_allclose(ours[p.name], p.asnumpy(), rtol=0, atol=1e-6, err_msg=p.name)
    assert not bc.prove(source, program).proved
    with pytest.raises(bc.Error, match=r"in turns.*leave out report_norm"):
        bc.compile(source, "clip-gradients{report_norm=true}")


@pytest.mark.parametrize(
    ("kind", "said"),
    [
        (Twice, "is updated twice in a step"),
        (WithoutOptimizer, "has no optimizer: the training cell updates it by itself"),
    ],
)
def test_what_another_optimizer_would_not_know_is_refused(kind: Any, said: str) -> None:
    with pytest.raises(bc.Error, match=said):
        replaced(kind(momentum))
