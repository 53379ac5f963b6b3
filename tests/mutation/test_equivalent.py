"""The mutants that are said to change nothing are mutants of the code as it stands."""

from __future__ import annotations

import pytest

from tests.mutation.equivalent import Judged, judged
from tests.mutation.mutants import statements
from tests.mutation.recording import ROOT


@pytest.mark.parametrize("entry", judged(), ids=lambda entry: f"{entry.module}:{entry.where}")
def test_an_entry_is_of_the_code_as_it_stands(entry: Judged) -> None:
    assert (entry.where, entry.before) in statements(ROOT / entry.module)


def test_every_entry_says_why() -> None:
    assert all(why.strip() for why in judged().values())
