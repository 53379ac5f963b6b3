"""Optimizers of one's own that take a gradient once, times something: none of that belongs to the training cell."""

from __future__ import annotations

from mindspore import Parameter, Tensor, nn, ops
from mindspore import dtype as mstype


class _Kept(nn.Optimizer):
    def __init__(self, parameters, rate=0.2):
        super().__init__(rate, parameters)
        self.kept = self.parameters.clone(prefix="kept", init="zeros")


class Average(_Kept):
    """Moves by an average of gradients."""

    def construct(self, gradients):
        rate = self.get_lr()
        for i in range(len(gradients)):
            kept = 0.9 * self.kept[i] + 0.1 * gradients[i]
            ops.assign(self.kept[i], kept)
            ops.assign_sub(self.parameters[i], rate * kept)
        return True


class Ahead(_Kept):
    """Nesterov's step on such an average: the product is taken twice."""

    def construct(self, gradients):
        rate = self.get_lr()
        for i in range(len(gradients)):
            kept = 0.9 * self.kept[i] + 0.1 * gradients[i]
            ops.assign(self.kept[i], kept)
            ops.assign_sub(self.parameters[i], rate * (0.9 * kept + 0.1 * gradients[i]))
        return True


class Dampened(_Kept):
    """With a weight decay in the gradient, and a dampening behind it."""

    def construct(self, gradients):
        rate = self.get_lr()
        for i in range(len(gradients)):
            kept = 0.9 * self.kept[i] + 0.5 * (gradients[i] + 0.01 * self.parameters[i])
            ops.assign(self.kept[i], kept)
            ops.assign_sub(self.parameters[i], rate * kept)
        return True


class Normalised(nn.Optimizer):
    """Steps of one length."""

    def __init__(self, parameters, rate=0.05):
        super().__init__(rate, parameters)

    def construct(self, gradients):
        rate = self.get_lr()
        norm = 0.0
        for gradient in gradients:
            norm = norm + (gradient * gradient).sum()
        norm = ops.sqrt(norm) + 1e-6
        for i in range(len(gradients)):
            ops.assign_sub(self.parameters[i], rate * gradients[i] / norm)
        return True


class Values(nn.Cell):
    """The loss of a network, and the gradients of its weights."""

    def __init__(self, network, weights):
        super().__init__(auto_prefix=False)
        self.values = ops.value_and_grad(network, None, weights)

    def construct(self, *inputs):
        return self.values(*inputs)


class Trusting(nn.Optimizer):
    """Steps in proportion to the length of the weight, as LARS makes them."""

    def __init__(self, parameters, rate=0.05):
        super().__init__(rate, parameters)

    def construct(self, gradients):
        rate = self.get_lr()
        for i in range(len(gradients)):
            length = ops.sqrt((self.parameters[i] * self.parameters[i]).sum()) + 0.01
            slope = ops.sqrt((gradients[i] * gradients[i]).sum()) + 1e-12
            ops.assign_sub(self.parameters[i], rate * (length / slope) * gradients[i])
        return True


class Bounded(nn.Optimizer):
    """Steps whose root mean square is bounded, as in Adafactor."""

    def __init__(self, parameters, rate=0.01):
        super().__init__(rate, parameters)

    def construct(self, gradients):
        rate = self.get_lr()
        for i in range(len(gradients)):
            step = 1e6 * gradients[i]
            step = step / ops.maximum(ops.sqrt((step * step).mean()), 1.0)
            ops.assign_sub(self.parameters[i], rate * step)
        return True


class Watching(nn.Cell):
    """Returns the length of a gradient, and keeps an average of it, before its optimizer gets them."""

    def __init__(self, network, optimizer):
        super().__init__(auto_prefix=False)
        self.network, self.optimizer = network, optimizer
        self.values = ops.value_and_grad(network, None, optimizer.parameters)
        self.running = Parameter(Tensor(0.0, mstype.float32), name="running", requires_grad=False)

    def construct(self, *inputs):
        loss, gradients = self.values(*inputs)
        length = ops.sqrt((gradients[0] * gradients[0]).sum())
        loss = ops.depend(loss, ops.assign(self.running, 0.5 * self.running + 0.5 * length))
        return ops.depend(loss, self.optimizer(gradients)), length
