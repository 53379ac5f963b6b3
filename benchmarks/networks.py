"""Networks that only benchmarks train: larger than those of the tests."""

from __future__ import annotations

import mindspore as ms
import numpy as np
from mindspore import nn, ops

from tests.networks.case import Batch, Case
from tests.networks.mlp import momentum
from tests.networks.transformer import adam_weight_decay
from tests.networks.vision import cross_entropy, images, mindcv

VOCABULARY, LENGTH, WIDTH, HEADS, DEPTH = 4096, 128, 256, 4, 4


class Block(nn.Cell):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.width = width
        self.norm1, self.norm2 = nn.LayerNorm((width,)), nn.LayerNorm((width,))
        self.query, self.key, self.value = (nn.Dense(width, width) for _ in range(3))
        self.output = nn.Dense(width, width)
        self.up, self.down = nn.Dense(width, 4 * width), nn.Dense(4 * width, width)
        self.gelu = nn.GELU()
        self.mask = ms.Tensor(np.triu(np.full((LENGTH, LENGTH), -1e4, np.float32), k=1))

    def heads(self, x):
        return x.reshape(-1, LENGTH, HEADS, self.width // HEADS).transpose(0, 2, 1, 3)

    def construct(self, x):
        y = self.norm1(x)
        query, key, value = self.heads(self.query(y)), self.heads(self.key(y)), self.heads(self.value(y))
        scores = ops.matmul(query, key.transpose(0, 1, 3, 2)) * (self.width // HEADS) ** -0.5 + self.mask
        mixed = ops.matmul(ops.softmax(scores, -1), value).transpose(0, 2, 1, 3).reshape(-1, LENGTH, self.width)
        x = x + self.output(mixed)
        return x + self.down(self.gelu(self.up(self.norm2(x))))


class GPT(nn.Cell):
    """Returns its next-token loss."""

    def __init__(
        self, width: int = WIDTH, depth: int = DEPTH, recomputed: bool = False, vocabulary: int = VOCABULARY
    ) -> None:
        super().__init__()
        self.width = width
        self.tokens = nn.Embedding(vocabulary, width)
        self.places = ms.Parameter(ms.Tensor(np.random.randn(LENGTH, width).astype(np.float32) * 0.02), name="places")
        self.blocks = nn.SequentialCell(*(Block(width) for _ in range(depth)))
        if recomputed:
            for block in self.blocks:
                block.recompute()
        self.norm = nn.LayerNorm((width,))
        self.head = nn.Dense(width, vocabulary, has_bias=False)
        self.loss = nn.CrossEntropyLoss()

    def construct(self, tokens, targets):
        x = self.norm(self.blocks(self.tokens(tokens) + self.places)).reshape(-1, self.width)
        return self.loss(self.head(x), targets.reshape(-1))


class DeepMLP(nn.Cell):
    """1.6 million weights with 12 blocks; at a batch of 2048 its activations are 16 times as large."""

    def __init__(self, recomputed: bool = False, depth: int = 12) -> None:
        super().__init__()
        self.blocks = nn.SequentialCell(*(self._block() for _ in range(depth)))
        if recomputed:
            for block in self.blocks:
                block.recompute()

    @staticmethod
    def _block() -> nn.Cell:
        return nn.SequentialCell(nn.Dense(WIDTH, WIDTH), nn.Tanh(), nn.Dense(WIDTH, WIDTH), nn.GELU())

    def construct(self, x):
        return self.blocks(x)


def deep_vit() -> nn.Cell:
    """As deep and as wide as DeiT-Ti (Touvron et al., 2021), for small images."""
    return mindcv("vit").VisionTransformer(
        image_size=32, patch_size=4, embed_dim=192, depth=12, num_heads=3, num_classes=10
    )


def pairs(rng: np.random.Generator, size: int) -> Batch:
    x = rng.standard_normal((size, WIDTH), dtype=np.float32)
    return x, np.tanh(x)


def text(rng: np.random.Generator, size: int) -> Batch:
    tokens = rng.integers(0, VOCABULARY, (size, LENGTH + 1)).astype(np.int32)
    return tokens[:, :-1].copy(), tokens[:, 1:].copy()


def few_words(rng: np.random.Generator, size: int) -> Batch:
    return tuple(tokens % 512 for tokens in text(rng, size))


_CASES = (
    Case("gpt_medium", GPT, adam_weight_decay, text),  # 5.3 million weights
    Case("gpt_medium_recomputed", lambda: GPT(recomputed=True), adam_weight_decay, text),
    # Its loss is a small part of the values that it keeps; of those of gpt_medium it is two fifths.
    Case("gpt_deep", lambda: GPT(128, 12, vocabulary=512), adam_weight_decay, few_words),
    Case("gpt_large", lambda: GPT(512, 6), adam_weight_decay, text),  # 23 million
    # 18 million, in two matrices nearly all
    Case("gpt_words", lambda: GPT(256, 2, vocabulary=32768), adam_weight_decay, text),
    Case("vit_deep", deep_vit, adam_weight_decay, images, cross_entropy),
    Case("deep_mlp", DeepMLP, momentum, pairs, nn.MSELoss),
    Case("deeper_mlp", lambda: DeepMLP(depth=32), momentum, pairs, nn.MSELoss),
    Case("deep_mlp_recomputed", lambda: DeepMLP(recomputed=True), momentum, pairs, nn.MSELoss),
)
NETWORKS = {case.name: case for case in _CASES}
