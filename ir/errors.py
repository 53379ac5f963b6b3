"""Errors that a user, a file or an option can cause. Anything else that escapes is a bug of ours."""

from __future__ import annotations


class Error(Exception):
    """Base of every error with a cause outside this program: it says what, where and what to do."""


class FormatError(Error):
    """A file is not what it claims to be: truncated, corrupt, encrypted, of an unknown version."""


class AnatomyError(Error):
    """The graph is not a training graph, or a part of its training anatomy cannot be established."""


class VerifyError(Error):
    """A graph breaks a rule that the emitter or MindSpore relies on."""


class OptionError(Error):
    """A pass, an option or a value in a pipeline that does not exist or is out of range."""


class PassError(Error):
    """A pass cannot do what was asked on this program (no match, unsupported structure)."""


class NotApplicable(PassError):
    """A pass finds no place for itself in this network. Raised before anything is changed."""


class RuntimeFailure(Error):
    """Running a program failed for a reason the user can mend: wrong shapes, missing state, no device."""


def nearest(word: str, known: list[str]) -> str:
    """`` (did you mean 'x'?)`` for a word close to a known one, else the list of what is known."""
    import difflib

    close = difflib.get_close_matches(word, known, n=1, cutoff=0.5)
    return f" (did you mean '{close[0]}'?)" if close else f" (known: {', '.join(sorted(known))})"
