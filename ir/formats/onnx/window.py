"""The window of a convolution or a pool, as ONNX and MindSpore both describe it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace


@dataclass(frozen=True)
class Window:
    """``before`` and ``after`` are what is padded in front and behind."""

    size: tuple[int, ...]
    strides: tuple[int, ...]
    dilations: tuple[int, ...]
    before: tuple[int, ...]
    after: tuple[int, ...]

    @property
    def extent(self) -> list[int]:
        """How far each window reaches."""
        return [(k - 1) * d + 1 for k, d in zip(self.size, self.dilations, strict=True)]

    @property
    def pads(self) -> tuple[int, ...]:
        return tuple(n for pair in zip(self.before, self.after, strict=True) for n in pair)

    def padded(self, sizes: Sequence[int], steps: Sequence[int], upper: bool) -> Window:
        """With the padding that lets so many windows see the sizes, half of it on either side."""
        total = [
            max((n - 1) * s + k - d, 0) for n, s, k, d in zip(steps, self.strides, self.extent, sizes, strict=True)
        ]
        small, large = tuple(t // 2 for t in total), tuple(t - t // 2 for t in total)
        return replace(self, before=small if upper else large, after=large if upper else small)

    def reaching(self, sizes: Sequence[int], steps: Sequence[int]) -> Window:
        """With padding behind as far as the last of so many windows reaches, but no less than is there."""
        reach = ((n - 1) * s + k for n, s, k in zip(steps, self.strides, self.extent, strict=True))
        behind = (max(r - d - b, a) for r, d, b, a in zip(reach, sizes, self.before, self.after, strict=True))
        return replace(self, after=tuple(behind))

    def along(self, axes: int) -> Window:
        """With axes of length 1 in front, so that there are so many."""
        more = axes - len(self.size)
        one, none = (1,) * more, (0,) * more
        return Window(one + self.size, one + self.strides, one + self.dilations, none + self.before, none + self.after)

    def unpadded(self) -> Window:
        return replace(self, before=(0,) * len(self.size), after=(0,) * len(self.size))
