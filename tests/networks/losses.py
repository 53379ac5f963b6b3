"""One small network under many losses: where the derivative of the loss enters the backward part differs in each."""

from __future__ import annotations

import numpy as np
from mindspore import nn, ops

from .case import Batch, Case
from .mlp import MLP, momentum

VOCABULARY, LENGTH, WIDTH = 16, 6, 8


class TokenLoss(nn.Cell):
    """Cross entropy of every token, averaged over the tokens that the mask keeps."""

    def __init__(self) -> None:
        super().__init__()
        self.tokens = nn.Embedding(VOCABULARY, WIDTH)
        self.hidden = nn.Dense(WIDTH, WIDTH)
        self.head = nn.Dense(WIDTH, VOCABULARY)

    def construct(self, tokens, targets, mask):
        logits = self.head(ops.tanh(self.hidden(self.tokens(tokens)))).reshape(-1, VOCABULARY)
        losses = ops.cross_entropy(logits, targets.reshape(-1), reduction="none")
        kept = mask.reshape(-1)
        return (losses * kept).sum() / kept.sum()


class Probabilities(nn.Cell):
    """Binary cross entropy on the output of a sigmoid."""

    def __init__(self) -> None:
        super().__init__()
        self.network = MLP()
        self.loss = nn.BCELoss(reduction="mean")

    def construct(self, x, targets):
        return self.loss(ops.sigmoid(self.network(x)), targets)


class Logits(nn.Cell):
    """Binary cross entropy that contains the sigmoid."""

    def __init__(self) -> None:
        super().__init__()
        self.network = MLP()
        self.loss = nn.BCEWithLogitsLoss(reduction="mean")

    def construct(self, x, targets):
        return self.loss(self.network(x), targets)


def inputs(rng: np.random.Generator, size: int) -> np.ndarray:
    return rng.standard_normal((size, 8)).astype(np.float32)


def regression(rng: np.random.Generator, size: int) -> Batch:
    return inputs(rng, size), rng.standard_normal((size, 4)).astype(np.float32)


def labels(rng: np.random.Generator, size: int) -> Batch:
    return inputs(rng, size), rng.integers(0, 2, (size, 4)).astype(np.float32)


def masked_tokens(rng: np.random.Generator, size: int) -> Batch:
    """Sequences of different lengths, none of them empty; the mask is 0 behind the end."""
    tokens = rng.integers(0, VOCABULARY, (size, LENGTH + 1)).astype(np.int32)
    lengths = rng.integers(1, LENGTH + 1, size)
    mask = (np.arange(LENGTH) < lengths[:, None]).astype(np.float32)
    return tokens[:, :-1].copy(), tokens[:, 1:].copy(), mask


_TAGS = frozenset({"loss"})
CASES = [
    Case("regression_mse", MLP, momentum, regression, nn.MSELoss, tags=_TAGS),
    Case("token_cross_entropy_masked", TokenLoss, momentum, masked_tokens, tags=_TAGS),
    Case("binary_cross_entropy", Probabilities, momentum, labels, tags=_TAGS),
    Case("binary_cross_entropy_logits", Logits, momentum, labels, tags=_TAGS),
]
