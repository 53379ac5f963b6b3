"""Which micro-batch fits into a given memory, how many of them make the wanted batch, and what is computed again."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from ..ir.core.display import Displayed
from ..ir.core.errors import Error, OptionError, PassError
from ..ir.core.wording import counted, parse_bytes, print_budget

if TYPE_CHECKING:
    from ..ir.core.program import Program
    from ..passes.framework.base import Pass


@dataclass(frozen=True, slots=True)
class Candidate:
    """``steps`` micro-batches of ``size`` samples; ``bytes``: what a session of it will have in memory, or ``refused``:
    why the graph does not allow that. ``time``: the estimated time of an optimizer step in picoseconds, by the
    measured times of primitives. ``recompute``: whether parts of the forward part run again, as many as the budget asks
    for."""

    size: int
    steps: int
    bytes: int = 0
    refused: str = ""
    time: int = 0
    recompute: bool = False


@dataclass(frozen=True, slots=True)
class Plan(Displayed):
    """The candidates that were looked at, the largest micro-batch first, and the ``chosen`` one: of those that fit, the
    one that takes least time. ``pipeline`` holds the passes that make it.
    """

    budget: int
    candidates: tuple[Candidate, ...]
    chosen: Candidate
    pipeline: str

    def __str__(self) -> str:
        return "\n".join(lines_of(self.candidates, self.chosen))


def batch_size(program: Program) -> int:
    """The samples of one micro-batch: the first axis of the first input that has one."""
    from ..ir.core.types import TensorType

    for graph in program.graphs.values():
        for value in graph.inputs:
            if isinstance(value.type, TensorType) and value.type.shape:
                return value.type.shape[0]
    raise PassError("no input of the program has a first axis that could be the batch")


def plan_memory(
    program: Program, budget: int | str, batch: int | None = None, passes: str | Sequence[Pass] = ()
) -> Plan:
    """Finds the micro-batch that fits into ``budget`` (bytes, or a text such as ``8GB``, of growth of the process,
    estimated for CPU: see ``docs/memory.md``) and divides ``batch``, the samples of one optimizer step; by default
    those of the file. Sizes are tried from the largest to the first that fits. A size that does not fit is also tried
    with ``recompute``. Of those that fit the one that takes least time is taken, and of equal ones the largest
    micro-batch.

    ``passes`` are the other passes that the program will be compiled with. PassError with the table if nothing fits.
    """
    from ..passes.framework.pipeline import parse_pipeline

    budget = parse_bytes(str(budget))
    own = batch_size(program)
    wanted = own if batch is None else batch
    if own < 1:
        raise PassError("the batch of this graph is open, so its memory cannot be told: export it with a size")
    if wanted < 1:
        raise OptionError(f"a batch of {counted(wanted, 'sample')}: give at least 1")
    others = list(parse_pipeline(passes) if isinstance(passes, str) else passes)
    found: list[Candidate] = []
    for size in sorted((d for d in _divisors(wanted)), reverse=True):
        plain = Candidate(size, wanted // size)
        try:
            plain = _judged(program, plain, own, budget, others)
        except Error as error:
            found.append(replace(plain, refused=str(error)))
            if size == own:
                raise
            continue
        found.append(plain)
        if plain.bytes <= budget:
            break
        if all(other.name != "recompute" for other in others):
            with suppress(Error):  # what it cannot do at this size is no news
                found.append(_judged(program, replace(plain, recompute=True), own, budget, others))
    fitting = [c for c in found if not c.refused and c.bytes <= budget]
    if not fitting:
        possible = [c.bytes for c in found if not c.refused]
        advice = f"{-(-min(possible) // 10**6):,} MB or more" if possible else "a batch with other divisors"
        raise PassError(
            f"nothing fits into {print_budget(budget)}; a batch of {counted(wanted, 'sample')} was tried as\n"
            + "\n".join(f"  {line}" for line in lines_of(found))
            + f"\n  Give {advice}."
        )
    chosen = min(fitting, key=lambda c: c.time)
    return Plan(budget, tuple(found), chosen, pipeline_of(own, chosen, budget))


def _judged(program: Program, candidate: Candidate, own: int, budget: int, others: Sequence[Pass]) -> Candidate:
    """The candidate with its memory and its time."""
    from ..ir.analysis.cost.times import of_cycle
    from ..passes.framework.manager import compile_program
    from ..passes.framework.pipeline import parse_pipeline
    from ..runtime.engine.footprint import footprint

    passes = [*parse_pipeline(pipeline_of(own, candidate, budget)), *others]
    compiled = compile_program(program, passes, allow_no_match=True, reproducer_directory=None)
    return replace(candidate, bytes=footprint(compiled).total, time=of_cycle(compiled))


def pipeline_of(own: int, candidate: Candidate, budget: int) -> str:
    """The passes that make a candidate, where the file has ``own`` samples."""
    passes = [f"batch-size{{size={candidate.size}}}"] if candidate.size != own else []
    passes += [f"gradient-accumulation{{steps={candidate.steps}}}"] if candidate.steps > 1 else []
    passes += [f"recompute{{budget={budget}}}"] if candidate.recompute else []
    return ",".join(passes)


def lines_of(candidates: Sequence[Candidate], chosen: Candidate | None = None) -> list[str]:
    """A table for people. Time is by that of the first candidate that is possible."""
    lines = ["micro-batch   steps   memory       time"]
    first = next((c.time for c in candidates if c.time), 1)
    for c in candidates:
        what = f"{c.bytes / 1e6:>7,.0f} MB {c.time / first:>8.2f} x" if not c.refused else "not possible"
        again = "   recompute" if c.recompute else ""
        lines.append(f"{c.size:>11} {c.steps:>7}   {what}{again}{'   chosen' if c is chosen else ''}")
    for reason in dict.fromkeys(c.refused for c in candidates if c.refused):
        first_line, *more = reason.splitlines()
        sizes = ", ".join(str(c.size) for c in candidates if c.refused == reason)
        lines += [f"not possible with {sizes}: {first_line}", *more]
    return lines


def _divisors(n: int) -> list[int]:
    low = [d for d in range(1, int(n**0.5) + 1) if n % d == 0]
    return sorted({*low, *(n // d for d in low)})
