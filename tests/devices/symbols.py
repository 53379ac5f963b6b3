"""The names that shared libraries ask for and give, as `nm` lists them."""

from __future__ import annotations

import re
import subprocess
from dataclasses import dataclass
from functools import cache
from pathlib import Path


@dataclass(frozen=True)
class Symbol:
    """`version` is the version that a library asks for, "" where it asks for none. `kind` is nm's letter."""

    name: str
    version: str
    kind: str


def asked(library: Path) -> list[Symbol]:
    """What a library needs from others."""
    return _listed(library, "--undefined-only")


def given(library: Path) -> list[Symbol]:
    """What a library has for others."""
    return _listed(library, "--defined-only")


def mentioned(library: Path, pattern: str) -> set[str]:
    """The names in a library's bytes that match `pattern`: those that it looks up when it runs."""
    words = re.findall(rb"[A-Za-z_]\w{4,}", library.read_bytes())
    return {word.decode() for word in words if re.fullmatch(pattern.encode(), word)}


@cache
def _listed(library: Path, which: str) -> list[Symbol]:
    lines = subprocess.run(["nm", "-D", which, library], capture_output=True, text=True, check=True).stdout.splitlines()
    found = []
    for line in lines:
        kind, name = line.split()[-2:]
        name, _, version = name.replace("@@", "@").partition("@")
        found.append(Symbol(name, version, kind))
    return found
