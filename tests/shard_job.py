"""A job for tests/ranks.py: programs whose optimizer state is dealt out, next to data-parallel on the same ranks.

Each rank trains every program of the description, and reports states, what it holds itself, and what it noticed.
"""

from __future__ import annotations

import csv
import json
import sys
from pathlib import Path

import numpy as np

from tests.data_parallel_job import Run
from tests.ranks import report

Values = dict[str, np.ndarray]


def main() -> None:
    from boost_compile.ir.rewrite.ranks import messages

    import boost_compile as bc

    folder = Path(sys.argv[1])
    values: Values = {}
    message = messages.MESSAGE
    for description in json.loads((folder / "runs.json").read_text()):
        run = Run(**description)
        # Smaller than some weights, which travel in parts then.
        messages.MESSAGE = message if run.key.startswith("traced") else 200
        session = bc.Session(bc.load(run.program), seed=5)
        _train(run, session, values)
        parameters = session._engine.parameters
        values[f"{run.key}/held"] = np.array(sorted(parameters))
        values[f"{run.key}/outputs"] = np.array(repr(values.pop("outputs")))
        if run.key == "resumed":
            _resume(run, folder, values)
        if run.key.startswith("traced"):
            _trace(run, session, folder, values)
    report(values)


def _train(run: Run, session, values: Values) -> None:
    told = []
    rank, ranks = session.ranks.rank, session.ranks.size
    for c, of_rank in enumerate(run.batches(ranks)):
        for batch in of_rank[rank]:
            result = session.step(*batch)
        if not result.ended_cycle:
            result = session.flush()
        told.append({n: np.asarray(v).tolist() for n, v in result.outputs.items() if n != "loss"} | {"c": c})
    values["outputs"] = told  # type: ignore[assignment]
    values.update({f"{run.key}/state/{name}": value for name, value in session.state().items()})


def _resume(run: Run, folder: Path, values: Values) -> None:
    """Saved in the middle of a cycle, and gone on from there by as many ranks."""
    import boost_compile as bc

    program = bc.load(run.program)
    session = bc.Session(program, seed=5)
    rank, ranks = session.ranks.rank, session.ranks.size
    mine = [batch for cycle in run.batches(ranks) for batch in cycle[rank]]
    for batch in mine[: run.micro + 1]:
        session.step(*batch)
    for suffix in ("ckpt", "safetensors"):
        session.save(folder / f"middle.{suffix}")
    values.update({f"saved/{name}": value for name, value in session.state().items()})
    session.check_replicas()  # all ranks wait here, so that the file is there
    again = bc.Session(program, seed=5)
    again.load_state(folder / "middle.safetensors")
    for batch in mine[run.micro + 1 :]:
        again.step(*batch)
    again.save(folder / "end.safetensors")
    values.update({f"again/{name}": value for name, value in again.state().items()})


def _trace(run: Run, session, folder: Path, values: Values) -> None:
    """How often MindSpore's profiler saw each kernel of collectives in one cycle."""
    import mindspore as ms
    from mindspore.profiler import ProfilerActivity, profile

    rank, ranks = session.ranks.rank, session.ranks.size
    traces = folder / f"{run.key}_{rank}"
    handler = ms.profiler.tensorboard_trace_handler(str(traces))
    with profile(activities=[ProfilerActivity.CPU], on_trace_ready=handler):
        for batch in run.batches(ranks)[0][rank]:
            session.step(*batch)
        session._engine.memory.read(next(iter(session._engine.parameters)))
    (path,) = traces.rglob("cpu_op_type_info_*.csv")
    with open(path) as file:
        counted = {row["op_type"]: int(row["type_occurrences"]) for row in csv.DictReader(file)}
    for kind in ("AllReduce", "AllGather", "Broadcast"):
        values[f"{run.key}/{kind}"] = np.array(counted.get(kind, 0))
