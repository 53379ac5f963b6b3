"""The pass ``recompute`` on CPU: budgets against what processes grow by, steps against steps, and the time of planning.

    python -m benchmarks.recompute budgets    # ten budgets for each network
    python -m benchmarks.recompute steps      # a part of the activations, and Cell.recompute(), in turns
    python -m benchmarks.recompute planning

Behind the part may stand a folder, which keeps the exports, and the one network to measure.

Budgets that the planner answers with the same plan are measured once. A process each, as in :mod:`.memory`.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from benchmarks.machine import kept
from benchmarks.memory import MB, export_at, measure
from benchmarks.sessions import medians_of_steps
from benchmarks.tables import ROOT, table

NETWORKS = (
    ("deep_mlp", 2048), ("gpt_medium", 4), ("vit", 256), ("resnet18", 128), ("mobilenet_v2", 32), ("lstm", 512),
)  # fmt: skip
TIMED = (
    ("deep_mlp", 2048, 2.0),
    ("deeper_mlp", 2048, 2.0),
    ("deeper_mlp", 2048, 4.0),
    ("gpt_medium", 4, 2.0),
    ("gpt_deep", 16, 2.0),
    ("gpt_deep", 16, 4.0),
    ("vit", 256, 2.0),
    ("resnet18", 128, 1.5),
)
"""By how much the values that the forward part keeps are to shrink."""
HAND = (("deep_mlp_recomputed", 2048), ("gpt_medium_recomputed", 4))
OF_NODES = tuple(MB * size for size in (24, 20, 16, 12, 8, 4, 0))
"""What nodes that run again may take of a session, beside the pool."""
PLANNED = (("resnet18", 32), ("mobilenet_v2", 32), ("resnet50", 8))


def _budgets(folder: Path, only: str) -> list[Sequence[str]]:
    from boost_compile.passes.recompute.budget import MARGIN, fitting, least

    import boost_compile as bc

    rows = []
    for name, size in NETWORKS:
        if only not in (name, ""):
            continue
        path = export_at(name, size, folder)
        source = bc.load(str(path))
        high = fitting(source, 1 << 50)[0].bytes
        low = min(high, least(source)[0].bytes)
        seen: set[str] = set()
        for k in range(10):
            budget = int((high + (low - high) * k / 9) * (1 + MARGIN)) + 1
            pipeline = f"recompute{{budget={budget}B}}"
            plan = fitting(source, budget)[0]
            if plan.text in seen:
                continue
            seen.add(plan.text)
            found = kept(f"{path.stem} {plan.text}", measure, path, pipeline)
            grown = found["peak"] - found["before"]
            measured = f"{grown / MB:.0f}" + (", over" if grown > budget else "")
            rows.append(
                [f"{name} {size}", f"{budget / MB:.0f}", plan.text, f"{100 * plan.extra:+.0f} %", measured,
                 f"{plan.bytes / MB:.0f}", f"{100 * (plan.bytes / grown - 1):+.0f} %"]
            )  # fmt: skip
            print(rows[-1], file=sys.stderr, flush=True)
    return rows


def _steps(folder: Path, only: str) -> list[Sequence[str]]:
    """Steps of two programs in one process, in turns, and the ratio of their medians."""
    import boost_compile as bc

    cases: list[tuple[str, Path, Path, str]] = []
    for name, size, share in TIMED:
        if only in (name, ""):
            path = export_at(name, size, folder)
            cases.append((f"{name} {size}, activations ÷{share:g}", path, path, _for_share(path, share)))
    for name, size in HAND:
        if only in (name, ""):
            by_hand, own = export_at(name, size, folder), export_at(name.removesuffix("_recomputed"), size, folder)
            goal = bc.memory(bc.load(str(by_hand))).total
            cases.append((f"{own.stem}, Cell.recompute()", by_hand, own, _within(goal)))
    rows = []
    for title, one, other, pipeline in cases:
        command = [sys.executable, "-m", "benchmarks.recompute", "--turns", str(one), str(other), pipeline]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
        if done.returncode:
            rows.append([title, "-", "-", "-", done.stderr.strip().splitlines()[-1][:90]])
        else:
            found = json.loads(done.stdout.splitlines()[-1])
            pools = [f"{pool / MB:.0f}" for pool in found["pools"]]
            rows.append([title, *pools, f"{found['ratio']:.2f}", found["plan"]])
        print(rows[-1], file=sys.stderr, flush=True)
    return rows


def _within(estimate: float) -> str:
    """The pipeline for a session with this estimate, in bytes."""
    from boost_compile.passes.recompute.budget import MARGIN

    return f"recompute{{budget={int(estimate * (1 + MARGIN)) + 1}B}}"


def _for_share(path: Path, share: float) -> str:
    """The pipeline for the cheapest plan by which the pool loses the values that are kept but for a ``share``th. A
    budget is for the whole session, in which nodes that run again are there too, so it is looked for from above."""
    from boost_compile.passes.recompute.candidates import forward_of
    from boost_compile.passes.recompute.plans import kept_bytes

    import boost_compile as bc

    source = bc.load(str(path))
    before = bc.memory(source)
    less = sum(kept_bytes(forward_of(graph, source.target)) for graph in source.graphs.values()) * (1 - 1 / share)
    for nodes in OF_NODES:
        pipeline = _within(before.total - less + nodes)
        try:
            if bc.memory(bc.compile(source, pipeline)).pool <= before.pool - less:
                return pipeline
        except bc.Error:
            break
    return pipeline


def turns(one: str, other: str, pipeline: str) -> None:
    """Prints, as JSON, how a step of ``other`` behind ``pipeline`` compares with one of ``one``."""
    import mindspore

    import boost_compile as bc

    mindspore.set_device("CPU")
    first, second = bc.load(one), bc.compile(bc.load(other), pipeline)
    sessions = [bc.Session(program, seed=1) for program in (first, second)]
    medians = medians_of_steps(sessions)
    plan = next(r for r in second.reports if r.name == "recompute").statistics["plan"]
    pools = [bc.memory(program).pool for program in (first, second)]
    print(json.dumps({"ratio": medians[1] / medians[0], "ms": medians, "plan": plan, "pools": pools}))


def _planning(folder: Path, only: str) -> list[Sequence[str]]:
    from boost_compile.passes.recompute.budget import MARGIN, fitting, least

    import boost_compile as bc

    rows = []
    for name, size in PLANNED:
        if only not in (name, ""):
            continue
        source = bc.load(str(export_at(name, size, folder)))
        high, low = fitting(source, 1 << 50)[0].bytes, least(source)[0].bytes
        begun = time.process_time()
        _, tried = fitting(source, int((high + low) / 2 * (1 + MARGIN)))
        seconds = time.process_time() - begun
        nodes = sum(graph.total_nodes() for graph in source.graphs.values())
        rows.append([name, str(nodes), str(len(tried)), f"{seconds:.2f}"])
    return rows


PARTS: dict[str, tuple[Callable[[Path, str], list[Sequence[str]]], list[str]]] = {
    "budgets": (
        _budgets,
        ["program, batch", "budget", "runs again", "extra time", "measured", "estimated", "off by"],
    ),
    "steps": (_steps, ["case", "pool (MB)", "pool with recompute", "step, times", "plan"]),
    "planning": (_planning, ["network", "nodes", "plans tried", "seconds"]),
}


def run(part: str, folder: Path, only: str = "") -> str:
    write, head = PARTS[part]
    return "\n".join(table(head, write(folder, only)))


if __name__ == "__main__":
    if sys.argv[1] == "--turns":
        turns(*sys.argv[2:5])
    elif len(sys.argv) > 2:
        print(run(sys.argv[1], Path(sys.argv[2]), *sys.argv[3:4]))
    else:
        with tempfile.TemporaryDirectory() as scratch:
            print(run(sys.argv[1], Path(scratch)))
