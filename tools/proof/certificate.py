"""The certificate of a proof, ``proof.json`` beside the program: written whole or not at all, read with checks."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ...ir.core.errors import FormatError, OptionError
from ...ir.core.wording import agreed
from ...ir.files.atomic import replacing_file
from ...ir.files.document import Document
from ...ir.files.json_text import json_text
from ...ir.proof.verdict import KINDS
from ..verification import table
from ..verification.hashes import hashes
from .run import Proved, to_json

FILE = "proof.json"
FORMAT = 6
LARGEST = 1 << 30
"""Bytes of a certificate at most."""
LEFT_OUT = (FILE, table.FILE)


def hashes_of(original: Path, program: Path) -> dict[str, str]:
    """Of both sides, without what judges have stored beside the program."""
    return hashes(original, program, LEFT_OUT)


def certificate(found: Proved) -> dict[str, Any]:
    """The whole document: the hashes of what was proved, and the verdicts."""
    return {"format": FORMAT, **to_json(found)}


def store(found: Proved, path: Path) -> None:
    with replacing_file(path) as file:
        file.write(json_text(certificate(found)).encode())


def check(path: Path, original: Path, program: Path) -> int:
    """How many verdicts a stored certificate of these files holds. FormatError where it is damaged, OptionError where
    it is about other files, or proves nothing."""
    try:
        if path.stat().st_size > LARGEST:
            raise FormatError(f"more than {LARGEST:,} bytes")
        d = Document.parse(path.read_text(encoding="utf-8"))
        if d["format"].integer(0) != FORMAT:
            raise FormatError(f"format {d['format'].integer(0)}, and this version reads {FORMAT}")
        written = {name: digest.text() for name, digest in d["hashes"].items()}
        verdicts = [v["verdict"].one_of(KINDS) for v in d["verdicts"].list()]
        proved = d["proved"].truth()
    except OSError as error:
        raise FormatError(f"{path}: cannot be read: {error.strerror}") from None
    except UnicodeDecodeError:
        raise FormatError(f"{path}: not UTF-8, so no certificate of boost-prove") from None
    except FormatError as error:
        raise FormatError(f"{path}: {error}; run boost-prove again") from None
    now = hashes_of(original, program)
    if written != now:
        other = sorted(n for n in {**written, **now} if written.get(n) != now.get(n))
        names = f"{', '.join(other[:3])} {agreed(len(other), 'is', 'are')}"
        raise OptionError(f"{path} is about other files: {names} not what was proved; prove it again")
    if not proved:
        raise OptionError(f"{path} proves nothing: its verdicts are not all proved")
    return len(verdicts)
