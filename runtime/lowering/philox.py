"""Random numbers of one node, which follow from seed, graph, node, rank and run alone, by a counter-based generator
(Philox)."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Any

from ...ir.core.types import TensorType

MASKS = {"Dropout": 0, "Dropout2D": 2, "Dropout3D": 2}
"""Primitives that return (x with elements dropped, mask), with how many dimensions one number of the mask stands for
(0: one for each element; 2: one for each of the first two dimensions)."""
NUMBERS = ("StandardNormal", "UniformReal")


@dataclass(frozen=True, slots=True)
class Draw:
    """The draw of one node in each run: ``keep`` is the share of ones in a mask."""

    op: str
    type: TensorType
    serial: int
    keep: float = 0.0

    def array(self, seed: int, graph: str, rank: int, run: int) -> Any:
        import numpy as np

        digest = hashlib.sha256(repr((seed, graph, self.serial, rank)).encode()).digest()
        key = np.frombuffer(digest[:16], np.uint64)
        random = np.random.Generator(np.random.Philox(key=key, counter=[0, 0, 0, run]))
        shape = self.type.shape
        if self.op == "StandardNormal":
            return random.standard_normal(shape, np.float32)
        if self.op == "UniformReal":
            return random.random(shape, np.float32)
        leading = MASKS[self.op] or len(shape)
        kept = random.random(shape[:leading], np.float32) < np.float32(self.keep)
        kept = kept.reshape(shape[:leading] + (1,) * (len(shape) - leading))
        return np.broadcast_to(kept, shape).astype(self.type.dtype.value)
