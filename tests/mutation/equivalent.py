"""Mutants that no test can notice, each with the reason, in equivalent.toml.

They are known by their text (module, function, the statement before and after), so lines may move. An entry that no
mutant of its module bears any more is out of date; tests/mutation/test_equivalent.py finds those.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import NamedTuple

from tests.mutation.mutants import Mutant

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

FILE = Path(__file__).with_name("equivalent.toml")


class Judged(NamedTuple):
    module: str
    where: str
    before: str
    after: str

    @classmethod
    def of(cls, mutant: Mutant) -> Judged:
        return cls(str(mutant.path), mutant.where, mutant.before, mutant.after)


def judged() -> dict[Judged, str]:
    """The reason of each."""
    entries = tomllib.loads(FILE.read_text()).get("mutant", [])
    return {Judged(e["module"], e["where"], e["before"].strip(), e["after"].strip()): e["why"] for e in entries}
