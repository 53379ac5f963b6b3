"""Cells of the network, named by globs over scopes."""

from __future__ import annotations

from fnmatch import fnmatchcase


def named_cell(scope: str, glob: str) -> str | None:
    """The scope of the outermost cell around ``scope``, or itself, that a glob names; the glob may begin at any level
    (``conv1*``, ``block/conv1*``). None where there is none."""
    levels = scope.split("/")
    for depth in range(1, len(levels) + 1):
        start = "/".join(levels[:depth])
        if fnmatchcase(start, glob) or fnmatchcase(start, f"*/{glob}"):
            return start
    return None
