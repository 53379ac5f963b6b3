"""Which devices can run a program, by MindSpore's lists of kernels."""

from __future__ import annotations

from collections import Counter
from typing import Any

from ...ir.analysis.targets import lacking, on_cpu
from ...ir.core.errors import Error
from ...ir.core.kernels import kernels
from ...ir.core.primitives import EVERYWHERE
from ...ir.core.program import Program


def describe_targets(program: Program) -> list[dict[str, Any]]:
    """One entry a target: the primitives that it lacks kernels for (``replaced``: whether ``boost-compile --target``
    puts others in their place; else ``refusal`` says why not), and those that run on the CPU instead, with counts."""
    from ...passes.framework.manager import compile_program

    found = []
    for target in sorted(EVERYWHERE):
        graphs = program.graphs.values()
        missing = Counter(node.op.name for graph in graphs for node in lacking(graph, target))
        refusal = ""
        if missing:
            try:
                compile_program(program, "legalize", target=target, reproducer_directory=None)
            except Error as error:
                refusal = str(error).splitlines()[0]
        found.append(
            {
                "target": target,
                "runs": not missing,
                "lacks": dict(missing),
                "replaced": bool(missing) and not refusal,
                "refusal": refusal,
                "on_cpu": dict(Counter(node.op.name for graph in graphs for node in on_cpu(graph, target))),
                "kernels_of": kernels(target).release,
            }
        )
    return found


def lines_of_targets(found: list[dict[str, Any]]) -> list[str]:
    """The same for people."""
    lines = []
    for entry in found:
        target, names = entry["target"], ", ".join(entry["lacks"])
        if entry["runs"]:
            verdict = "has kernels for all of it"
        elif entry["replaced"]:
            verdict = f"has kernels after boost-compile --target {target}, which replaces {names}"
        else:
            verdict = f"cannot run it. {entry['refusal']}"
        if entry["on_cpu"]:
            verdict += f"; MindSpore runs {', '.join(entry['on_cpu'])} on the CPU instead"
        lines.append(f"{target + ':':8}{verdict}")
    lines.append(f"By the kernels that MindSpore {found[0]['kernels_of']} lists; nothing was run.")
    return lines
