"""A job for tests/ranks.py: trains programs on every rank, saved at micro-batches, and again from each of these."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np

from tests.exact_resume import SavedAt
from tests.networks import CASES
from tests.ranks import report

MICRO_BATCHES, EPOCHS = 5, 2


def main() -> None:
    import boost_compile as bc

    folder, runs = Path(sys.argv[1]).parent, json.loads(Path(sys.argv[1]).read_text())
    values: dict[str, np.ndarray] = {}
    for name, run in runs.items():
        program = bc.load(run["program"])
        whole = bc.Session(program, seed=5)
        batches = CASES[run["case"]].batches(MICRO_BATCHES * whole.ranks.size)
        data = tuple(np.concatenate(arrays) for arrays in zip(*batches, strict=True))
        saving = SavedAt(folder, run["steps"], f"-{name}{run['suffix']}")
        whole.fit(data, epochs=EPOCHS, seed=1, callbacks=[saving])
        values.update({f"{name}/whole/{n}": value for n, value in whole.state().items()})
        for step in run["steps"]:
            again = bc.Session(program, seed=5)
            again.load_state(saving.path(step))
            again.fit(data, epochs=EPOCHS, seed=1, resume=True)
            values.update({f"{name}/{step}/{n}": value for n, value in again.state().items()})
    report(values)
