"""Who holds what in a job: the weights that ranks deal out, each whole to one of them or cut into a piece for each.

A program says only which states are dealt out and whether their weight may be cut (the note :data:`OWNED`). How many
ranks there are is known when a job starts, and every rank comes to the same answer by itself. Whole weights go by
longest processing time first (Graham, Bounds on Multiprocessing Timing Anomalies, 1969). Of a weight that is cut, every
rank has a piece of the same length (Rajbhandari et al., ZeRO, 2020), so it weighs the same on all.
"""

from __future__ import annotations

import heapq
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import takewhile

from ...core.names import OWNED
from ...core.program import Program

ALIGNMENT = 16
"""A piece begins at a multiple of so many elements. Kernels work on vectors and round what is left over otherwise: so
each element is rounded as in the whole weight."""
OVER_MEAN = 1.05
"""``auto`` cuts until no rank holds more than so many times the mean."""
WHOLE, FLAT, AUTO = "whole", "flat", "auto"
PARTITIONS = (WHOLE, FLAT, AUTO)
"""The values of the note: never cut; cut where it is larger than a rank's share; also where the balance needs it."""


def owned_states(program: Program) -> dict[str, list[str]]:
    """By weight, in the order of the program: the states that are dealt out with it."""
    found: dict[str, list[str]] = {}
    for name, variable in program.state.items():
        if variable.info.get(OWNED):
            found.setdefault(variable.weight, []).append(name)
    return found


@dataclass(frozen=True)
class Deal:
    """What each of ``ranks`` ranks holds. ``owner``: the rank of a weight that is whole. ``cut``: the elements of a
    piece, by weight. ``states``: those that are dealt out, by weight, and ``elements`` of each of them. ``sums``: those
    that hold the sum of a cycle."""

    ranks: int
    states: Mapping[str, Sequence[str]]
    sums: frozenset[str]
    elements: Mapping[str, int]
    owner: Mapping[str, int]
    cut: Mapping[str, int]

    def piece(self, weight: str, rank: int) -> slice:
        """The elements of a weight that is cut, in a row, that a rank holds; the last piece may be shorter."""
        size = self.cut[weight]
        return slice(rank * size, min((rank + 1) * size, self.elements[weight]))

    @cached_property
    def holders(self) -> dict[str, int]:
        """The rank of each state that one alone holds."""
        return {state: rank for weight, rank in self.owner.items() for state in self.states[weight]}

    def pieces(self, rank: int) -> dict[str, slice]:
        """The elements, in a row, that a rank holds of each state that is cut."""
        return {state: self.piece(weight, rank) for weight in self.cut for state in self.states[weight]}


def deal(program: Program, ranks: int) -> Deal:
    """What each of so many ranks holds of ``program``; a process by itself holds all."""
    states = owned_states(program) if ranks > 1 else {}
    variables = program.state
    sizes = {w: sum(variables[s].nbytes for s in names) for w, names in states.items()}
    elements = {w: variables[w].type.size for w in states}
    mode = {w: str(variables[names[0]].info[OWNED]) for w, names in states.items()}
    pieces = {w: _length(n, ranks) for w, n in elements.items()}
    # The last rank has something of each, too.
    fit = {w for w in states if mode[w] != WHOLE and (ranks - 1) * pieces[w] < elements[w]}
    largest = sorted(fit, key=lambda w: (-sizes[w], w))
    mean = sum(sizes.values()) / ranks
    limit = max(OVER_MEAN * mean, *(size for w, size in sizes.items() if w not in fit), 0)

    def fits(count: int) -> bool:
        gone = set(largest[:count])
        owner = longest_first({w: size for w, size in sizes.items() if w not in gone}, ranks)
        return max(_loads(owner, sizes, ranks)) + sum(sizes[w] for w in gone) / ranks <= limit

    count = sum(sizes[w] > mean for w in largest)
    largest[count:] = [w for w in largest[count:] if mode[w] == AUTO]
    # One more, two, four, …: whether they fit is one sweep over all weights.
    more = takewhile(lambda n: n < len(largest), (count + 2**n for n in range(len(largest))))
    cut = set(largest[: next(filter(fits, (count, *more, len(largest))), count)])
    owner = longest_first({w: size for w, size in sizes.items() if w not in cut}, ranks)
    sums = frozenset(s for names in states.values() for s in names if variables[s].role == "accumulator")
    return Deal(ranks, states, sums, elements, owner, {w: pieces[w] for w in states if w in cut})


def _length(elements: int, ranks: int) -> int:
    return -(-elements // (ranks * ALIGNMENT)) * ALIGNMENT


def longest_first(sizes: Mapping[str, int], ranks: int) -> dict[str, int]:
    """The owner of each weight: the largest first, each to the rank that has the fewest bytes by then."""
    loads = [(0, rank) for rank in range(ranks)]
    owner = {}
    for name in sorted(sizes, key=lambda name: -sizes[name]):
        load, rank = heapq.heappop(loads)
        owner[name] = rank
        heapq.heappush(loads, (load + sizes[name], rank))
    return owner


def _loads(owner: Mapping[str, int], sizes: Mapping[str, int], ranks: int) -> list[int]:
    loads = [0] * ranks
    for name, rank in owner.items():
        loads[rank] += sizes[name]
    return loads


def bytes_of_ranks(program: Program, ranks: int) -> list[int]:
    """The bytes that each of so many ranks holds of what is dealt out, with its copies of the pieces of weights."""
    if ranks == 1:
        return [sum(program.state[s].nbytes for names in owned_states(program).values() for s in names)]
    found = deal(program, ranks)
    sizes = {w: sum(program.state[s].nbytes for s in names) for w, names in found.states.items()}
    held = _loads(found.owner, sizes, ranks)
    for weight in found.cut:
        of_one = program.state[weight].dtype.itemsize
        of_one += sum(program.state[s].dtype.itemsize for s in found.states[weight])
        for rank in range(ranks):
            piece = found.piece(weight, rank)
            held[rank] += of_one * (piece.stop - piece.start)
    return held
