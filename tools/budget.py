"""Which micro-batch fits into a given memory, and how many of them make the wanted batch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ..ir.core.display import Displayed
from ..ir.core.errors import Error, OptionError, PassError
from ..ir.core.wording import counted

if TYPE_CHECKING:
    from ..ir.core.program import Program
    from ..passes.framework.base import Pass


@dataclass(frozen=True, slots=True)
class Candidate:
    """``steps`` micro-batches of ``size`` samples; ``bytes``: what a session of it will have in memory, or ``refused``:
    why the graph does not allow that size."""

    size: int
    steps: int
    bytes: int = 0
    refused: str = ""


@dataclass(frozen=True, slots=True)
class Plan(Displayed):
    """The candidates that were looked at, the largest micro-batch first, and the ``chosen`` one: the first that fits.
    ``pipeline`` holds the passes that make it.
    """

    budget: int
    candidates: tuple[Candidate, ...]
    chosen: Candidate
    pipeline: str


def batch_size(program: Program) -> int:
    """The samples of one micro-batch: the first axis of the first input that has one."""
    from ..ir.core.types import TensorType

    for graph in program.graphs.values():
        for value in graph.inputs:
            if isinstance(value.type, TensorType) and value.type.shape:
                return value.type.shape[0]
    raise PassError("no input of the program has a first axis that could be the batch")


def plan_memory(program: Program, budget: int, batch: int | None = None, passes: str | Sequence[Pass] = ()) -> Plan:
    """Finds the largest micro-batch that fits into ``budget`` bytes (of growth of the process, estimated for CPU: see
    ``docs/memory.md``) and divides ``batch``, the samples of one optimizer step; by default those of the file.

    ``passes`` are the other passes that the program will be compiled with. PassError with the table if nothing fits.
    """
    from ..passes.framework.manager import compile_program
    from ..passes.framework.pipeline import parse_pipeline
    from ..runtime.engine.footprint import footprint

    own = batch_size(program)
    wanted = own if batch is None else batch
    if own < 1:
        raise PassError("the batch of this graph is open, so its memory cannot be told: export it with a size")
    if wanted < 1:
        raise OptionError(f"a batch of {counted(wanted, 'sample')}: give at least 1")
    others = list(parse_pipeline(passes) if isinstance(passes, str) else passes)
    found: list[Candidate] = []
    chosen: Candidate | None = None
    for size in sorted((d for d in _divisors(wanted)), reverse=True):
        steps = wanted // size
        try:
            text = pipeline_of(own, size, steps)
            compiled = compile_program(
                program, [*parse_pipeline(text), *others], allow_no_match=True, reproducer_directory=None
            )
        except Error as error:
            found.append(Candidate(size, steps, refused=str(error)))
            if size == own:
                raise
            continue
        candidate = Candidate(size, steps, footprint(compiled).total)
        found.append(candidate)
        if candidate.bytes <= budget:
            chosen = candidate
            break
    if chosen is None:
        raise PassError(
            f"nothing fits into {budget} bytes; a batch of {counted(wanted, 'sample')} was tried as\n"
            + "\n".join(f"  {line}" for line in lines_of(found))
            + "\n  Give more memory, or a batch with smaller divisors."
        )
    return Plan(budget, tuple(found), chosen, pipeline_of(own, chosen.size, chosen.steps))


def pipeline_of(own: int, size: int, steps: int) -> str:
    """The passes for ``steps`` micro-batches of ``size`` samples, where the file has ``own``."""
    passes = [f"batch-size{{size={size}}}"] if size != own else []
    return ",".join([*passes, *([f"gradient-accumulation{{steps={steps}}}"] if steps > 1 else [])])


def lines_of(candidates: Sequence[Candidate], chosen: Candidate | None = None) -> list[str]:
    """A table for people."""
    lines = ["micro-batch   steps   memory"]
    for c in candidates:
        what = f"{c.bytes / 1e6:,.0f} MB" if not c.refused else "not possible"
        lines.append(f"{c.size:>11} {c.steps:>7}   {what}{'   chosen' if c is chosen else ''}")
    for reason in dict.fromkeys(c.refused for c in candidates if c.refused):
        first, *more = reason.splitlines()
        sizes = ", ".join(str(c.size) for c in candidates if c.refused == reason)
        lines += [f"not possible with {sizes}: {first}", *more]
    return lines


def _divisors(n: int) -> list[int]:
    low = [d for d in range(1, int(n**0.5) + 1) if n % d == 0]
    return sorted({*low, *(n // d for d in low)})
