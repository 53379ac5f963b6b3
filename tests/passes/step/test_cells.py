"""Cells by globs: the outermost one that a glob names, from any level on."""

from __future__ import annotations

import pytest
from boost_compile.passes.step.cells import named_cell

SCOPE = "Default/net-Net/0-Block/down-Dense/MatMul-op0"


@pytest.mark.parametrize(
    ("glob", "found"),
    [
        ("0-Block", "Default/net-Net/0-Block"),
        ("*Block/down*", "Default/net-Net/0-Block/down-Dense"),
        ("*-Dense", "Default/net-Net/0-Block/down-Dense"),
        ("MatMul*", SCOPE),
        ("Default/net*", "Default/net-Net"),
        ("up-Dense", None),
    ],
)
def test_a_glob_names_the_outermost_cell(glob: str, found: str | None) -> None:
    assert named_cell(SCOPE, glob) == found
