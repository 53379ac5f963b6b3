"""How far it goes: compiling a graph of 100 billion parameters, measured, and what thousands of ranks exchange in a
cycle, by a model.

The graph is one of `tests/synthetic.py` whose state lies in sparse files, one for each layer: all of it is
named, mapped and carried through every pass, none of it takes space. The model of communication is alpha-beta: a
message of n bytes takes alpha + n / beta seconds.

    python -m benchmarks.scaling             # prints the tables
"""

from __future__ import annotations

import sys
import tempfile
import time
from collections import Counter
from dataclasses import dataclass
from math import log2
from pathlib import Path

from boost_compile.ir.core.data import MappedData, MappedFile
from boost_compile.ir.core.names import OWNED
from boost_compile.ir.core.program import Program
from boost_compile.ir.formats.mindir.writer import write_mindir
from boost_compile.ir.rewrite.ranks.collectives import collectives, cycle_traffic
from boost_compile.ir.rewrite.ranks.ownership import dealt_states, owned_states
from boost_compile.ir.rewrite.roles import assign_roles

import boost_compile as bc
from benchmarks.machine import peak_resident
from benchmarks.memory import resident
from benchmarks.tables import table
from tests import synthetic

WIDTH, LAYERS = 16_384, 372
"""Layers of 268 million weights: 99.9 billion in all."""
PIPELINES = (
    ("read roles", ""),
    ("clean-up", "common-subexpression-elimination,effect-chain-minimization,dead-code-elimination"),
    ("accumulation", "gradient-accumulation{steps=16}"),
    ("accumulation, data-parallel", "gradient-accumulation{steps=16},data-parallel"),
    ("all around the optimizer", "gradient-accumulation{steps=16},loss-scale,clip-gradients,data-parallel"),
)
RANKS = (8, 64, 512, 4096)
GB = 1e9
MS = 1e3


@dataclass(frozen=True)
class Link:
    """``alpha`` seconds to start a message, ``beta`` bytes a second between two ranks."""

    name: str
    alpha: float
    beta: float


LINKS = (Link("400 Gbit/s, 10 µs", 10e-6, 50e9), Link("25 Gbit/s, 50 µs", 50e-6, 3.1e9))


def in_sparse_files(program: Program, folder: Path) -> int:
    """Moves the state into files that have its size and none of its bytes, one a layer; returns how many."""
    sizes: Counter[str] = Counter()
    places: dict[str, tuple[str, int]] = {}
    for name, variable in program.state.items():
        layer = next((part for part in name.split(".") if part.startswith("layer")), "rest")
        places[name] = (layer, sizes[layer])
        sizes[layer] += variable.nbytes
    files = {}
    for layer, size in sizes.items():
        path = folder / f"{layer}.data"
        with path.open("wb") as file:
            file.truncate(size)
        files[layer] = MappedFile(path)
    for name, variable in program.state.items():
        layer, at = places[name]
        variable.data = MappedData(files[layer], at, variable.nbytes)
    return len(files)


def compile_rows(folder: Path) -> tuple[str, list[list[str]]]:
    """What is compiled, and (pipeline, nodes, seconds, MB above the program that was read, collectives)."""
    source = synthetic.layers(round(LAYERS * synthetic.NODES_A_LAYER), WIDTH)
    files = in_sparse_files(source, folder)
    assign_roles(source)
    weights = sum(v.type.size for v in source.state.values() if v.role == "weight")
    state = sum(v.nbytes for v in source.state.values())
    used = sum(path.stat().st_blocks * 512 for path in folder.iterdir())
    head = (
        f"{weights / 1e9:.1f} billion weights, {state / GB:.0f} GB of weights and slots in {files} files (which take "
        f"{used / 1e6:.1f} MB on the disk), {source.graphs['step'].total_nodes()} nodes"
    )
    rows = []
    for label, pipeline in PIPELINES:
        before, start = resident(), time.perf_counter()
        program = bc.compile(source, pipeline) if pipeline else assign_roles(source.copy())
        seconds = time.perf_counter() - start
        for name, graph in program.graphs.items():
            write_mindir(folder / f"{name}.mindir", graph, program.state, program.metadata, stateless=True)
        written = time.perf_counter() - start - seconds
        nodes = sum(g.total_nodes() for g in program.graphs.values())
        exchanged = sum(1 for g in program.graphs.values() for _ in collectives(g))
        above = max(0, resident() - before) / 1e6
        rows.append([label, str(nodes), f"{seconds:.2f}", f"{written:.2f}", f"{above:.0f}", str(exchanged)])
        print(rows[-1], file=sys.stderr)
    return head, rows


