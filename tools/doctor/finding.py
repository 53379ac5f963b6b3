"""One thing that is probably wrong."""

from __future__ import annotations

from dataclasses import dataclass

from ...ir.core.wording import sentence


@dataclass(frozen=True)
class Finding:
    """``check``: what was looked at; ``problem``: what is there; ``remedy``: what to do. Both are sentences without
    their end."""

    check: str
    problem: str
    remedy: str

    def __str__(self) -> str:
        return f"{self.check}: {sentence(self.problem)} {sentence(self.remedy)}"


def named(names: list[str], most: int = 3) -> str:
    """The first of many names."""
    shown = ", ".join(f"'{name}'" for name in names[:most])
    return shown if len(names) <= most else f"{shown} and {len(names) - most} more"
