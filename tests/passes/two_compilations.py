"""A pass, and passes that find its work when they come in a later compilation."""

from __future__ import annotations

from pathlib import Path

import boost_compile as bc
from tests.compare import assert_equal
from tests.networks import CASES


def assert_found_later(path: Path, first: str, later: str) -> None:
    """The bits after six micro-batches are those of one pipeline, with `later` in front. `path` is the file
    of a case of the zoo."""
    source = bc.load(path)
    together = bc.Session(bc.compile(source, f"{later},{first}"))
    one_by_one = bc.Session(bc.compile(bc.compile(source, first), later))
    for batch in CASES[path.stem].batches(6):
        together.step(*batch)
        one_by_one.step(*batch)
    assert_equal(one_by_one.state(), together.state())
