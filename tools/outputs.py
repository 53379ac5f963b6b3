"""Where commands write: what the suffix of a name says, and what a command must not replace."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from pathlib import Path

from . import cli


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
    ``force``. ``recognised=False`` is for what has no form of its own, such as tables: they replace empty files alone.
    """
    from ..ir.core.errors import OptionError
    from ..ir.files.heads import is_like_its_name
    from ..ir.formats.storage.save import refuse_inside_program

    cli.check_writable(output)
    path = Path(output)
    refuse_inside_program(path)
    if not path.exists():
        return
    for given in inputs:
        if given and given != "-" and os.path.exists(given) and os.path.samefile(given, path):
            raise OptionError(f"'{output}' is the input, which is never replaced: name another file with -o")
    if force or not path.is_file() or not path.stat().st_size:
        return
    if not recognised or not is_like_its_name(path):
        other = "what it holds is not what its name says: it was written by something else"
        why = other if recognised else "text like this cannot be told from anybody's notes"
        raise OptionError(f"'{output}' exists, and {why}. Name another file with -o, or replace it with --force")
