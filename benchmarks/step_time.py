"""What each pass costs or saves in a training step: the compiled program against the same network without it.

Both run in one process, in turns, and the ratio is that of the medians; a row is one pipeline, a column one network.

    python -m benchmarks.step_time            # prints the table
"""

from __future__ import annotations

import statistics

import boost_compile as bc
from benchmarks.sessions import seconds_a_step
from benchmarks.tables import table
from tests.conftest import export_once, zoo_folder
from tests.networks import CASES

NETWORKS = ("lenet_bn", "gpt", "resnet18")
REWRITTEN = ("lenet_bn", "gpt", "mobilenet_v2", "resnet18")
N = 4
ACCUMULATE = f"gradient-accumulation{{steps={N}}}"
CLEAN_UP = "effect-chain-minimization,common-subexpression-elimination,dead-code-elimination"
PIPELINES = (
    (ACCUMULATE, "overflow-check"),
    (ACCUMULATE, "overflow-check{policy=skip-micro}"),
    (ACCUMULATE, "loss-scale"),
    (ACCUMULATE, "clip-gradients"),
    (ACCUMULATE, "tag-gradient-centralization,lower-gradient-centralization"),
)
WHOLE = (CLEAN_UP, ACCUMULATE, f"gradient-accumulation{{steps={N},split=fused}}")
ROUNDS, STEPS = 9, 8
FREEZE = "gradient-freeze{groups=4,type=continuous,probability=0}"


def _ratio(name: str, base: str, more: str) -> str:
    """Time of a micro-batch with the passes ``base`` and ``more``, by that with ``base`` alone (none: the source)."""
    source = bc.load(str(export_once(name, zoo_folder())))
    plain = bc.Session(bc.compile(source, base) if base else source)
    rewritten = bc.Session(bc.compile(source, f"{base},{more}" if base else more))
    batches = CASES[name].batches(STEPS)
    times: tuple[list[float], list[float]] = ([], [])
    for session in (plain, rewritten):
        seconds_a_step(session, batches)  # compiles
    for _ in range(ROUNDS):
        for session, into in zip((plain, rewritten), times, strict=True):
            into.append(seconds_a_step(session, batches))
    return f"{statistics.median(times[1]) / statistics.median(times[0]):.2f}"


def _frozen(name: str) -> list[str]:
    """Time of a step with each variant frozen, relative to the one that trains everything; both sides in turns."""
    source = bc.load(str(export_once(name, zoo_folder())))
    program = bc.compile(source, FREEZE)
    session, plain = bc.Session(program), bc.Session(source)
    (batch,) = CASES[name].batches(1)
    base: list[float] = []
    by_variant: dict[int, list[float]] = {}
    for k in range((ROUNDS * 2 + 1) * program.schedule.num_variants):
        variant = session.variant
        seconds = seconds_a_step(session, [batch]), seconds_a_step(plain, [batch])
        if k >= program.schedule.num_variants:  # the first run of each compiles
            by_variant.setdefault(variant, []).append(seconds[0])
            base.append(seconds[1])
    return [f"{statistics.median(by_variant[v]) / statistics.median(base):.2f}" for v in sorted(by_variant)]


def run() -> str:
    rows = [
        [f"`{more}`", f"accumulation over {N}" if base else "none", *(_ratio(n, base, more) for n in NETWORKS)]
        for base, more in PIPELINES
    ]
    whole = [[f"`{pipeline}`", *(_ratio(n, "", pipeline) for n in REWRITTEN)] for pipeline in WHOLE]
    lines = [
        "Time of a micro-batch of a compiled program by a step of the source, both in sessions of one process. "
        "Accumulation updates once in four.",
        "",
        *table(["pipeline", *REWRITTEN], whole),
        "",
        "The chain of effects puts updates of different weights in sequence (`ir/rewrite/effects/token_chain.py`). "
        "Unordered, they made MindSpore's CPU runtime slower: gpt 2.8 instead of 1.8 ms a step, mobilenet_v2 60 "
        "instead of 36.",
        "",
        "Time of a micro-batch with the pass by the time without it, 1.00 is no cost. The test networks are small "
        "(batch 4), so that the cost of a pass for each weight shows; medians of "
        f"{ROUNDS} turns of {STEPS} steps, both sides in turns in one process.",
        "",
        *table(["pass", "on top of", *NETWORKS], rows),
        "",
        "A step with frozen layers by a step of the source (`gradient-freeze{groups=4}`: a quarter, a half, three "
        "quarters of the layers):",
        "",
        *table(["network", "1/4", "2/4", "3/4"], [[n, *_frozen(n)] for n in NETWORKS]),
    ]
    return "\n".join(lines)


if __name__ == "__main__":
    print(run())
