"""The tool that breaks code: what it changes, and that it tells a test that notices from one that does not."""

from __future__ import annotations

from pathlib import Path

from tests.mutation.mutants import sample

SOURCE = '''
"""A module."""
from collections import OrderedDict

KINDS = frozenset({"a", "b", "c"})

def first(values: list[int], strict: bool = False) -> int:
    """The first that is above."""
    for i, value in enumerate(values):
        if value < 0 and not strict:
            continue
        found(value, i)
        return values[-1] + 1
    raise ValueError(f"no {1 + 1}")
'''


def test_what_is_changed(tmp_path: Path) -> None:
    (tmp_path / "module.py").write_text(SOURCE)
    found, sites = sample(tmp_path / "module.py", 1000, 1)
    assert len(found) == sites
    changes = {(m.where, m.before.splitlines()[0], m.after.splitlines()[0]) for m in found}
    assert changes == {
        ("module", "KINDS = frozenset({'a', 'b', 'c'})", "KINDS = frozenset({'b', 'c'})"),
        ("module", "KINDS = frozenset({'a', 'b', 'c'})", "KINDS = frozenset({'a', 'b'})"),
        *(
            ("first", "if value < 0 and (not strict):", after)
            for after in (
                *("if value <= 0 and (not strict):", "if value < 1 and (not strict):", "if value < 0 or not strict:"),
                *("if value < 0:", "if not strict:", "if value < 0 and strict:"),
            )
        ),
        ("first", "continue", "pass"),
        ("first", "found(value, i)", "pass"),
        ("first", "found(value, i)", "found(i, value)"),
        *(
            ("first", "return values[-1] + 1", after)
            for after in (
                *("return values[-0] + 1", "return values[-2] + 1", "return values[-1] - 1"),
                *("return values[-1] + 2", "return values[-1] + 0"),
            )
        ),
        ("first", "raise ValueError(f'no {1 + 1}')", "pass"),
        ("first", DEFINED.format(False), DEFINED.format(True)),
    }
    assert all(m.lines is None for m in found if m.where == "module")


DEFINED = "def first(values: list[int], strict: bool={}) -> int:"


def test_a_sample_is_that_of_its_seed(tmp_path: Path) -> None:
    (tmp_path / "module.py").write_text(SOURCE)
    drawn = [[str(m) for m in sample(tmp_path / "module.py", 5, seed)[0]] for seed in (1, 1, 2)]
    assert drawn[0] == drawn[1] != drawn[2]
    assert len(drawn[0]) == 5
