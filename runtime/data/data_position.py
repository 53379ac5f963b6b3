"""Where in the data a training stands, as it is kept with its state."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, get_args

from ...ir.core.errors import RuntimeFailure

NOTE = "boost_compile.data_position"
"""The name of the position among the notes of a state file."""

EndOfEpoch = Literal["carry", "flush", "drop"]
"""The fate of a cycle that is incomplete when an epoch ends; see :func:`.fit.fit`."""
ENDS: tuple[EndOfEpoch, ...] = get_args(EndOfEpoch)
END = "end_of_epoch"

Order = Mapping[str, int | str | None]
"""The numbers that decide which samples a micro-batch holds, and which micro-batches a cycle: number of samples, size
of a micro-batch over all ranks, seed, what happens at the end of an epoch."""


@dataclass(frozen=True, slots=True)
class DataPosition:
    """``epoch`` epochs are complete, and of the one after them each rank has consumed ``micro_batch`` micro-batches;
    ``cycle`` optimizer steps were done in all."""

    epoch: int
    micro_batch: int
    cycle: int
    order: Order

    def to_text(self) -> str:
        fields = {"epoch": self.epoch, "micro_batch": self.micro_batch, "cycle": self.cycle, "order": dict(self.order)}
        return json.dumps(fields, sort_keys=True)

    @classmethod
    def from_text(cls, text: str, where: str) -> DataPosition:
        """Raises RuntimeFailure, which names ``where``, for a text that is no position."""
        try:
            fields = json.loads(text)
            numbers = (fields["epoch"], fields["micro_batch"], fields["cycle"])
            order = dict(fields["order"])
            whole = [*numbers, *(value for name, value in order.items() if value is not None and name != END)]
        except (ValueError, TypeError, KeyError, RecursionError):
            raise RuntimeFailure(f"{where}: its note of the position in the data cannot be read.") from None
        if order.get(END) not in ENDS:
            raise RuntimeFailure(f"{where}: its note of the position in the data knows another end of an epoch.")
        if not all(type(value) is int for value in whole) or min(numbers) < 0:
            raise RuntimeFailure(f"{where}: its note of the position in the data holds no whole numbers.")
        return cls(*numbers, order)

    def check(self, order: Order) -> None:
        """RuntimeFailure where the data is divided into other micro-batches than those that have been consumed."""
        for name, words in WORDS.items():
            before, now = self.order.get(name), order.get(name)
            if before != now:
                raise RuntimeFailure(
                    f"cannot go on where the state was saved: {words} {_shown(before)} then and {_shown(now)} now.",
                    **WITHOUT_POSITION,
                )


WITHOUT_POSITION = {
    "python": "Use the same, or train on from the start of the data: fit without resume.",
    "command": "Use the same, or load the state without its position: boost-run --load.",
}
WORDS = {
    "samples": "the number of samples was",
    "batch": "the samples of a micro-batch over all ranks were",
    "seed": "the seed of the order of samples was",
    END: "what happens to an incomplete window at the end of an epoch was",
}


def _shown(value: int | str | None) -> str:
    return "not set" if value is None else str(value)
