"""A job for tests/ranks.py: a line search on several ranks, each with micro-batches of its own."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np

from tests.networks import CASES, Batch
from tests.ranks import report

CYCLES = 6


def shares(name: str, ranks: int, micro: int) -> list[list[list[Batch]]]:
    """Micro-batches by cycle and rank."""
    every = iter(CASES[name].batches(CYCLES * ranks * micro))
    return [[[next(every) for _ in range(micro)] for _ in range(ranks)] for _ in range(CYCLES)]


def train(session: object, cycles: list[list[Batch]], key: str) -> dict[str, np.ndarray]:
    """What each cycle left, by name, under `key/cycle/`."""
    seen: dict[str, np.ndarray] = {}
    for number, cycle in enumerate(cycles):
        for batch in cycle:
            result = session.step(*batch)  # type: ignore[attr-defined]
        state = session.state()  # type: ignore[attr-defined]
        seen.update({f"{key}/{number}/{n}": v for n, v in state.items()})
        seen[f"{key}/{number}/trials"] = np.array([result.trials or 0, bool(result.accepted)])
        seen[f"{key}/{number}/trial_loss"] = np.array(result.outputs["trial_loss"])
    return seen


def main() -> None:
    import boost_compile as bc

    seen: dict[str, np.ndarray] = {}
    for path in sorted(Path(sys.argv[1]).glob("*.boost")):
        name, micro = path.stem.rsplit("-", 1)
        session = bc.Session(bc.load(path))
        mine = [cycle[session.ranks.rank] for cycle in shares(name, session.ranks.size, int(micro))]
        seen.update(train(session, mine, path.stem))
        basis = [p for n, p in session._engine.parameters.items() if n.startswith("dim_reduce.basis.")]
        seen[f"{path.stem}/rows"] = np.array([p.shape[0] for p in basis])
    report(seen)
