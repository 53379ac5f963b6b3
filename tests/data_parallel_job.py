"""A job for tests/ranks.py: what tests/test_data_parallel.py judges, done by real ranks.

Each rank trains every program of the description on its own micro-batches and reports what it sees after each cycle,
under `key/cycle/...`. The other parts need no description.
"""

from __future__ import annotations

import csv
import json
import sys
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

from tests.networks import CASES, Batch
from tests.ranks import report
from tests.reference import overflowing

Values = dict[str, np.ndarray]

EXACT = ("mlp", "shared_weights", "mlp_half_weights")
FOLDED = ("mlp_momentum_decay", "mlp_sens")
"""MindSpore folds 1/ranks with other factors, or adds the weight decay before it sums: the program rounds otherwise."""
NATIVE = {2: (*EXACT, *FOLDED), 4: ("gpt_tied_sgd",)}
"""By ranks: a weight that is used twice does on two what one of a transformer does, which takes long to compile."""


@dataclass(frozen=True)
class Run:
    """One training: `micro` micro-batches a cycle on each rank. `hits` are the (cycle, rank, micro-batch) with
    infinities; in cycle `short` each rank has that many micro-batches less, and flushes."""

    key: str
    case: str
    program: str
    cycles: int = 3
    micro: int = 1
    hits: tuple[tuple[int, int, int], ...] = ()
    short: int = -1

    def batches(self, ranks: int) -> list[list[list[Batch]]]:
        """By cycle and rank."""
        every = iter(CASES[self.case].batches(self.cycles * ranks * self.micro))
        found = [[[next(every) for _ in range(self.micro)] for _ in range(ranks)] for _ in range(self.cycles)]
        for cycle, rank, micro in self.hits:
            found[cycle][rank][micro] = overflowing(found[cycle][rank][micro])
        if self.short >= 0:
            found[self.short] = [of_rank[:-1] for of_rank in found[self.short]]
        return found

    def together(self, ranks: int) -> list[list[Batch]]:
        """By cycle, the micro-batches of all ranks: what one process accumulates for the same update."""
        return [[batch for of_rank in cycle for batch in of_rank] for cycle in self.batches(ranks)]

    def concatenated(self, ranks: int) -> list[Batch]:
        """By cycle, one batch."""
        return [tuple(np.concatenate(arrays) for arrays in zip(*cycle, strict=True)) for cycle in self.together(ranks)]


def write(runs: list[Run], path: Path) -> None:
    path.write_text(json.dumps([asdict(run) for run in runs]))


def main() -> None:
    import boost_compile as bc

    folder = Path(sys.argv[1])
    values: Values = {}
    runs = [Run(**description) for description in json.loads((folder / "runs.json").read_text())]
    if "initialised-by-user" in sys.argv:
        from mindspore.communication import init

        init()
    for run in runs:
        session = bc.Session(bc.load(run.program), check_replicas=2)
        _train(run, session, values)
    rank, ranks = session.ranks.rank, session.ranks.size
    for name in NATIVE[ranks]:
        _native(name, folder, rank, ranks, values)
    if "further" in sys.argv:
        _own_check(folder, rank, ranks, values)
        _replicas(runs[0], values)
        _checkpoints(folder, runs, values)
        _trace(folder, runs[1], values)
        _dropout(folder, values)
        _self_contained(folder, runs[1], values)
    report(values)


def _train(run: Run, session, values: Values, part: str = "") -> None:
    rank, ranks = session.ranks.rank, session.ranks.size
    for c, of_rank in enumerate(run.batches(ranks)):
        for batch in of_rank[rank]:
            result = session.step(*batch)
        if not result.ended_cycle:
            result = session.flush()
        key = f"{run.key}{part}/{c}"
        values[f"{key}/updated"] = np.array(result.updated)
        for name, value in result.outputs.items():
            values[f"{key}/output/{name}"] = np.array(value)
        values.update({f"{key}/state/{name}": value for name, value in session.state().items()})


def _native(name: str, folder: Path, rank: int, ranks: int, values: Values) -> None:
    """MindSpore's own data parallelism, and the program made from its export."""
    import mindspore as ms

    import boost_compile as bc
    from tests.networks import build, state_of

    mine = [of_rank[rank] for of_rank in Run(f"native {name}", name, "", cycles=3).batches(ranks)]
    ms.set_auto_parallel_context(parallel_mode="data_parallel", gradients_mean=True, device_num=ranks)
    step = build(CASES[name]).train_step
    for (batch,) in mine:
        step(*map(ms.Tensor, batch))
    values.update({f"native/{name}/{n}": value for n, value in state_of(step).items()})
    path = folder / f"{name}_{rank}.mindir"
    _export(name, path)
    ms.reset_auto_parallel_context()
    session = bc.Session(bc.compile(bc.load(str(path)), "data-parallel"))
    for (batch,) in mine:
        session.step(*batch)
    values.update({f"exported/{name}/{n}": value for n, value in session.state().items()})


