"""How many pairs of a network and a pipeline are proved; where it changes training, against the formulas of its passes.

python -m benchmarks.proof FOLDER [--only NAME…]     # FOLDER holds training graphs, *.mindir or *.ir
"""

from __future__ import annotations

import argparse
import time
from collections import Counter
from pathlib import Path

from boost_compile.tools.proof.run import prove

import boost_compile as bc

PRESERVING = {
    "clean-ups": "common-subexpression-elimination,effect-chain-minimization,dead-code-elimination",
    "recompute": "recompute",
    "accumulation": "gradient-accumulation{steps=3}",
    "fused": "gradient-accumulation{steps=3,split=fused}",
    "scaled": "overflow-check,gradient-accumulation{steps=3},loss-scale",
    "dropped": "overflow-check{policy=skip-micro},gradient-accumulation{steps=3}",
    "ranks": "data-parallel",
    "ranks, accumulated": "data-parallel,gradient-accumulation{steps=3}",
    "ranks, scaled": "overflow-check,loss-scale,data-parallel",
}
PIPELINES = PRESERVING | {
    "clip by norm": "clip-gradients{limit=0.5}",
    "clip each": "clip-gradients{by=tensor-norm,limit=0.5},gradient-accumulation{steps=3}",
    "clip values": "clip-gradients{by=value,limit=0.1},gradient-accumulation{steps=3}",
    "clip by norm, scaled": "clip-gradients{report_norm=true},overflow-check,loss-scale,gradient-accumulation{steps=3}",
    "clip each rank": "clip-gradients{each_rank=true},gradient-accumulation{steps=3}",
    "centralize": "lower-gradient-centralization,gradient-accumulation{steps=3}",
    "groups": "parameter-groups{match=[*.bias,*.gamma,*.beta],lr_factor=2.0,weight_decay=0.0},"
    "parameter-groups{rank=matrix,weight_decay=0.01,lr_factor=0.5},gradient-accumulation{steps=3}",
    "all together": "clip-gradients,lower-gradient-centralization,parameter-groups{rank=matrix,lr_factor=0.5},"
    "gradient-accumulation{steps=3,split=fused}",
    "freeze": "gradient-freeze{groups=3},gradient-accumulation{steps=3}",
    "less-bn": "less-bn,gradient-accumulation{steps=3}",
    "freeze for good": "freeze{match=*bias*},gradient-accumulation{steps=3}",
    "ema": "weight-average{warmup=10},gradient-accumulation{steps=3}",
    "swa": "weight-average{kind=swa,every=2},overflow-check,loss-scale",
    "lookahead": "weight-average{kind=lookahead},gradient-accumulation{steps=3,split=fused}",
    "schedule": "schedule{total=20,warmup=3,lr=0.05},gradient-accumulation{steps=3}",
    "schedule, scaled": "schedule{kind=linear,total=20,lr=0.05},overflow-check,loss-scale",
    "lora": "lora{match=[*],rank=1},gradient-accumulation{steps=3}",
    "lora, scaled": "lora{match=[*],rank=1,train=[*bias*]},overflow-check,loss-scale",
    "optimizer": "replace-optimizer{to=lion},gradient-accumulation{steps=3}",
    "optimizer, scaled": "replace-optimizer{to=muon},overflow-check,loss-scale",
    "head": "normalised-head,gradient-accumulation{steps=3}",
    "half precision": "mixed-precision{level=O2,loss_scale=false},gradient-accumulation{steps=3}",
    "half precision, scaled": "mixed-precision{level=O3},gradient-accumulation{steps=3}",
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--only", nargs="*", default=list(PIPELINES), choices=list(PIPELINES), metavar="NAME")
    parser.add_argument("--networks", nargs="*", default=["*"], metavar="GLOB")
    asked = parser.parse_args()
    paths = sorted(p for g in asked.networks for p in asked.folder.glob(g) if p.suffix in (".mindir", ".ir"))
    print("| pipeline | networks | proved | µs a node and graph |\n|---|---|---|---|")
    for name in asked.only:
        print(measured(paths, name), flush=True)


def measured(paths: list[Path], name: str) -> str:
    """One row of the table; what is not proved is printed under it. A pass that refuses a network, or finds nothing in
    it to change, makes no pair."""
    counts: Counter[str] = Counter()
    nodes, seconds = 0, 0.0
    reasons: list[str] = []
    for path in paths:
        original = bc.load(path)
        try:
            program = bc.compile(original, PIPELINES[name])
        except bc.Error:
            continue
        began = time.process_time()
        found = prove(original, program)
        seconds += time.process_time() - began
        nodes += sum(g.total_nodes() for g in (*original.graphs.values(), *program.graphs.values()))
        counts["pairs"] += 1
        counts["proved"] += found.proved
        if not found.proved:
            first, *_ = found.proof.failures
            reasons.append(f"  {path.stem}: {first.what} {first.name} {first.detail}")
    cost = 1e6 * seconds / max(nodes, 1)
    row = f"| {name} | {counts['pairs']} | {counts['proved']} | {cost:.0f} |"
    return "\n".join([row, *reasons])


if __name__ == "__main__":
    main()
