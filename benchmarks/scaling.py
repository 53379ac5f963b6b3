"""How far it goes: compiling a graph of 100 billion parameters, and what each of many ranks holds of it.

The graph is one of `tests/synthetic.py` whose state lies in sparse files, one for each layer: all of it is
named, mapped and carried through every pass, none of it takes space.

    python -m benchmarks.scaling              # all of it
    python -m benchmarks.scaling passes       # the graph compiled
    python -m benchmarks.scaling ranks        # what a rank holds and receives, with the optimizer dealt out
"""

from __future__ import annotations

import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

from boost_compile.ir.core.data import MappedData, MappedFile
from boost_compile.ir.core.graph import Graph, Value
from boost_compile.ir.core.names import OWNED
from boost_compile.ir.core.program import Program
from boost_compile.ir.core.types import TensorType, TupleType
from boost_compile.ir.formats.mindir.writer import write_mindir
from boost_compile.ir.rewrite.ranks.collectives import collectives
from boost_compile.ir.rewrite.ranks.dealing import deal
from boost_compile.ir.rewrite.ranks.ownership import keep_own
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
RANKS = (8, 512)
ACCUMULATED = "legalize{target=gpu},gradient-accumulation{steps=16},data-parallel"
"""On a target that has ReduceScatter."""
SHARDED = (
    ("`data-parallel`", ""),
    ("`stage=1`", ",shard-optimizer"),
    ("`stage=1`, `auto`", ",shard-optimizer{partition=auto}"),
    ("`stage=2`", ",shard-optimizer{stage=2}"),
    ("`stage=2`, `auto`", ",shard-optimizer{stage=2,partition=auto}"),
)
COPY = "copy"
GB = 1e9


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
    """What the rank with most holds, and receives in a cycle, when the optimizer's state of the same graph is dealt
    out: (pass, ranks, GB of slots, sums, copies of pieces and all state, GB of gradients and of new weights a window by
    rings, collectives a window)."""
    source = synthetic.layers(round(LAYERS * synthetic.NODES_A_LAYER), WIDTH)
    in_sparse_files(source, folder)
    assign_roles(source)
    rows = []
    for label, pass_ in SHARDED:
        start = time.perf_counter()
        program = bc.compile(source, ACCUMULATED + pass_)
        seconds = time.perf_counter() - start
        for ranks in RANKS:
            held = bytes_of_rank_with_most(program, ranks)
            found = received(program, ranks)
            numbers = [held["slot"], held["accumulator"], held[COPY], held.total(), *found.values()]
            count = sum(1 for g in program.graphs.values() for _ in collectives(for_rank(program, g, ranks)))
            rows.append([label, str(ranks), *(f"{n / GB:,.1f}" for n in numbers), f"{count:,}"])
            print(rows[-1], f"{seconds:.1f} s", file=sys.stderr)
    return rows


def for_rank(program: Program, graph: Graph, ranks: int) -> Graph:
    """A graph as the first of so many ranks runs it."""
    own = graph.clone()[0]
    keep_own(own, program, 0, ranks, program.target)
    return own


def received(program: Program, ranks: int) -> dict[str, float]:
    """The bytes of gradients and of new weights that a rank receives in a cycle, where all collectives are rings."""
    found = {"gradients": 0.0, "new weights": 0.0}
    times = Counter({entry.graph: entry.repeat for entry in program.schedule.cycle})
    for name, repeat in times.items():
        for node in collectives(for_rank(program, program.graphs[name], ranks)):
            given = sum(type_.nbytes for type_ in map(first_type, node.operands))
            around = {"AllReduce": 2 * given, "ReduceScatter": given, "AllGather": given * ranks, "Broadcast": given}
            kind = "gradients" if node.op.name in ("AllReduce", "ReduceScatter") else "new weights"
            found[kind] += repeat * around[node.op.name] * (1 - 1 / ranks)
    return found


def first_type(value: Value) -> TensorType:
    """The type of a value; Broadcast takes a tuple of one."""
    type_ = value.type.elements[0] if isinstance(value.type, TupleType) else value.type
    assert isinstance(type_, TensorType)
    return type_


def bytes_of_rank_with_most(program: Program, ranks: int) -> Counter[str]:
    """By role, the bytes of state that the rank with most holds; COPY: its copies of pieces."""
    dealt = deal(program, ranks)
    common = Counter[str]()
    for variable in program.state.values():
        if not variable.info.get(OWNED):
            common[variable.role] += variable.nbytes
    held = []
    of_rank: list[list[str]] = [[] for _ in range(ranks)]
    for name, rank in dealt.holders.items():
        of_rank[rank].append(name)
    for rank in range(ranks):
        own = Counter(common)
        for name in of_rank[rank]:
            own[program.state[name].role] += program.state[name].nbytes
        for weight in dealt.cut:
            piece = dealt.piece(weight, rank)
            for name in dealt.states[weight]:
                own[program.state[name].role] += (piece.stop - piece.start) * program.state[name].dtype.itemsize
            own[COPY] += (piece.stop - piece.start) * program.state[weight].dtype.itemsize
        held.append(own)
    return max(held, key=lambda c: c.total())


PARTS = ("passes", "ranks")


def run(part: str) -> str:
    with tempfile.TemporaryDirectory() as scratch:
        if part == "passes":
            head, rows = compile_rows(Path(scratch))
            columns = ["pipeline", "nodes", "seconds", "seconds to write", "MB more", "collectives"]
            peak = f"{head}. Peak memory of the whole process: {peak_resident() / 1e6:.0f} MB."
            return "\n".join([peak, "", *table(columns, rows)])
        held = ["slots", "sums", "copies", "all state", "gradients", "new weights", "collectives"]
        return "\n".join(table(["pass", "ranks", *held], sharded_rows(Path(scratch))))


if __name__ == "__main__":
    for part in sys.argv[1:] or PARTS:
        print(run(part))
