"""Networks for the passes around the optimizer: weight decay, plain SGD, mixed precision, weighted losses."""

from __future__ import annotations

import mindspore as ms
import numpy as np
from mindspore import nn

from .case import Batch, Case
from .lenet import LeNetBatchNorm, digits
from .losses import TokenLoss, masked_tokens
from .mlp import MLP, classes, cross_entropy, momentum
from .transformer import gpt_tied, gpt_untied, text
from .vision import GroupedConvolutions, images


class CountTokens(nn.Cell):
    """Returns the loss and the number of tokens that it is the mean of."""

    def __init__(self, network: nn.Cell, optimizer: nn.Cell) -> None:
        super().__init__(auto_prefix=False)
        self.network = network
        self.optimizer = optimizer
        self.gradients = ms.value_and_grad(self.forward, None, optimizer.parameters, has_aux=True)

    def forward(self, tokens, targets, mask):
        return self.network(tokens, targets, mask), mask.sum()

    def construct(self, tokens, targets, mask):
        (loss, count), gradients = self.gradients(tokens, targets, mask)
        self.optimizer(gradients)
        return loss, count


class SampleWeights(nn.Cell):
    """A mean over samples that counts each as often as an input says."""

    def __init__(self) -> None:
        super().__init__()
        self.network = MLP()
        self.loss = nn.SoftmaxCrossEntropyWithLogits(sparse=True)

    def construct(self, x, labels, importance):
        return (self.loss(self.network(x), labels) * importance).sum() / importance.sum()


def momentum_decay(parameters: list[ms.Parameter]) -> nn.Cell:
    return nn.Momentum(parameters, 0.05, 0.9, weight_decay=0.02)


def adam(parameters: list[ms.Parameter]) -> nn.Cell:
    return nn.Adam(parameters, 0.01, weight_decay=0.02)


def sgd(parameters: list[ms.Parameter]) -> nn.Cell:
    return nn.SGD(parameters, 0.1)


def mixed_mlp() -> nn.Cell:
    """Level O2: layers compute in float16, weights and the result stay float32."""
    return ms.amp.auto_mixed_precision(MLP(), "O2")


def mixed_lenet() -> nn.Cell:
    return ms.amp.auto_mixed_precision(LeNetBatchNorm(), "O2")


def weighted_classes(rng: np.random.Generator, size: int) -> Batch:
    x, labels = classes(rng, size)
    return x, labels, rng.uniform(0.1, 3.0, size).astype(np.float32)


_CONV = frozenset({"batchnorm", "conv"})
_HALF = frozenset({"half"})
CASES = [
    Case("lenet_bn_decay", LeNetBatchNorm, momentum_decay, digits, cross_entropy, tags=_CONV),
    Case("grouped_conv_sgd", GroupedConvolutions, sgd, images, cross_entropy, tags=_CONV),
    Case("gpt_sgd", gpt_untied, sgd, text, tags=frozenset({"transformer"})),
    Case("gpt_tied_sgd", gpt_tied, sgd, text, tags=frozenset({"transformer", "tied"})),
    Case("mlp_mixed", mixed_mlp, momentum, classes, cross_entropy, tags=_HALF),
    Case("mlp_mixed_adam", mixed_mlp, adam, classes, cross_entropy, tags=_HALF),
    Case("lenet_mixed", mixed_lenet, momentum, digits, cross_entropy, tags=_HALF | _CONV),
    Case("token_count", TokenLoss, momentum, masked_tokens, wrap=CountTokens),
    Case("sample_weights_adam", SampleWeights, adam, weighted_classes),
]
