"""How files begin: enough to tell one that was written under a suffix from somebody's notes or script."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

_TEXT = (b"//", b"program", b"state", b"graph", b"resources")
_DOT = (b"digraph", b"graph", b"strict", b"//")
_HEADS: Mapping[str, tuple[bytes, ...]] = {
    ".mindir": (b"\x0a",),  # protobuf: the first field of MindIR is a text, that of ONNX a number
    ".onnx": (b"\x08",),
    ".ir": _TEXT,
    ".txt": _TEXT,
    ".json": (b"{", b"["),
    ".html": (b"<!doctype html", b"<html"),
    ".svg": (b"<?xml", b"<!doctype svg", b"<svg"),
    ".dot": _DOT,
    ".gv": _DOT,
}


def is_like_its_name(path: Path) -> bool:
    """Whether a file begins as its suffix says, or is empty, or its suffix says nothing."""
    heads = _HEADS.get(path.suffix.lower())
    with path.open("rb") as file:
        begin = file.read(4096)
    return heads is None or not begin or begin.lstrip().lower().startswith(heads) or begin.startswith(heads)
