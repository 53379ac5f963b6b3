"""Messages of ranks to each other, outside of the program's graphs. All ranks must call every function that
communicates."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ...ir.core.errors import RuntimeFailure
from ...ir.core.wording import agreed
from .ranks import Ranks

_CHUNKS = 4
"""A hash has so many parts of 16 bits, which float32 holds exactly: what every device adds up."""


_PIECE = 4 * 2**20
"""Bytes that each rank gives at once of what only it holds."""


class Exchange:
    def __init__(self, ranks: Ranks):
        self.ranks = ranks
        self._cells: dict[str, Any] = {}

    def total(self, values: np.ndarray) -> np.ndarray:
        """The sum of a float32 vector over the ranks."""
        return values if self.ranks.size == 1 or not values.size else self._over_ranks("AllReduce", values)

    def _over_ranks(self, collective: str, values: np.ndarray) -> np.ndarray:
        import mindspore

        if collective not in self._cells:
            from .cells import OverRanks

            self._cells[collective] = OverRanks(getattr(mindspore.ops, collective)())
        return np.array(self._cells[collective].compile_and_run(mindspore.Tensor(values)).asnumpy())

    def agree(self, *asked: bool) -> list[bool]:
        """Whether any rank asks for each of these; all must ask for as many."""
        # One more, so that there is something to wait for where nothing is asked.
        return [bool(n) for n in self.total(np.array([*asked, True], np.float32))[:-1]]

    def mean(self, values: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """The mean over ranks of each array, taken in float32; all in one exchange."""
        if self.ranks.size == 1 or not values:
            return dict(values)
        flat = np.concatenate([array.astype(np.float32).ravel() for array in values.values()])
        means = self.total(flat) / np.float32(self.ranks.size)
        parts = np.split(means, np.cumsum([array.size for array in values.values()])[:-1])
        named = zip(values.items(), parts, strict=True)
        return {name: part.reshape(array.shape).astype(array.dtype) for (name, array), part in named}

    def gather(self, values: Mapping[str, np.ndarray]) -> list[dict[str, np.ndarray]]:
        """The arrays of each rank, bit for bit; names, shapes and types must be the same on all of them."""
        if self.ranks.size == 1 or not values:
            return [dict(values)] * self.ranks.size
        raw = [np.ascontiguousarray(array).reshape(-1).view(np.uint8) for array in values.values()]
        flat = np.concatenate(raw)
        padded = np.concatenate([flat, np.zeros(-flat.size % 4, np.uint8)]).view(np.int32)
        rows = self._over_ranks("AllGather", padded).view(np.uint8).reshape(self.ranks.size, -1)
        found: list[dict[str, np.ndarray]] = []
        for row in rows:
            parts = np.split(row[: flat.size], np.cumsum([part.size for part in raw])[:-1])
            named = zip(values.items(), parts, strict=True)
            found.append({name: part.view(array.dtype).reshape(array.shape) for (name, array), part in named})
        return found

    def collect(
        self, own: Mapping[str, np.ndarray], holders: Mapping[str, int], like: Mapping[str, np.ndarray], wanted: bool
    ) -> dict[str, np.ndarray]:
        """The arrays that one rank alone holds, bit for bit, on each rank that has ``wanted`` them; {} on the others,
        which need no memory for them. ``own``: those of this rank. ``holders``: the rank of each. ``like``: an array of
        the type of each, whose values do not matter."""
        names: list[list[str]] = [[n for n in holders if holders[n] == rank] for rank in range(self.ranks.size)]
        sizes = [sum(like[n].nbytes for n in of_rank) for of_rank in names]
        # Whole pieces of four bytes, so that the last one has the length of the others.
        piece = min(_PIECE, -(-max(sizes, default=0) // 4) * 4)
        if not piece:
            return {}
        buffers = [np.zeros(-(-max(sizes) // piece) * piece if wanted else 0, np.uint8) for _ in sizes]
        mine = [np.ascontiguousarray(own[n]).reshape(-1).view(np.uint8) for n in names[self.ranks.rank]]
        flat = np.concatenate([*mine, np.zeros(-sizes[self.ranks.rank] % piece, np.uint8)])
        for begin in range(0, -(-max(sizes) // piece) * piece, piece):
            part = flat[begin : begin + piece] if begin < flat.size else np.zeros(piece, np.uint8)
            rows = self._over_ranks("AllGather", part.view(np.int32)).view(np.uint8).reshape(self.ranks.size, -1)
            for buffer, row in zip(buffers, rows, strict=True):
                if wanted:
                    buffer[begin : begin + piece] = row
        found: dict[str, np.ndarray] = {}
        for buffer, of_rank in zip(buffers, names, strict=True):
            begin = 0
            for name in of_rank if wanted else ():
                array = like[name]
                found[name] = buffer[begin : begin + array.nbytes].view(array.dtype).reshape(array.shape)
                begin += array.nbytes
        return found

    def differing(self, values: Mapping[str, np.ndarray]) -> list[str]:
        """The names of the arrays that do not have the same bits on all ranks."""
        names = list(values)
        return [names[i] for i in _unequal(self._hashes(values))]

    def check_equal(self, values: Mapping[str, np.ndarray]) -> None:
        """RuntimeFailure, on every rank, if an array does not have the same bits on all ranks."""
        hashes = self._hashes(values)
        differing = _unequal(hashes)
        if differing:
            raise RuntimeFailure(_difference(list(values), differing, hashes))

    def _hashes(self, values: Mapping[str, np.ndarray]) -> np.ndarray:
        """[rank, array, part]: a hash of each array of each rank."""
        rank, size = self.ranks.rank, self.ranks.size
        table = np.zeros((size, len(values), _CHUNKS), np.float32)
        for i, array in enumerate(values.values()):
            flat = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
            table[rank, i] = np.frombuffer(hashlib.blake2b(flat.data, digest_size=2 * _CHUNKS).digest(), np.uint16)
        return self.total(table.ravel()).reshape(table.shape)


def _unequal(hashes: np.ndarray) -> list[int]:
    """The arrays whose hashes differ between ranks."""
    return [i for i in range(hashes.shape[1]) if (hashes[:, i] != hashes[0, i]).any()]


def _difference(names: Sequence[str], differing: Sequence[int], table: np.ndarray) -> str:
    holding: dict[bytes, list[str]] = {}
    for rank, row in enumerate(table[:, differing[0]]):
        holding.setdefault(row.tobytes(), []).append(str(rank))
    shown = ", ".join(f"{agreed(len(r), 'rank', 'ranks')} {' '.join(r)}" for r in holding.values())
    more = f" and {len(differing) - 1} more of {len(names)}" if len(differing) > 1 else ""
    return (
        f"the ranks do not hold the same weights: '{names[differing[0]]}'{more} differ between {shown}. They began "
        "from different states, or one of them was changed alone (a state that one rank loaded, a device that computes "
        "wrongly). Start again from a checkpoint that all ranks load."
    )
