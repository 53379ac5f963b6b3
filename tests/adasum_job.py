"""A job for tests/ranks.py: trains programs on every rank and reports each state after each cycle."""

from __future__ import annotations

import json
import sys
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

from tests.networks import CASES, Batch
from tests.ranks import report
from tests.reference import overflowing


@dataclass(frozen=True)
class Run:
    """One training: `micro` micro-batches a cycle on each rank, groups of `devices` ranks. In cycle `overflow` the last
    rank's first micro-batch has infinities; `alike`: all ranks get the batches of the first."""

    name: str
    case: str
    program: str
    cycles: int = 3
    micro: int = 1
    devices: int = 1
    overflow: int = -1
    alike: bool = False

    def batches(self, ranks: int) -> list[list[list[Batch]]]:
        """By cycle and rank."""
        every = iter(CASES[self.case].batches(self.cycles * ranks * self.micro))
        found = [[[next(every) for _ in range(self.micro)] for _ in range(ranks)] for _ in range(self.cycles)]
        if self.alike:
            found = [[of_cycle[0]] * ranks for of_cycle in found]
        if self.overflow >= 0:
            hit = found[self.overflow][-1]
            hit[0] = overflowing(hit[0])
        return found


def write(runs: list[Run], path: Path) -> None:
    path.write_text(json.dumps([asdict(run) for run in runs]))


def main() -> None:
    import boost_compile as bc

    values: dict[str, np.ndarray] = {}
    for description in json.loads(Path(sys.argv[1]).read_text()):
        run = Run(**description)
        session = bc.Session(bc.load(run.program))
        for c, of_rank in enumerate(run.batches(session.ranks.size)):
            for batch in of_rank[session.ranks.rank]:
                session.step(*batch)
            values.update({f"{run.name}/{c}/{name}": value for name, value in session.state().items()})
    report(values)
