"""Errors that a user, a file or an option can cause. Anything else that escapes is a bug of ours."""

from __future__ import annotations

from typing import TypeVar


class Error(Exception):
    """Base of every error with a cause outside this program: it says what, where and what to do.

    ``message`` holds for every door. Where Python and the commands have other words for what to do, ``python`` and
    ``command`` say it: ``str(error)`` ends with the one, the commands show the other (:meth:`at_command`). An option
    that not all commands have stands behind the name of one that has it: ``boost-compile --accumulate``.
    """

    def __init__(self, message: str = "", *, python: str = "", command: str = ""):
        super().__init__(message)
        self.message = message
        self.python = python
        self.command = command
        self.postscript = ""
        """Lines at the end of both wordings."""

    def __str__(self) -> str:
        return _joined(self.message, self.python) + self.postscript

    def at_command(self) -> str:
        """The message in the words of the commands."""
        return _joined(self.message, self.command) + self.postscript

    def behind(self, prefix: str, kind: type[E]) -> E:
        """An error of another kind that says the same, behind ``prefix``."""
        made = kind(prefix + self.message, python=self.python, command=self.command)
        made.postscript = self.postscript
        return made


E = TypeVar("E", bound=Error)


def _joined(message: str, remedy: str) -> str:
    return f"{message} {remedy}" if message and remedy else message or remedy


class FormatError(Error):
    """A file is not what it claims to be: truncated, corrupt, encrypted, of an unknown version."""


class AnatomyError(Error):
    """The graph is not a training graph, or a part of its training anatomy cannot be established."""


class NotTraining(AnatomyError):
    """The graph trains nothing: it has no gradients, or updates nothing."""


class VerifyError(Error):
    """A graph breaks a rule that the emitter or MindSpore relies on."""


class OptionError(Error, ValueError):
    """A pass, an option or a value in a pipeline or a configuration that does not exist or is out of range."""


class PassError(Error):
    """A pass cannot do what was asked on this program (no match, unsupported structure)."""


class NotApplicable(PassError):
    """A pass finds no place for itself in this network. Raised before anything is changed."""


class RuntimeFailure(Error):
    """Running a program failed for a reason the user can mend: wrong shapes, missing state, no device."""


MOST_NAMED = 40
"""How many names a message lists."""


def nearest(word: str, known: list[str]) -> str:
    """`` (did you mean 'x'?)`` for a word close to a known one, else all that is known; of many names the nearest."""
    import difflib

    names = sorted(set(known))
    if not names:
        return " (there are none)"
    few = len(names) <= MOST_NAMED
    close = difflib.get_close_matches(word, names, n=1 if few else 3, cutoff=0.5)
    if close:
        return f" (did you mean {' or '.join(repr(name) for name in close)}?)"
    if few:
        return f" (known: {', '.join(names)})"
    close = difflib.get_close_matches(word, names, n=3, cutoff=0.0)
    return f" (the nearest of its {len(names):,} names: {', '.join(close)})"
