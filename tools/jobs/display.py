"""A job of several ranks shown as one training."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

from ...runtime.progress import Tally


def joint_tally(told: Sequence[dict[str, Any]]) -> Tally:
    """How far the ranks are: as far as the slowest, with the mean of their losses."""
    losses = [t["loss"] for t in told if t["loss"] is not None]
    return Tally(
        micro_batches=min(t["micro_batches"] for t in told),
        total=told[0]["total"],
        samples=sum(t["samples"] for t in told),
        cycles=min(t["cycles"] for t in told),
        loss=fmean(losses) if losses else None,
    )


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
