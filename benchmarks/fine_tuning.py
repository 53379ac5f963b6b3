"""Adapters on a GPT of 5.3 million weights: what is trained, what its state takes, and a step against full training.

    python -m benchmarks.fine_tuning          # behind it may stand a folder, which keeps the export

Both programs run in one process, in turns; the time is the ratio of their medians.
"""

from __future__ import annotations

import statistics
import sys
import tempfile
from pathlib import Path

import numpy as np

from benchmarks.memory import MB, export_at, random_values
from benchmarks.sessions import seconds_a_step
from benchmarks.tables import table

NETWORK = ("gpt_medium", 4)
PIPELINES = {
    "query and value, rank 8": "lora{match=[*query.weight,*value.weight],rank=8}",
    "the four of attention, rank 4": "lora{match=[*query.weight,*key.weight,*value.weight,*output.weight],rank=4}",
    "all matrices of the blocks, rank 2": "lora{match=[blocks*.weight],rank=2}",
}
STEPS = 5
TURNS = 8


def run(folder: Path) -> str:
    """The table: a row for the whole training, and one for each pipeline."""
    import mindspore

    import boost_compile as bc

    mindspore.set_device("CPU")
    source = bc.load(str(export_at(*NETWORK, folder)))
    trained = {name for name, v in source.state.items() if v.role == "weight" and v.trainable}
    programs = {"all weights": source, **{name: bc.compile(source, text) for name, text in PIPELINES.items()}}
    sessions = {name: bc.Session(program, seed=1) for name, program in programs.items()}
    rng = np.random.default_rng(0)
    batches = [tuple(random_values(rng, v.type) for v in sessions["all weights"].consumer.inputs)] * STEPS
    times: dict[str, list[float]] = {name: [] for name in sessions}
    for turn in range(TURNS + 1):
        for name, session in sessions.items():
            seconds = seconds_a_step(session, batches)
            if turn:
                times[name].append(seconds)
    whole = sum(source.state[name].type.size for name in trained)
    slots = _slots(source)
    rows = []
    for name, program in programs.items():
        numbers = whole if program is source else sum(
            v.type.size for v in program.state.values() if v.role == "weight" and v.trainable
        )  # fmt: skip
        median = statistics.median(times[name])
        rows.append(
            [name, f"{numbers:,}", f"{100 * numbers / whole:.2f} %", f"{_slots(program) / MB:.2f}",
             f"{100 * _slots(program) / slots:.2f} %", f"{bc.memory(program).total / MB:.0f}", f"{1000 * median:.0f}",
             f"{median / statistics.median(times['all weights']):.2f}"]
        )  # fmt: skip
    head = ["trained", "numbers", "share", "slots (MB)", "share", "memory (MB)", "step (ms)", "of all weights"]
    return "\n".join(table(head, rows))


def _slots(program: object) -> int:
    return sum(v.nbytes for v in program.state.values() if v.role == "slot")  # type: ignore[attr-defined]


if __name__ == "__main__":
    if len(sys.argv) > 1:
        print(run(Path(sys.argv[1])))
    else:
        with tempfile.TemporaryDirectory() as scratch:
            print(run(Path(scratch)))
