"""How many lines of Python each room of the product has. ``python -m tests.lines`` writes them into lines.txt, where
they are fewer than before."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

ROOT = Path(__file__).parent.parent
BUDGETS = Path(__file__).with_name("lines.txt")
ROOMS = ("boost_compile", "ir", "passes", "runtime", "tools")
SLACK = 40
"""How many lines a room may be below its number before the number has to follow."""


def counted() -> Counter[str]:
    """By room: a folder of the second level, or what stands beside these in one of the first."""
    lines: Counter[str] = Counter()
    for source in (source for room in ROOMS for source in (ROOT / room).rglob("*.py")):
        parts = source.relative_to(ROOT).parts
        lines["/".join(parts[:2]) if len(parts) > 2 else parts[0]] += len(source.read_bytes().splitlines())
    return lines


def budgets() -> dict[str, int]:
    rows = (row.split() for row in BUDGETS.read_text(encoding="utf-8").splitlines() if not row.startswith("#"))
    return {room: int(n) for n, room in rows}


def main() -> None:
    before = budgets()
    now = {room: min(n, before.get(room, n)) for room, n in sorted(counted().items())}
    head = BUDGETS.read_text(encoding="utf-8").splitlines()[0]
    BUDGETS.write_text("\n".join([head, *(f"{n:6} {room}" for room, n in now.items()), ""]), encoding="utf-8")


if __name__ == "__main__":
    main()