def sharded_rows(folder: Path) -> list[list[str]]:
    """What a rank holds and exchanges when the optimizer's state of the same graph is dealt out: (pass, ranks, GB of
    slots, GB of sums, GB of all state, GB of gradients and of new weights a cycle, seconds to compile)."""
    source = synthetic.layers(round(LAYERS * synthetic.NODES_A_LAYER), WIDTH)
    in_sparse_files(source, folder)
    assign_roles(source)
    rows = []
    for label, shard in (
        ("data-parallel", ""),
        ("stage=1", ",shard-optimizer"),
        ("stage=2", ",shard-optimizer{stage=2}"),
    ):
        start = time.perf_counter()
        program = bc.compile(source, f"gradient-accumulation{{steps=16}},data-parallel{shard}")
        seconds = time.perf_counter() - start
        summed = cycle_traffic(program).nbytes
        sent = sum(program.state[weight].nbytes for weight in owned_states(program))
        for ranks in RANKS if shard else RANKS[:1]:
            most = bytes_of_rank_with_most(program, ranks)
            total = sum(v.nbytes for v in program.state.values() if not v.info.get(OWNED)) + sum(most.values())
            held = [total_of(program, role) + most.get(role, 0) for role in ("slot", "accumulator")]
            numbers = [*held, total, summed, sent]
            rows.append([label, str(ranks) if shard else "any", *(f"{n / GB:,.1f}" for n in numbers), f"{seconds:.1f}"])
        print(rows[-1], file=sys.stderr)
    return rows


def total_of(program: Program, role: str) -> int:
    """The bytes of state of a role that every rank holds."""
    return sum(v.nbytes for v in program.state.values() if v.role == role and not v.info.get(OWNED))


def bytes_of_rank_with_most(program: Program, ranks: int) -> dict[str, int]:
    """By role, the bytes that the rank which owns most holds alone."""
    holders = dealt_states(program, ranks)
    held: dict[int, Counter[str]] = {}
    for name, rank in holders.items():
        held.setdefault(rank, Counter())[program.state[name].role] += program.state[name].nbytes
    return dict(max(held.values(), key=lambda c: c.total(), default=Counter()))


def ring(n: float, ranks: int, messages: int, link: Link) -> float:
    """Seconds of a ring all-reduce of n bytes in so many messages: 2 (p - 1) steps of n / p bytes each."""
    return 2 * (ranks - 1) * (messages * link.alpha + n / ranks / link.beta)


def halving(n: float, ranks: int, messages: int, link: Link) -> float:
    """Seconds by recursive halving and doubling: 2 log2 p steps, n / 2, n / 4, … bytes and back."""
    return 2 * log2(ranks) * messages * link.alpha + 2 * n * (1 - 1 / ranks) / link.beta


def adasum(n: float, ranks: int, weights: int, link: Link) -> float:
    """Seconds of AdaSum among as many groups as ranks: halving with three numbers a weight summed at each level (over
    2, 4, … ranks), then a ring that gathers all parts."""
    levels = int(log2(ranks))
    exchange = sum(link.alpha + n / 2 ** (k + 1) / link.beta for k in range(levels))
    dots = sum(halving(12 * weights, 2 ** (k + 1), 1, link) for k in range(levels))
    gather = (ranks - 1) * (link.alpha + n / ranks / link.beta)
    return exchange + dots + gather


def simulated_ring(n: float, ranks: int, link: Link) -> float:
    """A ring all-reduce of one message, step by step: each rank sends one of its p parts to the next when it has
    received the one before it."""
    free = [0.0] * ranks
    for _ in range(2 * (ranks - 1)):
        arrived = [start + link.alpha + n / ranks / link.beta for start in free]
        free = [max(free[rank], arrived[rank - 1]) for rank in range(ranks)]
    return max(free)


def communication_rows(n: float, weights: int, messages: int) -> list[list[str]]:
    rows = []
    for link in LINKS:
        for p in RANKS:
            times = (ring(n, p, messages, link), halving(n, p, messages, link), ring(n, p, weights, link))
            rows.append([link.name, str(p), *(f"{MS * t:,.0f}" for t in (*times, adasum(n, p, weights, link)))])
    return rows


def run() -> str:
    with tempfile.TemporaryDirectory() as scratch:
        head, compiled = compile_rows(Path(scratch))
        sharded = sharded_rows(Path(scratch))
    n, weights = 1.4e9, 160  # float32 gradients of 350 million weights in 160 tensors
    messages = 120  # tensors above 4 MB alone, the others in buckets
    worst = max(abs(simulated_ring(n, p, k) / ring(n, p, 1, k) - 1) for p in RANKS[:3] for k in LINKS)
    lines = [
        f"{head}. Peak memory of the whole process: {peak_resident() / 1e6:.0f} MB.",
        "",
        *table(["pipeline", "nodes", "seconds", "seconds to write", "MB more", "collectives"], compiled),
        "",
        "GB that the rank with most holds, and that a rank gives in a cycle of 16 micro-batches:",
        "",
        *table(["", "ranks", "slots", "sums", "all state", "gradients", "new weights", "seconds"], sharded),
        "",
        f"Milliseconds to exchange {n / GB:.1f} GB of gradients ({weights} tensors, {messages} messages, buckets of "
        "4 MB), once a cycle:",
        "",
        *table(
            ["link", "ranks", "ring, buckets", "halving, buckets", "ring, each tensor alone", "AdaSum"],
            communication_rows(n, weights, messages),
        ),
        "",
        f"The formula of the ring and a simulation of it, step by step, differ by at most {100 * worst:.2g} %.",
    ]
    return "\n".join(lines)


if __name__ == "__main__":
    print(run())
