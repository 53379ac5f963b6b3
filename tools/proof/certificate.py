"""The certificate of a proof, ``proof.json`` beside the program: written whole or not at all, read with checks."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ...ir.core.errors import FormatError, OptionError
from ...ir.core.program import Program
from ...ir.core.wording import agreed
from ...ir.files.atomic import replacing_file
from ...ir.files.document import Document
from ...ir.files.json_text import json_text
from ...ir.proof.laws import LAWS
from ...ir.proof.verdict import KINDS
from ...ir.symbolic.terms import Terms
from ..judged import with_reports
from ..recheck.checker import check as recheck
from ..verification import table
from ..verification.hashes import hashes
from .run import SEED, Proved, base_of, to_json

FILE = "proof.json"
FORMAT = 5
LARGEST = 1 << 30
"""Bytes of a certificate at most."""
LEFT_OUT = (FILE, table.FILE)


def hashes_of(original: Path, program: Path) -> dict[str, str]:
    """Of both sides, without what judges have stored beside the program."""
    return hashes(original, program, LEFT_OUT)


def certificate(found: Proved) -> dict[str, Any]:
    """The whole document: hashes, verdicts with their laws, terms, and what the checker needs."""
    roots = [t for v in found.proof.verdicts for t in (v.expected, v.found) if t is not None]
    numbers, terms = directed(found.terms, roots)
    verdicts = [
        {**entry, "expected": numbers.get(v.expected), "found": numbers.get(v.found)}  # type: ignore[arg-type]
        for entry, v in zip(to_json(found)["verdicts"], found.proof.verdicts, strict=True)
    ]
    laws = {name: {"holds": LAWS[name].holds, "where": LAWS[name].where} for name in found.proof.laws}
    return {
        "format": FORMAT, **to_json(found), "verdicts": verdicts, "laws": laws, "terms": terms,
        "cycle": found.certificate,
    }  # fmt: skip


def directed(terms: Terms, roots: list[int]) -> tuple[dict[int, int], list[dict[str, Any]]]:
    """The terms that the roots are made of as a list in which arguments come first, and the place of each."""
    order = terms.below(roots)
    numbers = {t: i for i, t in enumerate(order)}
    shown = []
    for t in order:
        head, node = terms.heads[t], terms.nodes[t]
        entry: dict[str, Any] = {
            "of": terms.name(t),
            "kind": str(head[0]),
            "takes": [numbers[a] for a in terms.arguments[t]],
        }
        if head[0] in ("state", "input", "symbol", "item"):
            entry["name"] = str(head[1])
        if head[0] == "const":
            entry["value"] = repr(terms.values.get(t))[:80]
        if head[0] == "sum":
            entry["coefficients"] = [[str(c), list(e)] for c, e in head[2]]  # type: ignore[attr-defined]
        if node is not None:
            entry["node"] = node.name
            if node.scope:
                entry["scope"] = node.scope
        shown.append(entry)
    return numbers, shown


def store(found: Proved, path: Path) -> None:
    with replacing_file(path) as file:
        file.write(json_text(certificate(found)).encode())


def check(path: Path, original: Path, program: Path, source: Program, compiled: Program) -> int:
    """Checks a stored certificate against two programs; returns how many verdicts it holds. FormatError where it is
    damaged, OptionError where it is about other files, Error where it does not hold."""
    try:
        if path.stat().st_size > LARGEST:
            raise FormatError(f"more than {LARGEST:,} bytes")
        d = Document.parse(path.read_text(encoding="utf-8"))
        if d["format"].integer(0) != FORMAT:
            raise FormatError(f"format {d['format'].integer(0)}, and this version reads {FORMAT}")
        written = {name: digest.text() for name, digest in d["hashes"].items()}
        verdicts = [v["verdict"].one_of(KINDS) for v in d["verdicts"].list()]
        proved = d["proved"].truth()
        terms = d["terms"].list()
        for i, term in enumerate(terms):
            if any(a.integer(0) >= i for a in term["takes"].list()):
                raise FormatError(f"{term.place}: takes a term that does not come before it")
        cycle = _cycle(d["cycle"])
    except OSError as error:
        raise FormatError(f"{path}: cannot be read: {error.strerror}") from None
    except UnicodeDecodeError:
        raise FormatError(f"{path}: not UTF-8, so no certificate of boost-prove") from None
    except FormatError as error:
        raise FormatError(f"{path}: {error}; run boost-prove again") from None
    now = hashes_of(original, program)
    if written != now:
        other = sorted(n for n in {**written, **now} if written.get(n) != now.get(n))
        names = f"{', '.join(other[:3])} {agreed(len(other), 'is', 'are')}"
        raise OptionError(f"{path} is about other files: {names} not what was proved; prove it again")
    if not proved:
        raise OptionError(f"{path} proves nothing: its verdicts are not all proved")
    compiled = with_reports(compiled)
    recheck(cycle, base_of(source, compiled), compiled, SEED + 1)
    return len(verdicts)


def _cycle(d: Document) -> dict[str, Any]:
    def adds(of: Document) -> dict[str, list[list[Any]]]:
        found: dict[str, list[list[Any]]] = {}
        for name, entries in of.items():
            found[name] = []
            for entry in entries.list():
                seam, factor, scales = entry.list()
                found[name].append([None if seam.value is None else seam.text(), _fraction(factor), scales.texts()])
        return found

    def counted(state: Document, steps: Document) -> list[Any]:
        return [state.text(), steps.integer(1)]

    def formula(of: Document) -> dict[str, Any] | None:
        if of.value is None:
            return None
        pairs = {key: [list(pair.texts()) for pair in of[key].list()] for key in ("takes", "gives")}
        return {"graph": of["graph"].text(), "at": {n: node.text() for n, node in of["at"].items()}, **pairs}

    def rule(of: Document) -> list[Any]:
        takes, after, *texts = of.list()
        return [list(takes.texts()), list(after.texts()), *(text.text() for text in texts)]

    if "variants" in d.object():
        return {"variants": [_cycle(v) for v in d["variants"].list()]}
    return {
        "frozen": list(d["frozen"].texts()),
        "idle": list(d["idle"].texts()),
        "formula": formula(d["formula"]),
        "averaged": d["averaged"].truth(),
        "counted": None if d["counted"].value is None else counted(*d["counted"].list()),
        "reduction": d["reduction"].text(),
        "weight": None if d["weight"].value is None else d["weight"].text(),
        "ranks": None if d["ranks"].value is None else d["ranks"].text(),
        "scales": list(d["scales"].texts()),
        "alike": d["alike"].truth(),
        "rounds": d["rounds"].truth(),
        "rules": {name: rule(of) for name, of in d["rules"].items()},
        "loose": list(d["loose"].texts()),
        "tested": d["tested"].truth(),
        "itself": d["itself"].truth(),
        "accumulating": d["accumulating"].text(),
        "updating": list(d["updating"].texts()),
        "adds": adds(d["adds"]),
        "drops": adds(d["drops"]),
    }


def _fraction(d: Document) -> str:
    from fractions import Fraction

    try:
        return str(Fraction(d.text()))
    except (ValueError, ZeroDivisionError):
        raise d.wrong("a fraction") from None
