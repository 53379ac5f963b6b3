"""How a training that did not come to its end goes on: the command, and whether there is one."""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from .. import interruption

if TYPE_CHECKING:
    from .job import Job

STARTING_STATE = {"--load": True, "--load-adapter": True, "--resume": True, "--set": True, "--partial": False}
"""The options that say what state a training starts from, and whether they take a value."""


def command_after(job: Job, state: str) -> str:
    """The command that goes on from a state file of this training."""
    return shlex.join(["boost-run", *without(job.arguments, STARTING_STATE), "--resume", state])


def without(arguments: tuple[str, ...], options: Mapping[str, bool]) -> Iterator[str]:
    """The words of a command without some options; ``options`` says of each whether it takes a value."""
    words = iter(arguments)
    for word in words:
        option, equals, _ = word.partition("=")
        if option not in options:
            yield word
        elif options[option] and not equals:
            next(words, None)


def outcome(job: Job, started: int) -> tuple[int, str]:
    """The exit code of an interrupted training that began at ``started`` (nanoseconds), and what it says: how to go on,
    where a state of it is there."""
    if job.save is not None and written_since(job.save, started):
        return (
            interruption.RESUMABLE,
            f"interrupted, and {job.save} holds the last saved state: {command_after(job, job.save)}",
        )
    if job.resume is not None:
        return interruption.RESUMABLE, f"interrupted, and nothing new was saved: {command_after(job, job.resume)}"
    hint = "" if job.save is not None else " (--save keeps the state)"
    return interruption.EXIT_CODE, f"interrupted, and nothing was saved{hint}"


def written_since(path: str, started: int) -> bool:
    """Whether there is such a file that was written after that time (nanoseconds)."""
    try:
        return os.stat(path).st_mtime_ns >= started
    except OSError:
        return False
