"""What fewer BatchNorms save: estimated FLOPs, nodes, state and time of a step, before and after.

Both programs run in one process, in turns.

    python -m benchmarks.less_bn            # prints the table
"""

from __future__ import annotations

from functools import partial

from boost_compile.ir.analysis.cost.flops import estimated_flops

import boost_compile as bc
from benchmarks.sessions import seconds_a_step
from benchmarks.tables import table
from benchmarks.turns import FEWEST, MOST, in_turns, milliseconds, ratio
from tests.conftest import export_once, zoo_folder
from tests.networks import CASES

NETWORKS = ("residual_after", "resnet18", "resnet50", "mobilenet_v2")
STEPS = 4


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
    before, after = in_turns([partial(seconds_a_step, session, batches) for session in sessions])
    found = program.reports[0].statistics
    return [
        name,
        f"{found['BatchNorms']} to {found['BatchNorms'] - found['BatchNorms removed']}",
        f"{nodes[0]} to {nodes[1]}",
        f"{flops[0] / 1e6:.1f} M, {(flops[1] - flops[0]) / 1e6:+.1f} M",
        f"{state[1] - state[0]:+,} B",
        milliseconds(before),
        f"{ratio(after, before):.2f}",
    ]


def run() -> str:
    head = ["network", "BatchNorms", "nodes", "FLOPs (estimated)", "state", "step before", "step after, by it"]
    lines = [
        "`less-bn` on networks at 32x32 pixels, batch 4; both sides in turns in one process, and the median ratio of "
        f"{FEWEST} to {MOST} turns of {STEPS} steps.",
        "",
        *table(head, [_row(name) for name in NETWORKS]),
    ]
    return "\n".join(lines)


if __name__ == "__main__":
    print(run())
