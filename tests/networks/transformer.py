"""A small decoder-only transformer that returns its next-token loss; its output layer is the embedding or its own."""

from __future__ import annotations

import mindspore as ms
import numpy as np
from mindspore import nn, ops

from .case import Batch, Case

VOCABULARY, LENGTH, WIDTH, HEADS = 32, 8, 16, 2


class Attention(nn.Cell):
    def __init__(self) -> None:
        super().__init__()
        self.query = nn.Dense(WIDTH, WIDTH)
        self.key = nn.Dense(WIDTH, WIDTH)
        self.value = nn.Dense(WIDTH, WIDTH)
        self.output = nn.Dense(WIDTH, WIDTH)
        self.scale = (WIDTH // HEADS) ** -0.5
        self.mask = ms.Tensor(np.triu(np.full((LENGTH, LENGTH), -1e4, np.float32), k=1))

    def split(self, x):
        return x.reshape(-1, LENGTH, HEADS, WIDTH // HEADS).transpose(0, 2, 1, 3)

    def construct(self, x):
        query, key, value = self.split(self.query(x)), self.split(self.key(x)), self.split(self.value(x))
        scores = ops.matmul(query, key.transpose(0, 1, 3, 2)) * self.scale + self.mask
        mixed = ops.matmul(ops.softmax(scores, -1), value)
        return self.output(mixed.transpose(0, 2, 1, 3).reshape(-1, LENGTH, WIDTH))


class Block(nn.Cell):
    def __init__(self) -> None:
        super().__init__()
        self.norm1 = nn.LayerNorm((WIDTH,))
        self.attention = Attention()
        self.norm2 = nn.LayerNorm((WIDTH,))
        self.up = nn.Dense(WIDTH, 4 * WIDTH)
        self.gelu = nn.GELU()
        self.down = nn.Dense(4 * WIDTH, WIDTH)

    def construct(self, x):
        x = x + self.attention(self.norm1(x))
        return x + self.down(self.gelu(self.up(self.norm2(x))))


class GPT(nn.Cell):
    def __init__(self, tied: bool) -> None:
        super().__init__()
        self.tokens = nn.Embedding(VOCABULARY, WIDTH)
        self.places = ms.Parameter(ms.Tensor(np.random.randn(LENGTH, WIDTH).astype(np.float32) * 0.02), name="places")
        self.blocks = nn.SequentialCell(Block(), Block())
        self.norm = nn.LayerNorm((WIDTH,))
        self.tied = tied
        self.head = nn.Identity() if tied else nn.Dense(WIDTH, VOCABULARY, has_bias=False)
        self.loss = nn.CrossEntropyLoss()

    def construct(self, tokens, targets):
        x = self.norm(self.blocks(self.tokens(tokens) + self.places)).reshape(-1, WIDTH)
        if self.tied:
            logits = ops.matmul(x, self.tokens.embedding_table.T)
        else:
            logits = self.head(x)
        return self.loss(logits, targets.reshape(-1))


def gpt_tied() -> nn.Cell:
    return GPT(tied=True)


def gpt_untied() -> nn.Cell:
    return GPT(tied=False)


def text(rng: np.random.Generator, size: int) -> Batch:
    tokens = rng.integers(0, VOCABULARY, (size, LENGTH + 1)).astype(np.int32)
    return tokens[:, :-1].copy(), tokens[:, 1:].copy()


def adam_weight_decay(parameters: list[ms.Parameter]) -> nn.Cell:
    return nn.AdamWeightDecay(parameters, 0.001, weight_decay=0.01)


def momentum_decay(parameters: list[ms.Parameter]) -> nn.Cell:
    return nn.Momentum(parameters, 0.01, 0.9, weight_decay=1e-3)


_TAGS = frozenset({"transformer"})
_TIED = frozenset({"transformer", "tied"})
CASES = [
    Case("gpt", gpt_untied, adam_weight_decay, text, tags=_TAGS),
    Case("gpt_tied", gpt_tied, adam_weight_decay, text, tags=_TIED),
    Case("gpt_tied_momentum_decay", gpt_tied, momentum_decay, text, tags=_TIED),
]
