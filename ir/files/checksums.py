"""Checksums of a program directory: CRC-32, which finds what disks and copies do to files and costs as much as reading
them. They are no protection against somebody who changes a file on purpose."""

from __future__ import annotations

import re
import zlib
from pathlib import Path

from ..core.data import MappedFile
from .document import Document

KEY = "checksum"
_SEAL = re.compile(r',\n "checksum": "([0-9a-f]{8})"\n}\n\Z')


def shown(checksum: int) -> str:
    return f"{checksum:08x}"


def checksum_of_file(path: Path) -> str:
    return shown(zlib.crc32(MappedFile(path).view()))


def noted(document: Document) -> int | None:
    """The checksum that an entry notes; None where it notes none, as files of versions before."""
    if document.object().get(KEY) is None:
        return None
    text = document[KEY].text()
    if not re.fullmatch("[0-9a-f]{8}", text):
        raise document[KEY].wrong("a checksum of eight hexadecimal digits")
    return int(text, 16)


def sealed(text: str) -> str:
    """A JSON object, as text without its end, completed with a checksum of itself."""
    return text + f',\n "checksum": "{shown(zlib.crc32(_encoded(text)))}"\n}}\n'


def check_seal(text: str, document: Document) -> None:
    """FormatError where the text is not the one that was sealed. To be asked last: other errors say more."""
    if noted(document) is None:
        return
    found = _SEAL.search(text)
    if found is None or found[1] != shown(zlib.crc32(_encoded(text[: found.start()]))):
        raise document[KEY].wrong(
            "the checksum of this file, which was damaged or edited after it was written. Copy or compile the program "
            f'again; if you edited it, take "{KEY}" out'
        )


def _encoded(text: str) -> bytes:
    return text.encode("utf-8", "backslashreplace")
