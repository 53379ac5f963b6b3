"""What is run: the test networks, each with each of these pipelines."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from boost_compile.passes.framework.manager import in_stages
from boost_compile.passes.framework.pipeline import parse_pipeline

import boost_compile as bc

BATCH = 6
NATIVE = "native"
"""The pipeline of a job that runs the exported file as it is, in plain MindSpore."""
PIPELINES = {
    "legalize": "legalize",
    "accumulate": "gradient-accumulation{steps=2}",
    "fused": "gradient-accumulation{steps=2,split=fused}",
    "check": "overflow-check",
    "skip-micro": "overflow-check{policy=skip-micro},gradient-accumulation{steps=2}",
    "dynamic-scale": "gradient-accumulation{steps=2},loss-scale{mode=dynamic,window=2},overflow-check",
    "global-norm": "loss-scale{mode=static,init=1024.0},clip-gradients{by=global-norm,limit=1.0,report_norm=true}",
    "tensor-norm": "clip-gradients{by=tensor-norm,limit=1.0}",
    "value": "clip-gradients{by=value,limit=1.0}",
    "centralize": "gradient-centralization",
    "freeze": "gradient-freeze{groups=3,total_steps=20}",
    "group-scale": "group-loss-scale{groups=2},gradient-accumulation{steps=2}",
    "still": "freeze{match=[*bias]}",
    "adapters": "lora{match=[*.weight],rank=1}",
    "less-bn": "less-bn",
    "head": "normalised-head",
    "groups": "parameter-groups{match=[*weight],lr_factor=0.5,weight_decay=0.01}",
    "batch": f"batch-size{{size={BATCH}}}",
    "convolution": "patch-convolution",
    "clean": "common-subexpression-elimination,dead-code-elimination,effect-chain-minimization",
    "mixed": "mixed-precision",
    "average": "weight-average{warmup=2},monitor{every=2}",
    "muon": "replace-optimizer{to=muon},schedule{total=9,warmup=2}",
    "lion": "replace-optimizer{to=lion}",
    "free": "replace-optimizer{to=schedule-free-adamw}",
    "bfloat16": "mixed-precision{dtype=bfloat16}",
    "status": "overflow-check{detect=status}",
    "recompute": "recompute{policy=all}",
    "dim-reduce": "dim-reduce{basis=BASIS,n_components=2}",
    "adasum": "adasum",
    "ranks": "data-parallel,gradient-accumulation{steps=2}",
    "shares": "data-parallel,shard-optimizer{stage=2},gradient-accumulation{steps=2}",
    "ranks-scale": "data-parallel,gradient-accumulation{steps=2},loss-scale{mode=dynamic,window=2},overflow-check",
}
"""Every pass by a short name; BASIS stands for a file of directions that fits the network."""
ON_RANKS = frozenset({"adasum", "ranks", "ranks-scale", "shares"})
DEVICES = {"GPU": "gpu", "Ascend": "ascend"}
"""By MindSpore's name of a device, the target that programs are compiled for."""


@dataclass(frozen=True, order=True)
class Job:
    """A network of the zoo and the short name of a pipeline."""

    network: str
    pipeline: str

    def __str__(self) -> str:
        return f"{self.network} {self.pipeline}"

    @property
    def on_ranks(self) -> bool:
        return self.pipeline in ON_RANKS


def passes(job: Job) -> set[str]:
    """The names of the passes of a job's pipeline, and of their stages; none where it runs the exported file."""
    if job.pipeline == NATIVE:
        return set()
    named = parse_pipeline(PIPELINES[job.pipeline])
    return {p.name for p in [*named, *in_stages(named)]}


def compiled(job: Job, exported: bc.Program, target: str | None, scratch: Path) -> bc.Program:
    """The program of a job, from the network's export; raises boost_compile.Error where a pass refuses it, or for its
    target."""
    text = PIPELINES[job.pipeline]
    if "BASIS" in text:
        text = text.replace("BASIS", str(_basis(exported, scratch / f"{job.network}.npy")))
    return bc.compile(exported, text, target=target)


def _basis(program: bc.Program, path: Path) -> Path:
    """Two directions in the space of the trained weights."""
    columns = sum(v.type.size for v in program.state.values() if v.role == "weight" and v.trainable)
    np.save(path, np.eye(2, columns, dtype=np.float32))
    return path
