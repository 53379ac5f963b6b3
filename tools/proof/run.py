"""A proof from two programs: the prover, with the original in the primitives that the program was made for."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from ...ir.analysis.batch.joins import NEVER
from ...ir.core.display import Displayed
from ...ir.core.errors import OptionError
from ...ir.core.graph import Node
from ...ir.core.naming import printable
from ...ir.core.predicates import written_operands
from ...ir.core.program import Program
from ...ir.core.types import is_monad
from ...ir.core.wording import counted
from ...ir.proof.formulas import replaced, restated
from ...ir.proof.prover import given_up
from ...ir.proof.prover import prove as run_prover
from ...ir.proof.verdict import UNPROVED, Proof, Verdict
from ...ir.symbolic.execution import Unproved
from ...ir.symbolic.terms import Terms
from ...passes.framework.manager import compile_program
from ...passes.legalize import Legalize
from ..judged import changed_by, trained_as, with_reports
from ..original import check_original

LEGALIZE = "legalize"
JOINED = "how the loss joins samples: as gradient-accumulation found it"
LEGALIZED = "what pass legalize made of the original: it is taken to compute the same"


MOST = 8
"""So many states are named one by one in a row, and so many failures are shown."""


@dataclass(repr=False)
class Proved(Displayed):
    """``proof`` with its ``terms``; ``hashes``: of the files, by role and name. It is true where all is ``proved``."""

    proof: Proof
    terms: Terms
    program: Program
    hashes: dict[str, str] = field(default_factory=dict)

    @property
    def proved(self) -> bool:
        """Whether everything is proved."""
        return self.proof.proved

    def __bool__(self) -> bool:
        return self.proved

    def __repr__(self) -> str:
        failures = alike(self.proof.failures)
        lines = [self.verdict(), *(not_proved(v, names) for v, names in failures[:MOST])]
        if more := unnamed(failures):
            lines.append(f"… and {more} more")
        return "\n  ".join(map(printable, lines))

    def verdict(self) -> str:
        """The result in a sentence: what is proved, as what passes change it on purpose, and what that rests on."""
        if self.proved:
            changed = changed_by([s.by for s in self.proof.stated])
            rests = ", ".join(what.partition(":")[0] for what in self.proof.trusted)
            trusting = f" Trusted: {rests}." if rests else ""
            return (
                f"Proved, for all inputs: it trains {trained_as(self.program)}{changed}{self.proof.besides}.{trusting}"
            )
        n = len({(v.what, v.name) for v in self.proof.failures})
        what = counted(n, "state or result", "states or results")
        return f"NOT proved: {what}. This does not say that the program is wrong: boost-verify runs it."


def alike(failures: list[Verdict]) -> list[tuple[Verdict, list[str]]]:
    """Failures that differ in the name of the state or result alone are one, with all names."""
    found: dict[Verdict, tuple[Verdict, dict[str, None]]] = {}
    for v in failures:
        found.setdefault(replace(v, name=""), (v, {}))[1][v.name] = None
    return [(v, list(names)) for v, names in found.values()]


def unnamed(failures: list[tuple[Verdict, list[str]]]) -> int:
    """How many states and results only those failures name that are not shown."""
    shown = {(v.what, name) for v, names in failures[:MOST] for name in names}
    return len({(v.what, name) for v, names in failures for name in names} - shown)


def not_proved(v: Verdict, names: list[str]) -> str:
    """What is not proved of these states or results, in words."""
    where = f" in graph '{v.graph}'" if v.graph else ""
    of = f"{v.what} '{v.name}'" if len(names) == 1 else named(v.what, names)
    return f"not proved: {of}{where}" + (f": {v.detail}" if v.detail else "")


def named(what: str, names: list[str]) -> str:
    """States or results by name; only the first of many."""
    if len(names) > MOST:
        return f"{counted(len(names), what)} ({', '.join(names[:3])}, …)"
    return f"{what} {', '.join(names)}"


def check_made_from(original: Program, program: Program) -> None:
    """OptionError for two programs of which a proof would say nothing."""
    if len(original.graphs) != 1 or original.pipeline:
        raise OptionError("the original is compiled already: give the training graph that the program was made from")
    check_original(original, program)
    missing = [name for name in original.state if name not in program.state]
    if missing and all(r.preserves for r in program.reports):
        raise OptionError(f"the program was not made from this original: it has no state '{missing[0]}'")
    for name, variable in original.state.items():
        mine = program.state.get(name)
        if mine is None or (variable.role != "weight" and any(r.name == replaced.PASS for r in program.reports)):
            continue
        if (mine.dtype, mine.shape) != (variable.dtype, variable.shape):
            raise OptionError(
                f"the program was not made from this original: state '{name}' is {mine.type}, and there {variable.type}"
            )


def prove(original: Program, program: Program) -> Proved:
    """Proves; a program that is not proved has an unproved verdict."""
    program = with_reports(program)
    check_made_from(original, program)
    try:
        base = base_of(original, program)
    except Unproved as reason:
        return Proved(given_up(original, program, str(reason)), Terms(), program)
    proof, terms = run_prover(base, program)
    if legalized(original, program):
        proof.trusted.append(LEGALIZED)
    if program.micro_batches() > 1 and any(r.statistics.get("big batch", NEVER) != NEVER for r in program.reports):
        proof.trusted.append(JOINED)
    return Proved(proof, terms, program)


def base_of(original: Program, program: Program) -> Program:
    """The original that a program is compared with: in the primitives of the program's target, if the program was
    legalized for it, and as formulas of whole graphs state it. :class:`Unproved` where they cannot."""
    if legalized(original, program):
        made = [Legalize(target=program.target)]
        original = compile_program(original, made, allow_no_match=True, reproducer_directory=None)
    return restated(original, program)


def legalized(original: Program, program: Program) -> bool:
    return any(r.name == LEGALIZE for r in program.reports) and bool(Legalize.needed_for(original, program.target))


def guilty(verdict: Verdict, program: Program) -> str:
    """The pass that last touched what leads to a state that is not proved, the nearest node first; empty where no node
    tells."""
    graph = program.graphs.get(verdict.graph)
    if verdict.kind != UNPROVED or graph is None:
        return ""
    writers = [
        node
        for body in graph.all_graphs()
        for node in body
        for i in written_operands(node)
        if getattr(node.operand(i), "name", "") == verdict.name
    ]
    near, seen = list[Node](writers), set(writers)
    for node in near:  # breadth first
        if node.origin is not None and node.origin.passes:
            return node.origin.passes[-1]
        more = [v for v in node.operands if isinstance(v, Node) and v not in seen and not is_monad(v.type)]
        near.extend(more)
        seen.update(more)
    return ""


def to_json(found: Proved) -> Mapping[str, Any]:
    """The verdicts, for machines."""
    return {
        "proved": found.proved,
        "claim": found.proof.claim,
        "trains": trained_as(found.program),
        "verdicts": [
            {
                "what": v.what, "name": v.name, "verdict": v.kind, "detail": v.detail,
                "graph": v.graph, "pass": guilty(v, found.program),
            }
            for v in found.proof.verdicts
        ],
        "changed": [
            {"pass": s.by, "options": dict(s.options), "says": s.says, "weights": list(s.weights)}
            for s in found.proof.stated
        ],
        "trusted": found.proof.trusted,
        "hashes": found.hashes,
    }  # fmt: skip
