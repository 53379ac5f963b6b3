"""Where commands write: what the suffix of a name says, and what a command must not replace."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from pathlib import Path

from . import cli

_HEADS: Mapping[str, tuple[bytes, ...]] = {
    ".mindir": (b"\x0a",),  # protobuf: the first field of MindIR is a text, that of ONNX a number
    ".onnx": (b"\x08",),
    ".ir": (b"//", b"program", b"state", b"graph", b"resources"),
    ".txt": (b"//", b"program", b"state", b"graph", b"resources"),
    ".json": (b"{", b"["),
    ".html": (b"<!doctype html", b"<html"),
    ".svg": (b"<?xml", b"<!doctype svg", b"<svg"),
    ".dot": (b"digraph", b"graph", b"strict", b"//"),
    ".gv": (b"digraph", b"graph", b"strict", b"//"),
}
"""How a file that was written under a suffix begins: enough to tell it from somebody's notes or script."""


def suffix_of(output: str) -> str:
    """The suffix of a name, in lower case; "" where there is none."""
    return os.path.splitext(output.rstrip("/\\"))[1].lower()


def check_suffix(output: str, known: Mapping[str, str]) -> str:
    """The kind of ``output`` by its suffix, of ``known`` (suffix -> kind); OptionError where it is none of them."""
    from ..ir.core.errors import OptionError

    suffix = suffix_of(output)
    if suffix not in known:
        names: dict[str, list[str]] = {}
        for name, kind in known.items():
            if name:
                names.setdefault(kind, []).append(name)
        listed = ", ".join(f"{' or '.join(suffixes)} ({kind})" for kind, suffixes in names.items())
        what = f"nothing is written as '{suffix}' here" if suffix else "a name without a suffix says no form"
        raise OptionError(f"'{output}': {what}. Give a name that ends with {listed}")
    return known[suffix]


def check_output(output: str, inputs: Iterable[str | None] = (), *, force: bool, recognised: bool = True) -> None:
    """Finds out before the work that the result has no place to go, or would destroy something.

    An input is never replaced. An existing file whose content is not what its suffix says is replaced only with
    ``force``; ``recognised=False`` is for what has no form of its own, such as tables.
    """
    from ..ir.core.errors import OptionError

    cli.check_writable(output)
    path = Path(output)
    if not path.exists():
        return
    for given in inputs:
        if given and given != "-" and os.path.exists(given) and os.path.samefile(given, path):
            raise OptionError(f"'{output}' is the input, which is never replaced: name another file with -o")
    if recognised and not force and path.is_file() and not _is_like_its_name(path):
        raise OptionError(
            f"'{output}' exists, and what it holds is not what its name says: it was written by something else. "
            f"Name another file with -o, or replace it with --force"
        )


def _is_like_its_name(path: Path) -> bool:
    heads = _HEADS.get(suffix_of(path.name))
    with path.open("rb") as file:
        begin = file.read(4096)
    return heads is None or not begin or begin.lstrip().lower().startswith(heads) or begin.startswith(heads)