def _own_check(folder: Path, rank: int, ranks: int, values: Values) -> None:
    """A training cell whose own loss scale skips what overflows."""
    import mindspore as ms

    import boost_compile as bc

    run = Run("own", "mlp_loss_scale_dynamic", "", cycles=4, hits=((1, ranks - 1, 0), (2, 0, 0)))
    ms.set_auto_parallel_context(parallel_mode="data_parallel", gradients_mean=True, device_num=ranks)
    path = folder / f"own_{rank}.mindir"
    _export(run.case, path)
    ms.reset_auto_parallel_context()
    _train(run, bc.Session(bc.compile(bc.load(str(path)), "data-parallel")), values)


def _export(name: str, path: Path) -> None:
    import mindspore as ms

    from tests.networks import build

    case = CASES[name]
    step = build(case).train_step
    ms.export(step, *map(ms.Tensor, case.batches(1)[0]), file_name=str(path), file_format="MINDIR")


def _replicas(run: Run, values: Values) -> None:
    """One bit of one weight differs on the last rank."""
    import boost_compile as bc

    session = bc.Session(bc.load(run.program))
    session.check_replicas()
    state = session.state()
    if session.ranks.rank == session.ranks.size - 1:
        state["output.weight"].view(np.uint32)[1, 2] ^= 1
    session.load_state(state)
    try:
        session.check_replicas()
    except bc.Error as error:
        values["replicas"] = np.array(str(error))


def _checkpoints(folder: Path, runs: list[Run], values: Values) -> None:
    """Saved in the middle of a cycle by all ranks; and BatchNorm statistics."""
    from boost_compile.runtime.state.checkpoint import read_state

    import boost_compile as bc

    run = next(r for r in runs if r.key == "saved")
    session = bc.Session(bc.load(run.program))
    rank, ranks = session.ranks.rank, session.ranks.size
    mine = [batch for cycle in run.batches(ranks) for batch in cycle[rank]]
    for batch in mine[: run.micro + 1]:
        session.step(*batch)
    values.update({f"unsaved/{n}": value for n, value in session.state().items()})
    for suffix in ("ckpt", "safetensors"):
        session.save(folder / f"middle.{suffix}", sync="average")
    session.save(folder / "first.safetensors")
    session.check_replicas()  # all ranks wait here, so that the file is there
    resumed = bc.Session(bc.load(run.program))
    resumed.load_state(folder / "middle.safetensors")
    values.update({f"loaded/{n}": value for n, value in resumed.state().items()})
    values.update({f"file/{n}": value for n, value in read_state(folder / "middle.safetensors").items()})
    for batch in mine[run.micro + 1 :]:
        resumed.step(*batch)
    values.update({f"resumed/{n}": value for n, value in resumed.state().items()})


def _trace(folder: Path, run: Run, values: Values) -> None:
    """How often MindSpore's profiler saw each kernel of collectives in two cycles."""
    import mindspore as ms
    from mindspore.profiler import ProfilerActivity, profile

    import boost_compile as bc

    session = bc.Session(bc.load(run.program))
    rank, ranks = session.ranks.rank, session.ranks.size
    cycles = [of_rank[rank] for of_rank in run.batches(ranks)]
    for batch in cycles[0]:
        session.step(*batch)
    traces = folder / f"trace_{rank}"
    handler = ms.profiler.tensorboard_trace_handler(str(traces))
    with profile(activities=[ProfilerActivity.CPU], on_trace_ready=handler):
        for cycle in cycles[1:3]:
            for batch in cycle:
                session.step(*batch)
        session.state()
    (path,) = traces.rglob("cpu_op_type_info_*.csv")
    with open(path) as file:
        counted = {row["op_type"]: int(row["type_occurrences"]) for row in csv.DictReader(file)}
    values["trace/AllReduce"] = np.array(counted.get("AllReduce", 0))
    values["trace/others"] = np.array(sorted(n for n in counted if "All" in n and n != "AllReduce"))


def _self_contained(folder: Path, run: Run, values: Values) -> None:
    """One file in plain MindSpore, where the schedule is part of the graph."""
    import mindspore as ms
    from mindspore import nn

    from tests.networks import state_of

    cell = nn.GraphCell(ms.load(str(folder / "whole.mindir"))).set_train()
    rank, ranks = ms.communication.get_rank(), ms.communication.get_group_size()
    for of_rank in run.batches(ranks):
        for batch in of_rank[rank]:
            cell(*map(ms.Tensor, batch))
    values.update({f"whole/{n}": value for n, value in state_of(cell).items()})


def _dropout(folder: Path, values: Values) -> None:
    """The loss of one step on the same data: with a session seed every rank draws its own masks."""
    import boost_compile as bc

    program = bc.load(str(folder / "dropout.boost"))
    batch = CASES["dropout"].batches(1)[0]
    for attempt in (0, 1):
        values[f"dropout/{attempt}"] = np.array(bc.Session(program, seed=7).step(*batch).loss)
