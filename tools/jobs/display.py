"""A job of several ranks shown as one training."""

from __future__ import annotations

import math
import sys
from collections.abc import Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

from ...runtime.training.bar import Tally
from ...runtime.training.history import Epoch


def joint_tally(told: Sequence[dict[str, Any]]) -> Tally:
    """How far the ranks are: as far as the slowest, with the mean of their losses."""
    losses = [t["loss"] for t in told if t["loss"] is not None]
    return Tally(
        micro_batches=min(t["micro_batches"] for t in told),
        total=told[0]["total"],
        samples=sum(t["samples"] for t in told),
        cycles=min(t["cycles"] for t in told),
        loss=fmean(losses) if losses else None,
        epoch=min(t["epoch"] for t in told),
        epochs=told[0]["epochs"],
    )


def joined(epochs: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """An epoch of all ranks: all samples, the mean loss, the slowest; the rest is that of the first."""
    losses = [epoch["loss"] for epoch in epochs]
    return {
        **epochs[0],
        "loss": None if None in losses else fmean(losses),
        "samples": sum(epoch["samples"] for epoch in epochs),
        "seconds": max(epoch["seconds"] for epoch in epochs),
    }


def joint_epoch(told: Sequence[dict[str, Any]]) -> Epoch:
    epoch = joined(told)
    loss = math.nan if epoch["loss"] is None else epoch["loss"]
    return Epoch(**{**epoch, "loss": loss, "rates": tuple(epoch["rates"])})


class Echo:
    """Passes on what rank 0 writes to its standard output."""

    def __init__(self, path: Path):
        self.path = path
        self.read = 0

    def __enter__(self) -> Echo:
        return self

    def __exit__(self, *_: object) -> None:
        self.copy()

    def copy(self) -> None:
        if not self.path.exists():  # rank 0 has not come so far yet
            return
        with open(self.path, "rb") as file:
            file.seek(self.read)
            new = file.read()
        self.read += len(new)
        sys.stdout.write(new.decode(errors="replace"))
        sys.stdout.flush()
