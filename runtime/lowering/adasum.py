"""On each target: AdaSum and sums over neighbouring ranks, written out for this rank of the job."""

from __future__ import annotations

from ...ir.core.graph import Graph
from ...ir.rewrite.ranks.adasum import Job, expand_adasum, needs_job
from .context import Context


def applies(graph: Graph, context: Context) -> bool:
    return needs_job(graph)


def run(graph: Graph, context: Context) -> str:
    job = Job(context.rank, context.ranks, context.target, context.groups)
    expand_adasum(graph, job)
    return f"combinations written out for rank {context.rank} of {context.ranks}"
