"""A proof as people read it: the verdict, what is not proved, with the first terms that differ."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...ir.core.program import Program
from ...ir.proof.formulas.statement import Stated
from ...ir.proof.verdict import KINDS, OWN, PURPOSE, REALS, SAME, UNPROVED, Verdict
from ...ir.symbolic.terms import Terms
from .. import cli
from ..tables import say
from .run import MOST, Proved, alike, guilty, named, not_proved, unnamed

if TYPE_CHECKING:
    from rich.console import Console

_STYLES = {SAME: "green", REALS: "green", PURPOSE: "cyan", OWN: "dim", UNPROVED: "bold red"}
_DEEP = 3
"""Levels of a term that are shown."""


def print_proof(found: Proved, out: Console, *, verbose: bool = False) -> None:
    """The verdict, then what is not proved; ``verbose``: of each state and result too, and what that rests on."""
    say(out, cli.escape(found.verdict()))
    failures = alike(found.proof.failures)
    for v, names in failures[:MOST]:
        say(out, cli.escape(failure(v, names, found.terms, found.program)), "red")
    if more := unnamed(failures):
        say(out, f"and {more} more that are not proved (--json lists all)", "red")
    if verbose:
        _print_verdicts(found, out)


def _print_verdicts(found: Proved, out: Console) -> None:
    rows: dict[tuple[str, str, str], list[str]] = {}
    for v in found.proof.verdicts:
        if v.kind != UNPROVED:
            rows.setdefault((v.kind, v.what, v.detail), []).append(v.name)
    shown = cli.table("", "verdict", "of", "where")
    for kind in KINDS:
        for (verdict, what, detail), names in rows.items():
            if verdict == kind:
                style = _STYLES[kind]
                shown.add_row(
                    f"[{style}]{kind}[/{style}]",
                    cli.escape(named(what, list(dict.fromkeys(names)))),
                    cli.escape(detail),
                )
    if rows:
        out.print(shown)
    say(out, cli.escape(f"Claim: {found.proof.claim}"))
    for stated in found.proof.stated:
        say(out, cli.escape(f"Changed on purpose by {stated.by}: {stated.says}{_of(stated)}"), "cyan")
    for trusted in found.proof.trusted:
        say(out, cli.escape(f"Trusted: {trusted}"), "dim")


def _of(stated: Stated) -> str:
    """Which weights a formula is about."""
    return f" ({named('weight', list(stated.weights))})" if stated.weights else ""


def failure(v: Verdict, names: list[str], terms: Terms, program: Program) -> str:
    """What is not proved of these states or results, in words, with the first terms that differ."""
    lines = [not_proved(v, names)]
    by = guilty(v, program)
    if by:
        lines.append(f"last touched by pass {by}")
    for label, number in (("expected", v.expected), ("found", v.found)):
        if number is not None:
            lines.append(f"{label}: {spelled(terms, number)}")
            node = terms.nodes[number]
            if node is not None and node.scope:
                lines.append(f"  at %{node.name}, {node.scope}")
    return "\n  ".join(lines)


def spelled(terms: Terms, number: int, deep: int = _DEEP) -> str:
    """A term in words, so many levels of it."""
    head, arguments = terms.heads[number], terms.arguments[number]
    kind = head[0]
    if kind in ("state", "held"):
        return str(head[1])
    if kind == "input":
        return f"input {head[1]}"
    if kind == "const":
        value = terms.values.get(number)
        return str(value) if isinstance(value, (bool, int, float, str)) else _constant(terms, number)
    if deep == 0:
        return "…"
    inner = [spelled(terms, a, deep - 1) for a in arguments]
    if kind == "ite":
        return f"({inner[1]} if {inner[0]} else {inner[2]})"
    if kind == "item":
        return f"{inner[0]}[{head[1]}]"
    return f"{terms.name(number)}({', '.join(inner)})"


def _constant(terms: Terms, number: int) -> str:
    from ...ir.core.attributes import TensorValue
    from ...ir.core.data import to_numpy

    value = terms.values.get(number)
    if isinstance(value, TensorValue) and value.type.size == 1 and value.type.dtype.value != "string":
        return f"{to_numpy(value.type, value.data).reshape(-1)[0].item():g}"
    return f"constant {value.type}" if isinstance(value, TensorValue) else repr(value)[:30]
