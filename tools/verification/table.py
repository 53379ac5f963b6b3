"""A verification as people and machines read it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from ...ir.core.wording import sentence
from ...ir.files.atomic import replacing_file
from ...ir.files.json_text import json_text
from .. import cli
from ..tables import say
from .report import (
    FAILED,
    LEFT_OUT,
    NOT_APPLICABLE,
    PASSED,
    VACUOUS,
    Deviation,
    Result,
    Verification,
    numbers_of,
)

if TYPE_CHECKING:
    from rich.console import Console

FILE = "verification.json"
"""Its name in a program directory."""
_STYLES = {PASSED: "green", FAILED: "bold red", VACUOUS: "yellow", NOT_APPLICABLE: "dim"}


def store(found: Verification, program: Path) -> None:
    """Writes the result into a program directory, in place of an older one, whole or not at all."""
    with replacing_file(program / FILE) as file:
        file.write(json_text(found.to_json()).encode())


def print_verification(found: Verification, out: Console, *, verbose: bool = False) -> None:
    """The verdict, then what is wrong; ``verbose``: each property too, or why it does not apply."""
    say(out, cli.escape(found.verdict()))
    for r in found.results:
        if r.status in (FAILED, VACUOUS):
            what = f"{sentence(r.promise)} Measured: {sentence(_sentence(r))}"
            say(out, f"{r.status}: {r.name}: {cli.escape(what)}")
    if found.guilty is not None:
        say(out, cli.escape(_blame(found)), "bold red")
    if verbose:
        _print_properties(found, out)


def _print_properties(found: Verification, out: Console) -> None:
    numbers = ("error", "tolerance", "ulp", "ulp tolerance")
    shown = cli.table("", "property", "result", *numbers, "worst state", "measured", numbers=numbers)
    for r in found.results:
        if r.status not in (NOT_APPLICABLE, LEFT_OUT):
            style = _STYLES[r.status]
            shown.add_row(
                r.name,
                f"[{style}]{r.status}[/{style}]",
                *numbers_of(r),
                cli.escape(_where(r.deviation)),
                cli.escape(r.detail),
            )
    out.print(shown)
    say(
        out,
        "Errors and tolerances are relative to how far training moves the state; ulp are units in its last place.",
        "dim",
    )
    reasons: dict[str, list[str]] = {}
    for r in found.results:
        if r.status == NOT_APPLICABLE:
            reasons.setdefault(r.detail, []).append(r.name)
    for reason, names in reasons.items():
        say(out, f"not applicable: {', '.join(names)} ({cli.escape(reason)})", "dim")
    for note in found.notes:
        say(out, f"Note: {cli.escape(note)}")


def _where(d: Deviation | None) -> str:
    return "" if d is None else d.where


def _sentence(r: Result) -> str:
    d = r.deviation
    if d is None or not d.where:
        return r.detail
    off = (
        f"{d.where} is off by {d.error:.3g}, {d.relative:.2g} of its move, where {d.tolerance_relative:.2g} is allowed"
    )
    return f"{off} ({r.detail})" if r.detail else off


def _blame(found: Verification) -> str:
    guilty = found.guilty
    assert guilty is not None
    if not guilty.name:
        return (
            f"No pass is guilty: {sentence(guilty.note)} The program was changed after compilation, or made by "
            "other versions."
        )
    return (
        f"Guilty: pass {guilty.number} of {guilty.passes}, {guilty.name}: '{guilty.result.name}' holds without it and "
        f"fails with it ({_sentence(guilty.result)})"
    )
