"""Networks on which the passes around the optimizer are tried: weight decay, plain SGD, automatic mixed precision."""

from __future__ import annotations

import mindspore as ms
from mindspore import nn

from .case import Case
from .lenet import LeNetBatchNorm, digits
from .mlp import MLP, classes, cross_entropy, momentum
from .transformer import gpt_tied, gpt_untied, text
from .vision import GroupedConvolutions, images


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
]
