"""What the rewrites of this folder ask of who runs them."""

from __future__ import annotations

from typing import Protocol


class Target(Protocol):
    """Where a graph will run."""

    @property
    def target(self) -> str: ...
