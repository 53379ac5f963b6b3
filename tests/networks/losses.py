"""One small network under many losses: where the derivative of the loss enters the backward part differs in each."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import mindspore as ms
import numpy as np
from mindspore import nn, ops

from .case import Batch, Case
from .mlp import MLP, classes, cross_entropy, momentum
from .structure import probabilities as labels
from .structure import targets as regression

VOCABULARY, LENGTH, WIDTH = 16, 6, 8
FRAMES, SYMBOLS = 5, 3


class Judged(nn.Cell):
    """The small network and a loss that is a function of its output and any number of targets."""

    def __init__(self, loss: Callable[..., Any]) -> None:
        super().__init__()
        self.network = MLP()
        self.loss = loss

    def construct(self, x, *targets):
        return self.loss(self.network(x), *targets)


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


class Penalized(nn.Cell):
    """A cross entropy and the squares of the weights, which are no part of the data's chain of derivatives."""

    def __init__(self) -> None:
        super().__init__()
        self.network = MLP()
        self.loss = nn.SoftmaxCrossEntropyWithLogits(sparse=True, reduction="mean")

    def construct(self, x, labels):
        hidden, output = self.network.hidden.weight, self.network.output.weight
        penalty = ops.square(hidden).sum() + ops.square(output).sum()
        return self.loss(self.network(x), labels) + 1e-2 * penalty


class TwoHeads(nn.Cell):
    """Two losses of different kinds on one trunk, added with weights."""

    def __init__(self) -> None:
        super().__init__()
        self.trunk = nn.Dense(8, 16)
        self.kind = nn.Dense(16, 4)
        self.place = nn.Dense(16, 4)
        self.kind_loss = nn.SoftmaxCrossEntropyWithLogits(sparse=True, reduction="mean")
        self.place_loss = nn.SmoothL1Loss(reduction="mean")

    def construct(self, x, labels, places):
        hidden = ops.relu(self.trunk(x))
        return self.kind_loss(self.kind(hidden), labels) + 0.5 * self.place_loss(self.place(hidden), places)


class Transcription(nn.Cell):
    """Connectionist temporal classification of short sequences."""

    def __init__(self) -> None:
        super().__init__()
        self.network = nn.Dense(8, SYMBOLS + 1)

    def construct(self, x, targets):
        log_probabilities = ops.log_softmax(self.network(x), -1).transpose(1, 0, 2)
        rows = x.shape[0]
        lengths, target_lengths = ops.full((rows,), FRAMES, dtype=ms.int32), ops.full((rows,), 2, dtype=ms.int32)
        return ops.ctc_loss(log_probabilities, targets, lengths, target_lengths)[0].sum()


class GradientPenalty(nn.Cell):
    """A loss that contains a gradient: the square of the derivative of the output by the input."""

    def __init__(self) -> None:
        super().__init__()
        self.hidden = nn.Dense(8, 16)
        self.output = nn.Dense(16, 1)
        self.slope = ops.grad(self.value)

    def value(self, x):
        return self.output(ops.tanh(self.hidden(x))).sum()

    def construct(self, x, targets):
        slope = self.slope(x)
        return ops.square(self.output(ops.tanh(self.hidden(x))) - targets).mean() + ops.square(slope).mean()


class ChosenLoss(nn.Cell):
    """The batch decides which loss it has: the derivative starts inside the functions of a branch."""

    def __init__(self) -> None:
        super().__init__()
        self.network = MLP()
        self.loss = nn.SoftmaxCrossEntropyWithLogits(sparse=True, reduction="mean")

    def construct(self, x, labels):
        output = self.network(x)
        if x.sum() > 0:
            loss = self.loss(output, labels)
        else:
            loss = ops.square(output).mean()
        return loss


