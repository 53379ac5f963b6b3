"""What no session runs: refused before anything is compiled."""

from __future__ import annotations

import os

from ...ir.analysis.targets import ADVICE, described, lacking, torn, torn_apart
from ...ir.core.errors import RuntimeFailure
from ...ir.core.graph import Graph
from ...ir.core.primitives import Family, facts
from ...ir.core.program import Program
from .device import named_device


def refuse_foreign_code(program: Program) -> None:
    """Files are data: what MindSpore would run because a file names it (an expression, a library) is not started."""
    for graph in (program.graphs[name] for name in program.schedule.graphs()):
        for node in graph.all_nodes():
            if facts(node.op).family is Family.CODE:
                raise RuntimeFailure(
                    f"graph '{graph.name}': primitive {node.op.name} (node %{node.name}, scope {node.scope or 'none'}) "
                    f"runs code that the file names, which a session does not do. Export the network without it."
                )


def lacks_kernels(program: Program, device: str) -> bool:
    """Whether the device has no kernel for something that the schedule runs."""
    target = named_device(device).lower()
    return any(True for name in program.schedule.graphs() for _ in lacking(program.graphs[name], target))


def refuse_without_kernel(program: Program, device: str) -> None:
    """Refuses now: a kernel that the device lacks would else show in the graph that runs last, micro-batches later."""
    for name in program.schedule.graphs():
        for node in lacking(program.graphs[name], device.lower()):
            what = described(node, device.lower())
            raise no_kernel(program.graphs[name], node.op.name, device, what, program.target)
        for node, state in torn(program.graphs[name], device.lower()):
            raise RuntimeFailure(torn_apart(node, state, name))


def no_kernel(graph: Graph, primitive: str, device: str, what: str = "", target: str = "") -> RuntimeFailure:
    scopes = [n.scope for n in graph.all_nodes() if n.op.name == primitive]
    where = f" ({len(scopes)} uses, the first in {scopes[0]})" if scopes else ""
    found = f"graph '{graph.name}': MindSpore has no {device} kernel for primitive {what or primitive}{where}."
    if target not in ("", device.lower()):
        found += f" The program was compiled for {target}."
    if primitive in ADVICE:  # nothing replaces it
        return RuntimeFailure(f"{found} {ADVICE[primitive]} Or run it on a device that has one.")
    rest = "replaces what it can; else run it on a device that has one, or replace the layer or optimizer it comes from"
    return RuntimeFailure(
        found,
        python=f"bc.compile(program, 'legalize{{target={device.lower()}}}') {rest}.",
        command=f"boost-compile --target {device.lower()} {rest} and export again.",
    )


def refuse_too_large(needed: int) -> None:
    """A file of a few bytes may declare any amount of state that starts from zero."""
    if not hasattr(os, "sysconf"):  # Windows
        return
    there = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    if needed > there:
        raise RuntimeFailure(
            f"the program's state takes {needed / 2**30:,.1f} GB, and this machine has {there / 2**30:,.1f} GB of "
            "memory (boost-inspect --memory shows what takes how much): train a smaller network, or on a larger one."
        )
