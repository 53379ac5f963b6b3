"""The verification that a program directory holds, read with plain checks: the file may be anyone's."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

from ...ir.core.errors import FormatError
from ...ir.files.document import Document
from .hashes import hashes_of
from .report import STATUSES, Deviation, Guilty, Result, Verification
from .table import FILE

LARGEST = 1 << 22
"""Bytes of such a file at most."""


def read_verification(program: Path) -> Verification | None:
    """The verification that boost-verify stored in a program directory; None where it stored nothing. A note says so
    where the program is no longer the one that was verified.

    FormatError, with the place, for a file that is damaged.
    """
    path = program / FILE
    if not path.is_file():
        return None
    try:
        if path.stat().st_size > LARGEST:
            raise FormatError(f"more than {LARGEST:,} bytes")
        found = _verification(Document.parse(path.read_text(encoding="utf-8")))
    except UnicodeDecodeError:
        raise FormatError(f"{path}: not UTF-8; run boost-verify again") from None
    except FormatError as error:
        raise FormatError(f"{path}: {error}; run boost-verify again") from None
    now = hashes_of("program", program, (FILE,))
    then = {name: digest for name, digest in found.hashes.items() if name.startswith("program/")}
    if then and now != then:
        stale = "The program has changed since: this was found of an earlier one. Run boost-verify again."
        found = replace(found, notes=(stale, *found.notes))
    return found


def _verification(d: Document) -> Verification:
    texts = ("pipeline", "data", "unmatched", "reference", "trains")
    return Verification(
        results=tuple(_result(r) for r in d["results"].list()),
        seed=d["seed"].integer(0),
        cycles=d["cycles"].integer(0),
        guilty=None if d["guilty"].value is None else _guilty(d["guilty"]),
        notes=d["notes"].texts(),
        versions={name: v.text() for name, v in d["versions"].items()},
        hashes={name: v.text() for name, v in d["hashes"].items()},
        seconds=d["seconds"].number(),
        **{name: d[name].text() for name in texts},
    )


def _result(d: Document) -> Result:
    deviation = None if d["deviation"].value is None else _deviation(d["deviation"])
    name, detail, promise = (d[key].text() for key in ("name", "detail", "promise"))
    return Result(name, d["status"].one_of(STATUSES), detail, deviation, promise, d["seconds"].number())


def _deviation(d: Document) -> Deviation:
    names = ("error", "relative", "ulps", "tolerance_relative", "tolerance_ulps", "excess")
    # JSON has no infinity: null stands for what is not finite.
    numbers = {name: math.inf if d[name].value is None else d[name].number() for name in names}
    return Deviation(d["where"].text(), **numbers, equal=d["equal"].truth() if "equal" in d.object() else False)


def _guilty(d: Document) -> Guilty:
    number, passes = d["number"].integer(0), d["passes"].integer(0)
    return Guilty(d["name"].text(), number, passes, _result(d["result"]), d["note"].text())
