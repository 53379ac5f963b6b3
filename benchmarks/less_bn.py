"""What fewer BatchNorms save: estimated FLOPs, nodes, state and time of a step, before and after.

Both programs run in one process, in turns; the ratio is that of the medians.

    python -m benchmarks.less_bn            # prints the table
"""

from __future__ import annotations

import statistics

from boost_compile.ir.analysis.cost.flops import estimated_flops

import boost_compile as bc
from benchmarks.sessions import seconds_a_step
from benchmarks.tables import table
from tests.conftest import export_once, zoo_folder
from tests.networks import CASES

NETWORKS = ("residual_after", "resnet18", "resnet50", "mobilenet_v2")
ROUNDS, STEPS = 9, 4


def _row(name: str) -> list[str]:
    source = bc.load(str(export_once(name, zoo_folder())))
    program = bc.compile(source, "less-bn")
    programs = (source, program)
    nodes, flops, state = (
        [sum(map(len, p.graphs["step"].all_graphs())) for p in programs],
        [estimated_flops(p.graphs["step"]) for p in programs],
        [sum(v.nbytes for v in p.state.values()) for p in programs],
    )
    sessions = [bc.Session(p) for p in programs]
    batches = CASES[name].batches(STEPS)
    times: list[list[float]] = [[], []]
    for session in sessions:
        seconds_a_step(session, batches)  # compiles
    for _ in range(ROUNDS):
        for session, into in zip(sessions, times, strict=True):
            into.append(seconds_a_step(session, batches))
    before, after = (statistics.median(t) * 1e3 for t in times)
    found = program.reports[0].statistics
    return [
        name,
        f"{found['BatchNorms']} to {found['BatchNorms'] - found['BatchNorms removed']}",
        f"{nodes[0]} to {nodes[1]}",
        f"{flops[0] / 1e6:.1f} M, {(flops[1] - flops[0]) / 1e6:+.1f} M",
        f"{state[1] - state[0]:+,} B",
        f"{before:.1f} to {after:.1f} ms",
        f"{after / before:.2f}",
    ]


def run() -> str:
    head = ["network", "BatchNorms", "nodes", "FLOPs (estimated)", "state", "step", "ratio"]
    lines = [
        f"`less-bn` on networks at 32x32 pixels, batch 4; medians of {ROUNDS} turns of {STEPS} steps, both sides in "
        "turns in one process.",
        "",
        *table(head, [_row(name) for name in NETWORKS]),
    ]
    return "\n".join(lines)


if __name__ == "__main__":
    print(run())
