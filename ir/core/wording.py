"""Numbers as people read them, in messages and reports."""

from __future__ import annotations

from .errors import OptionError

_ES = ("s", "x", "z", "ch", "sh")


def counted(n: int, noun: str, many: str = "") -> str:
    """``1 step``, ``2 steps``, ``1,200 batches``. ``many``: a plural that follows no rule."""
    if n == 1:
        return f"1 {noun}"
    return f"{n:,} {many or plural(noun)}"


def plural(noun: str) -> str:
    """``steps`` of ``step``; of a phrase, its last word's."""
    if noun.endswith("axis"):
        return noun[:-2] + "es"
    if noun.endswith("y") and noun[-2:-1] not in "aeiou":
        return noun[:-1] + "ies"
    return noun + ("es" if noun.endswith(_ES) else "s")


def print_bytes(n: float) -> str:
    """1536 as ``1.5 KiB``."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if n < 1024 or unit == "GiB":
            return f"{n:.0f} {unit}" if unit == "B" else f"{n:.1f} {unit}"
        n /= 1024
    raise AssertionError


def spelled(value: object) -> str:
    """A statistic of a pass: ``Mul 18, Add 6`` of a dict, the items of a list one after the other."""
    if isinstance(value, dict):
        return ", ".join(f"{name} {number}" for name, number in value.items()) or "none"
    if isinstance(value, (list, tuple)):
        return "; ".join(" ".join(str(item).split()) for item in value) or "none"
    return f"{value:,}" if isinstance(value, int) else str(value)


def print_budget(n: float) -> str:
    """50,500,000 as ``50.5 MB``: in the unit in which budgets are given."""
    return f"{n / 1e6:,.1f}".removesuffix(".0") + " MB"


_UNITS = {"": 1, "B": 1, "KB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12, "KIB": 2**10, "MIB": 2**20, "GIB": 2**30,
         "TIB": 2**40}  # fmt: skip


def parse_bytes(text: str) -> int:
    """``8GB`` or ``7.5GiB`` as a number of bytes. OptionError for anything else."""
    number = text.strip().rstrip("BbKkMmGgTtIi")
    unit = text.strip()[len(number) :].upper()
    try:
        found = float(number) * _UNITS[unit]
    except (ValueError, KeyError):
        raise OptionError(f"memory of '{text}': give a number with a unit, such as 8GB or 500MiB") from None
    if not 0 < found < 1e18:
        raise OptionError(f"memory of '{text}': it must be more than nothing, and finite")
    return int(found)


def print_count(n: float) -> str:
    """1536 as ``1.5 k``."""
    for unit in ("", " k", " M", " G", " T"):
        if n < 1000 or unit == " T":
            return f"{n:.0f}" if not unit else f"{n:.1f}{unit}"
        n /= 1000
    raise AssertionError


def sentence(text: object) -> str:
    """A sentence of another, ended by one full stop, whether it had one or not."""
    return f"{str(text).rstrip().removesuffix('.')}."


def agreed(n: int, one: str, many: str) -> str:
    """The verb that goes with a number: ``is`` with 1, ``are`` with others."""
    return one if n == 1 else many


def counted_all(*counts: tuple[int, str]) -> str:
    """``2 nodes, 1 function``: those that are not zero; empty where all are."""
    return ", ".join(counted(n, noun) for n, noun in counts if n)
