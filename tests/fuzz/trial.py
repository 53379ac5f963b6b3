"""One input tried by one reader: what it did that no input may do."""

from __future__ import annotations

import os
import traceback
import warnings
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from boost_compile.ir.core.errors import Error, FormatError
from boost_compile.passes.framework.manager import BrokenProgram

from .limits import Greed, Hang, limited
from .readers import Reader

PLACE = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None


@dataclass(frozen=True)
class Finding:
    """``signature`` is alike for inputs that meet the same defect."""

    signature: str
    detail: str


def trial(reader: Reader, data: bytes) -> Finding | None:
    """None if the reader took the input, or refused it with a clear error."""
    with TemporaryDirectory(prefix="boost-fuzz-", dir=PLACE) as name:
        folder = Path(name, "inner")
        folder.mkdir()
        try:
            with warnings.catch_warnings(), limited(len(data)):
                warnings.simplefilter("ignore")
                reader.read(data, folder)
        except BrokenProgram as error:
            return _finding(error)
        except Error as error:
            text = str(error)
            if not text.strip() or (isinstance(error, FormatError) and "\x1b" in text):
                return Finding("message", repr(text))
        except (Exception, Hang, Greed) as error:
            return _finding(error)
        if os.listdir(name) != ["inner"]:
            return Finding("outside", f"left {os.listdir(name)}")
        return _half_written(folder)


def _half_written(folder: Path) -> Finding | None:
    scratch = [str(path) for path in folder.rglob(".*")]
    return Finding("scratch", f"left {scratch}") if scratch else None


def _finding(error: BaseException) -> Finding:
    """Known by its kind and the innermost line of the project on the way to it."""
    cause: BaseException = error
    while isinstance(cause, Exception) and type(cause).__name__ == "InternalError" and cause.__cause__ is not None:
        cause = cause.__cause__
    frames = [f for f in traceback.extract_tb(cause.__traceback__) if "/fuzz/" not in f.filename]
    ours = [f for f in frames if "site-packages" not in f.filename and "/lib/python" not in f.filename] or frames
    where = f"{Path(ours[-1].filename).name}:{ours[-1].name}" if ours else "?"
    kind = type(cause).__name__
    if kind == "RecursionError" and ours:
        where = Counter(f"{Path(f.filename).name}:{f.name}" for f in ours).most_common(1)[0][0]
    lines = "".join(traceback.format_exception(cause)[-6:])
    return Finding(f"{kind} at {where}", lines[-3000:])