class Recomputed(nn.Cell):
    """The backward part computes the first layers once more."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.SequentialCell(nn.Dense(8, 16), nn.Tanh(), nn.Dense(16, 8), nn.ReLU())
        self.first.recompute()
        self.output = nn.Dense(8, 4)

    def construct(self, x):
        return self.output(self.first(x))


class BranchInLoop(nn.Cell):
    """What runs round the loop beside the sum has no derivative but from the next round."""

    def __init__(self) -> None:
        super().__init__()
        self.hidden = nn.Dense(8, 8)
        self.output = nn.Dense(8, 4)
        self.one = ms.Tensor(1, ms.int32)

    def construct(self, x):
        count = ms.Tensor(0, ms.int32)
        total = x * 0.0
        while count < 3:
            x = ops.tanh(self.hidden(x))
            if x.sum() > 0:
                total = total + x
            else:
                total = total - x
            count = count + self.one
        return self.output(total)


class Damped(nn.Cell):
    """A backward of its own: linear, and not the derivative."""

    def construct(self, x):
        return x * 1.0

    def bprop(self, x, out, dout):
        return (dout * 0.5,)


class OwnBackward(nn.Cell):
    def __init__(self) -> None:
        super().__init__()
        self.hidden = nn.Dense(8, 16)
        self.damped = Damped()
        self.output = nn.Dense(16, 4)

    def construct(self, x):
        return self.output(self.damped(ops.tanh(self.hidden(x))))


class OwnLossBackward(nn.Cell):
    """A loss whose derivative autodiff did not compute, and did not mark."""

    def construct(self, output, targets):
        return ops.square(output - targets).mean()

    def bprop(self, output, targets, out, dout):
        return dout * (output - targets) * 0.1, ops.zeros_like(targets)


def nll(output, labels):
    return ops.nll_loss(ops.log_softmax(output, -1), labels)


def kl(output, targets):
    return ops.kl_div(ops.log_softmax(output, -1), ops.softmax(targets, -1), "batchmean")


def root_mean_square(output, targets):
    return ops.sqrt(ops.square(output - targets).mean())


def log_cosh(output, targets):
    return ops.log(ops.cosh(output - targets)).sum(-1).mean()


def hinge(output, targets):
    return ops.relu(1.0 - output * (2.0 * targets - 1.0)).mean()


def worst(output, targets):
    return ops.abs(output - targets).max()


def focal(output, targets):
    p = ops.sigmoid(output)
    right = p * targets + (1.0 - p) * (1.0 - targets)
    return (-ops.pow(1.0 - right, 2) * ops.log(right + 1e-6)).mean()


def poisson(output, targets):
    return (ops.exp(output) - targets * output).mean()


def contrastive(output, targets):
    output = output / ops.norm(output, dim=-1, keepdim=True)
    return nn.SoftmaxCrossEntropyWithLogits(sparse=True, reduction="mean")(
        ops.matmul(output, output.T) / 0.5, ops.arange(output.shape[0]).astype(ms.int32)
    )


def probability(output, targets):
    return nn.BCELoss(reduction="mean")(ops.sigmoid(output), targets)


def dense_labels(rng: np.random.Generator, size: int) -> Batch:
    x, labels = classes(rng, size)
    return x, np.eye(4, dtype=np.float32)[labels]


def pairs(rng: np.random.Generator, size: int) -> Batch:
    x, targets = regression(rng, size)
    return x, targets, (2 * rng.integers(0, 2, size) - 1).astype(np.int32)


def two_targets(rng: np.random.Generator, size: int) -> Batch:
    return *classes(rng, size), regression(rng, size)[1]


def one_target(rng: np.random.Generator, size: int) -> Batch:
    x, targets = regression(rng, size)
    return x, targets[:, :1].copy()


def masked_tokens(rng: np.random.Generator, size: int) -> Batch:
    """Sequences of different lengths, none of them empty; the mask is 0 behind the end."""
    tokens = rng.integers(0, VOCABULARY, (size, LENGTH + 1)).astype(np.int32)
    lengths = rng.integers(1, LENGTH + 1, size)
    mask = (np.arange(LENGTH) < lengths[:, None]).astype(np.float32)
    return tokens[:, :-1].copy(), tokens[:, 1:].copy(), mask


def transcripts(rng: np.random.Generator, size: int) -> Batch:
    x = rng.standard_normal((size, FRAMES, 8)).astype(np.float32)
    return x, rng.integers(1, SYMBOLS + 1, (size, 2)).astype(np.int32)


def judged(make: Callable[[], Any]) -> Callable[[], nn.Cell]:
    """A network under the loss that `make` returns."""
    return lambda: Judged(make())


LOSSES: dict[str, tuple[Callable[[], Any], Callable[[np.random.Generator, int], Batch]]] = {
    "binary_cross_entropy": (lambda: probability, labels),
    "binary_cross_entropy_logits": (lambda: nn.BCEWithLogitsLoss(reduction="mean"), labels),
    "cross_entropy_dense": (lambda: nn.SoftmaxCrossEntropyWithLogits(reduction="mean"), dense_labels),
    "cross_entropy_sum": (lambda: nn.SoftmaxCrossEntropyWithLogits(sparse=True, reduction="sum"), classes),
    "cross_entropy_rows": (lambda: nn.SoftmaxCrossEntropyWithLogits(sparse=True), classes),
    "cross_entropy_smoothed": (lambda: nn.CrossEntropyLoss(label_smoothing=0.1), classes),
    "mse_rows": (lambda: nn.MSELoss(reduction="none"), regression),
    "l1": (lambda: nn.L1Loss(), regression),
    "smooth_l1": (lambda: nn.SmoothL1Loss(reduction="mean"), regression),
    "huber": (lambda: nn.HuberLoss(), regression),
    "cosine_embedding": (lambda: nn.CosineEmbeddingLoss(margin=0.2), pairs),
    "nll": (lambda: nll, classes),
    "kl": (lambda: kl, regression),
    "root_mean_square": (lambda: root_mean_square, regression),
    "log_cosh": (lambda: log_cosh, regression),
    "hinge": (lambda: hinge, labels),
    "worst": (lambda: worst, regression),
    "focal": (lambda: focal, labels),
    "poisson": (lambda: poisson, labels),
    "contrastive": (lambda: contrastive, regression),
}

_TAGS = frozenset({"loss"})
CASES = [
    *(Case(name, judged(make), momentum, batch, tags=_TAGS) for name, (make, batch) in LOSSES.items()),
    Case("token_cross_entropy_masked", TokenLoss, momentum, masked_tokens, tags=_TAGS),
    Case("penalized", Penalized, momentum, classes, tags=_TAGS),
    Case("two_heads", TwoHeads, momentum, two_targets, tags=_TAGS),
    Case("transcription", Transcription, momentum, transcripts, tags=_TAGS),
    Case("loss_in_branch", ChosenLoss, momentum, classes, tags=_TAGS),
    Case("recomputed", Recomputed, momentum, classes, cross_entropy, tags=_TAGS),
    Case("branch_in_loop", BranchInLoop, momentum, classes, cross_entropy, tags=_TAGS),
    Case("own_backward", OwnBackward, momentum, classes, cross_entropy, tags=_TAGS),
    Case("own_loss_backward", judged(OwnLossBackward), momentum, regression, tags=_TAGS),
    Case("gradient_penalty", GradientPenalty, momentum, one_target, tags=_TAGS),
]
