"""The last K states of a training: ``trained.ckpt``, and ``trained.cycle-300.ckpt``, ``trained.cycle-200.ckpt``.

The name that was asked for is always the newest state, a second link to the newest of the others.
"""

from __future__ import annotations

import logging
import os
import re
import shutil
from contextlib import suppress
from pathlib import Path

from ...ir.core.errors import RuntimeFailure
from ...ir.files.atomic import scratch_directory, sync_directory
from ..state.checkpoint import DamagedState
from .trainee import Trainee

log = logging.getLogger("boost_compile")


def save_and_retain(session: Trainee, path: str | os.PathLike[str], keep: int, sync: str = "none") -> None:
    """``session.save``, with the ``keep`` last states beside each other (1: none but ``path``). Called by all ranks."""
    path = Path(path)
    if keep == 1:
        session.save(path, sync)
        return
    cycle = 0 if session.data_position is None else session.data_position.cycle
    numbered = path.with_name(f"{path.stem}.cycle-{cycle}{path.suffix}")
    session.save(numbered, sync)
    if session.ranks.rank != 0:
        return
    try:
        with scratch_directory(path) as folder:
            link = folder / path.name
            try:
                os.link(numbered, link)
            except OSError:  # a file system without links
                shutil.copyfile(numbered, link)
                with open(link, "rb") as file:
                    os.fsync(file.fileno())
            os.replace(link, path)
        sync_directory(path.parent)
    except OSError as error:
        raise RuntimeFailure(f"{path}: cannot be written: {error.strerror or error}.") from error
    for old in previous_states(path)[keep:]:
        with suppress(OSError):
            old.unlink()


def previous_states(path: Path) -> list[Path]:
    """The states that were kept under ``path``, the newest first, which may be the same as ``path``. Of one moment
    (clocks of file systems have ticks of milliseconds) the later cycle is the newer."""
    pattern = re.compile(re.escape(path.stem) + r"\.cycle-(\d+)" + re.escape(path.suffix))
    try:
        with os.scandir(path.parent) as entries:
            kept = [(e, found) for e in entries if (found := pattern.fullmatch(e.name)) and e.is_file()]
            times = [(e.stat().st_mtime_ns, int(found[1]), Path(e.path)) for e, found in kept]
    except OSError:
        return []
    return [place for *_, place in sorted(times, reverse=True)]


def load_newest(session: Trainee, path: str | os.PathLike[str]) -> Path:
    """Loads the state at ``path``. If that is damaged, loads the newest of the states before it that is whole, and says
    so.

    Where there is none, raises the error of the first one. Ranks that share the files choose the same.
    """
    path = Path(path)
    older_states = previous_states(path)
    try:
        if older_states and not path.exists():
            raise DamagedState(f"{path}: no such file.")
        session.load_state(path)
        return path
    except DamagedState as error:
        for older in older_states:
            with suppress(DamagedState):
                session.load_state(older)
                log.warning("%s Using the state before it: %s", error, older)
                return older
        raise
