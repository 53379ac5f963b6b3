"""The schedule as one turn a micro-batch."""

from __future__ import annotations

from dataclasses import dataclass

from ...ir.core.errors import RuntimeFailure
from ...ir.core.program import Program, Schedule


@dataclass(frozen=True, slots=True)
class Turn:
    """The graphs that run, in order, when one micro-batch arrives; ``consumer`` is the one that takes it."""

    graphs: tuple[str, ...]
    consumer: str


def plan_turns(program: Program, schedule: Schedule) -> list[Turn]:
    """Turn i runs when i micro-batches of a cycle of ``schedule`` (the program's, or a variant of it) have been
    consumed.

    Graphs that consume none run right after the entry before them; those that open the cycle, before its first graph.
    """
    turns: list[Turn] = []
    opening: list[str] = []
    for entry in schedule.cycle:
        for _ in range(entry.repeat):
            if program.consumes(entry.graph):
                turns.append(Turn((*opening, entry.graph), entry.graph))
                opening = []
            elif turns:
                turns[-1] = Turn((*turns[-1].graphs, entry.graph), turns[-1].consumer)
            else:
                opening.append(entry.graph)
    if not turns:
        raise RuntimeFailure(
            f"no graph of program '{program.name}' takes an input, so there is nothing to feed. "
            f"Export the training cell with its data as inputs."
        )
    return turns
