"""A process that compiles and runs programs on one device, one after the other (`running.py` starts it).

`python -m tests.devices.worker DEVICE FOLDER` runs the jobs of FOLDER/jobs.json, each for the cycles that it tells.
It writes a line of FOLDER/outcomes.jsonl when it begins one and when it ends it: what began and did not end is known.
"""

from __future__ import annotations

import json
import logging
import os
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

import boost_compile as bc

from .programs import BATCH, DEVICES, NATIVE, Job, compiled, passes

Batch = tuple[np.ndarray, ...]
OVERFLOWING = 1
KEEP = "DEVICES_KEEP"
"""The environment variable with the folder for the final states and losses; without it they are not kept."""
LOSSES = "losses of all micro-batches"


def main() -> None:
    device, folder = sys.argv[1], Path(sys.argv[2])
    logging.disable(logging.CRITICAL)
    _set_device(device)
    with open(folder / "outcomes.jsonl", "a") as outcomes:

        def write(**line: Any) -> None:
            outcomes.write(json.dumps(line) + "\n")
            outcomes.flush()

        asked = json.loads((folder / "jobs.json").read_text())
        for network, pipeline, source in asked["jobs"]:
            write(begun=True)
            began = time.perf_counter()
            end, message = _done(Job(network, pipeline), asked["cycles"], Path(source), device, folder)
            write(end=end, message=message, seconds=time.perf_counter() - began)
    os._exit(0)  # the stand-ins do not know how a device is given back


def _done(job: Job, cycles: int, source: Path, device: str, folder: Path) -> tuple[str, str]:
    """The outcome of a job and the message that goes with it."""
    program = None
    if job.pipeline != NATIVE:
        try:
            program = compiled(job, bc.load(str(source)), DEVICES[device], folder)
        except bc.Error as error:
            return "refused", str(error)
        except Exception as error:
            return "compiler failed", repr(error)
    try:
        if program is None:
            _run_export(source, job, cycles)
        else:
            _run(bc.Session(program, device=device), job, cycles)
    except Exception as error:
        return "failed", f"{error}\n{error.__cause__ or ''}"
    return "ran", ""


def _run(session: bc.Session, job: Job, cycles: int) -> None:
    """Whole cycles; the values are read, so that everything was run by the end."""
    losses = []
    for batch in batches(job, cycles * session.cycle_length):
        result = session.step(*batch)
        losses.append(np.asarray(result.loss))
        for value in result.outputs.values():
            np.asarray(value)
    state = session.state()
    if KEEP in os.environ:
        np.savez(Path(os.environ[KEEP], f"{job}.npz"), **state, **{LOSSES: np.stack(losses)})


def _run_export(source: Path, job: Job, cycles: int) -> None:
    """The exported file in plain MindSpore."""
    import mindspore

    cell = mindspore.nn.GraphCell(mindspore.load(str(source)))
    for batch in batches(job, cycles):
        cell(*map(mindspore.Tensor, batch))
    mindspore.runtime.synchronize()


def batches(job: Job, count: int) -> list[Batch]:
    """The micro-batches of a job; where the pipeline checks for overflows, one has infinities."""
    from tests.networks import CASES  # runs something at once, so the device must be set
    from tests.reference import overflowing

    case = CASES[job.network]
    if job.pipeline == "batch":
        rng = np.random.default_rng(0)
        return [case.batch(rng, BATCH) for _ in range(count)]
    found = case.batches(count)
    if "overflow-check" in passes(job) and any(array.dtype.kind == "f" for array in found[0]):
        hit = min(OVERFLOWING, count - 1)
        found[hit] = overflowing(found[hit])
    return found


def _set_device(device: str) -> None:
    """Before anything runs; and where MindSpore is to simulate ranks, as one of them."""
    import mindspore

    mindspore.set_device(device)
    if "RANK_SIZE" in os.environ:
        mindspore.communication.init()


if __name__ == "__main__":
    main()
