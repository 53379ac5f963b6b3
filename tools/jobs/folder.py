"""The messages of a job's ranks to the process that watches them: small JSON files in a folder of the job."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ...ir.core.errors import RuntimeFailure
from ...ir.files.json_text import plain

VARIABLE = "BOOST_RUN_JOB"
"""The environment variable that names the folder to the ranks; unset in a rank that no boost-run watches."""

KINDS = PROGRESS, EPOCHS, RESULT, FAILURE = "progress", "epochs", "result", "failure"


@dataclass(frozen=True, slots=True)
class JobFolder:
    path: Path

    @staticmethod
    def of_environment() -> JobFolder | None:
        name = os.environ.get(VARIABLE)
        return None if name is None else JobFolder(Path(name))

    def tell(self, rank: int, kind: str, document: dict[str, Any]) -> None:
        """Replaces what the rank told before of this kind."""
        path = self._place(rank, kind)
        unfinished = path.with_suffix(".part")
        unfinished.write_text(json.dumps(document, default=plain), encoding="utf-8")
        os.replace(unfinished, path)

    def told(self, rank: int, kind: str) -> dict[str, Any] | None:
        path = self._place(rank, kind)
        try:
            document = json.loads(path.read_text(encoding="utf-8"))
        except FileNotFoundError:
            return None
        except (ValueError, RecursionError):
            document = None
        if not isinstance(document, dict):
            raise RuntimeFailure(f"{path}: is not what a rank of this job tells; start the job again")
        return document

    def stamp(self, rank: int, kind: str) -> object:
        """Changes with what the rank told last of this kind; None before."""
        try:
            found = os.stat(self._place(rank, kind))
        except FileNotFoundError:
            return None
        return found.st_ino, found.st_mtime_ns

    @property
    def output(self) -> Path:
        """The standard output of rank 0."""
        return self.path / "stdout.txt"

    def _place(self, rank: int, kind: str) -> Path:
        return self.path / f"rank_{rank}.{kind}.json"
