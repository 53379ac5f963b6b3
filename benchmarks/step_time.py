"""What each pass costs or saves in a training step: the compiled program against the same network without it.

All programs of a network run in one process, in turns; a row is one pipeline, a column one network.

    python -m benchmarks.step_time            # prints the table
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import boost_compile as bc
from benchmarks.sessions import seconds_a_step
from benchmarks.tables import table
from benchmarks.turns import FEWEST, MOST, in_turns, ratio
from tests.conftest import export_once, zoo_folder
from tests.networks import CASES

NETWORKS = ("lenet_bn", "gpt", "mobilenet_v2", "resnet18")
N, STEPS = 4, 8
ACCUMULATE = f"gradient-accumulation{{steps={N}}}"
WHOLE = (
    "effect-chain-minimization,common-subexpression-elimination,dead-code-elimination",
    ACCUMULATE,
    f"gradient-accumulation{{steps={N},split=fused}}",
    "lower-gradient-centralization",
)
PASSES = (
    "overflow-check",
    "overflow-check{policy=skip-micro}",
    "loss-scale",
    "clip-gradients",
    "lower-gradient-centralization",
)
GROUPS = 4
FROZEN = tuple(f"gradient-freeze{{groups={GROUPS},strategy=[{k}],after=repeat}}" for k in range(1, GROUPS))
PIPELINES = (*WHOLE, *(f"{ACCUMULATE},{one}" for one in PASSES), *FROZEN)


def _ratios(name: str) -> dict[str, str]:
    """A micro-batch of each pipeline, by one of the source; with accumulation, by accumulation alone."""
    source = bc.load(str(export_once(name, zoo_folder())))
    programs = [source, *(bc.compile(source, pipeline) for pipeline in PIPELINES)]
    batches = CASES[name].batches(STEPS)
    times = in_turns([partial(seconds_a_step, bc.Session(program), batches) for program in programs])
    of = dict(zip(("", *PIPELINES), times, strict=True))
    base = {pipeline: ACCUMULATE if pipeline.startswith(f"{ACCUMULATE},") else "" for pipeline in PIPELINES}
    return {pipeline: f"{ratio(of[pipeline], of[base[pipeline]]):.2f}" for pipeline in PIPELINES}


def run(networks: Sequence[str] = NETWORKS) -> str:
    found = [_ratios(name) for name in networks]

    def rows(pipelines: Sequence[str], begins: str = "") -> list[list[str]]:
        return [[f"`{one}`", *(ratios[begins + one] for ratios in found)] for one in pipelines]

    frozen = [[name, *(ratios[one] for one in FROZEN)] for name, ratios in zip(networks, found, strict=True)]
    lines = [
        "Time of a micro-batch of a compiled program by a step of the source, without accumulation where it does not "
        f"say so: the median ratio of {FEWEST} to {MOST} turns of {STEPS} micro-batches, all sessions of a network in "
        "turns in one process. Batches of 4, so that what is done for each weight shows. Accumulation updates once in "
        f"{N}.",
        "",
        *table(["pipeline", *networks], rows(WHOLE)),
        "",
        "The chain of effects puts updates of different weights in sequence (`ir/memory/token_chain.py`). "
        "Unordered, they made MindSpore's CPU runtime slower: gpt 2.8 instead of 1.8 ms a step, mobilenet_v2 60 "
        "instead of 36 (2026-11-22).",
        "",
        f"With accumulation over {N}, by accumulation alone; 1.00 costs nothing:",
        "",
        *table(["pass", *networks], rows(PASSES, f"{ACCUMULATE},")),
        "",
        f"A step with frozen layers by a step of the source (`gradient-freeze{{groups={GROUPS}}}`: a quarter, a half, "
        "three quarters of the layers):",
        "",
        *table(["network", *(f"{k}/{GROUPS}" for k in range(1, GROUPS))], frozen),
    ]
    return "\n".join(lines)


if __name__ == "__main__":
    print(run())
