"""Networks and training cells that compute in place, each beside a twin that computes the same with new values."""

from __future__ import annotations

import mindspore as ms
from mindspore import nn, ops

HALF = ms.Tensor(0.5, ms.float32)


class Network(nn.Cell):
    def __init__(self):
        super().__init__()
        self.first = nn.Dense(6, 6)
        self.last = nn.Dense(6, 6)

    def construct(self, x, y):
        return ((self.last(self.between(self.first(x), x)) - y) ** 2).mean()

    def between(self, h, x):
        return ops.tanh(h)


class InPlace(Network):
    """Every in-place operation that MindSpore runs on a CPU; the mask starts from a constant of the exported file."""

    def between(self, h, x):
        mask = ops.ones_like(x)
        mask *= x > -0.5
        steps = x * 3.0
        steps //= 2.0
        steps %= 3.0
        kept = ops.zeros_like(x)
        kept.copy_(h)
        square = h * h
        h *= x
        h += steps
        h -= ops.sin(x)
        h /= 2 + x * x
        h *= 0.5
        h += 1.0
        h -= 0.25
        h /= 3.0
        if x.sum() > 0:
            h *= mask
        return h * mask + square + kept


class WithValues(Network):
    def between(self, h, x):
        mask = ops.ones_like(x) * (x > -0.5)
        steps = ((x * 3.0) // 2.0) % 3.0
        kept = h * 1.0
        square = h * h
        h = ((h * x + steps - ops.sin(x)) / (2 + x * x) * 0.5 + 1.0 - 0.25) / 3.0
        if x.sum() > 0:
            h = h * mask
        return h * mask + square + kept


class UpdatesInPlace(nn.TrainOneStepCell):
    """Unscales, clips by a norm of its own, and decays, all in place; so is what it reports."""

    def construct(self, x, y):
        loss = self.network(x, y)
        gradients = self.grad(self.network, self.weights)(x, y, ops.ones_like(loss) * 8.0)
        norm = ops.zeros((), ms.float32)
        unscaled = ()
        for g in gradients:
            g /= 8.0
            norm += ops.sum(g * g)
            unscaled += (g,)
        ready = ()
        for i, g in enumerate(unscaled):
            g *= ops.where(norm > 0.01, HALF, HALF + HALF)
            g += self.weights[i] * 0.125
            ready += (g,)
        return ops.depend(loss, self.optimizer(ready))


class UpdatesWithValues(nn.TrainOneStepCell):
    def construct(self, x, y):
        loss = self.network(x, y)
        gradients = self.grad(self.network, self.weights)(x, y, ops.ones_like(loss) * 8.0)
        norm = ops.zeros((), ms.float32)
        unscaled = ()
        for g in gradients:
            g = g / 8.0
            norm = norm + ops.sum(g * g)
            unscaled += (g,)
        ready = ()
        for i, g in enumerate(unscaled):
            g = g * ops.where(norm > 0.01, HALF, HALF + HALF)
            g = g + self.weights[i] * 0.125
            ready += (g,)
        return ops.depend(loss, self.optimizer(ready))


class ClipsInPlace(nn.TrainOneStepCell):
    """As ``clip_grad_norm_``, in a loop over the tuple: nobody takes the results of the in-place operations. ``when``:
    only behind an ``if``."""

    def __init__(self, network, optimizer, when=False):
        super().__init__(network, optimizer)
        self.when = when

    def construct(self, x, y):
        loss = self.network(x, y)
        gradients = self.grad(self.network, self.weights)(x, y, ops.ones_like(loss))
        total = ops.zeros((), ms.float32)
        for g in gradients:
            total = total + (g * g).sum()
        factor = ops.minimum(0.1 / (ops.sqrt(total) + 1e-6), ops.ones_like(total))
        if self.when:
            if loss > 0.01:
                for g in gradients:
                    g.mul_(factor)
        else:
            for g in gradients:
                g.mul_(factor)
                g.add_(0.125)
            gradients[0].copy_(gradients[0] * 0.5)
        return ops.depend(loss, self.optimizer(gradients))


class ClipsBehindIf(ClipsInPlace):
    def __init__(self, network, optimizer):
        super().__init__(network, optimizer, True)
