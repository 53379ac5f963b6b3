"""What the same steps on the same graph cost in other IRs: onnx-ir, torch.fx and xDSL.

    python -m benchmarks.peers [--install] [--python PYTHON] [--sizes N …]        prints the tables

The peers live in an environment of their own (``.cache/peers``), which ``--install`` makes with pip (PyTorch is a
large download); what is not installed there is left out. Every peer gets the graph of
:func:`tests.synthetic.layers` with all its nodes, operands and scopes, in a process of its own. Graphs carry no
weights. Processor time; the cyclic garbage collector is off for all of them.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.compile_cost import Measured, measure
from benchmarks.machine import child_environment, kept
from benchmarks.tables import ROOT, table
from tests.synthetic import layers

PEERS = {"onnx-ir": "onnx_ir_peer.py", "torch": "torch_fx_peer.py", "xdsl": "xdsl_peer.py"}
MODULES = {"onnx-ir": "onnx_ir", "torch": "torch", "xdsl": "xdsl"}
ENVIRONMENT = ROOT / ".cache" / "peers"
SIZES = (1_000, 10_000, 100_000)
STEPS = ("load", "copy", "verify", "dead-code-elimination", "common-subexpression-elimination", "save")


def write_graph(size: int, path: Path) -> int:
    """The graph as the peers read it (see graph.py); returns the number of nodes."""
    (graph,) = layers(size).graphs.values()
    nodes = list(graph)
    numbers: dict[Any, int] = {}
    for node in nodes:
        for operand in node.operands:
            if operand.__class__ is not node.__class__:
                numbers.setdefault(operand, len(numbers))
    inputs = len(numbers)
    rows = []
    for node in nodes:
        rows.append((node.op.name, node.scope, [numbers[v] for v in node.operands]))
        numbers[node] = len(numbers)
    path.write_text(json.dumps({"inputs": inputs, "nodes": rows}), encoding="utf-8")
    return len(nodes)


def install() -> None:
    subprocess.run([sys.executable, "-m", "venv", str(ENVIRONMENT)], check=True)
    python = str(_python(ENVIRONMENT))
    for package in PEERS:
        subprocess.run([python, "-m", "pip", "install", "--quiet", package], check=True)


def _python(environment: Path) -> Path:
    return environment / ("Scripts/python.exe" if os.name == "nt" else "bin/python")


def ask(python: Path, package: str, graph: Path, scratch: str) -> dict[str, Any] | None:
    """What the peer measured; None if it is not installed."""
    look = f"import importlib.util as u, sys; sys.exit(u.find_spec({MODULES[package]!r}) is None)"
    if not python.exists() or subprocess.run([str(python), "-c", look]).returncode:
        return None
    script = Path(__file__).with_name(PEERS[package])
    command = [str(python), str(script), str(graph), scratch]
    done = subprocess.run(command, env=child_environment(), stdout=subprocess.PIPE, check=True)
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def _cell(seconds: dict[str, list[float]], step: str, nodes: int) -> str:
    if step == "load" and "build" in seconds:
        return f"({median(seconds['build']) * 1e6 / nodes:.1f})"
    if step not in seconds:
        return ""
    times = seconds[step]
    return f"{median(times) * 1e6 / nodes:.1f} ± {(max(times) - min(times)) / 2 / median(times):.0%}"


def compare(python: Path, size: int) -> list[str]:
    """A table for one size: µs a node of each step."""
    with tempfile.TemporaryDirectory() as scratch:
        path = Path(scratch) / "graph.json"
        nodes = write_graph(size, path)
        own: Measured = measure("layers", size, memory=False)
        rows = [["boost-compile", *(_cell(own.seconds, s, own.nodes) for s in STEPS)]]
        for package in PEERS:
            found = ask(python, package, path, scratch)
            if found is None:
                rows.append([package, "not installed", *[""] * (len(STEPS) - 1)])
                continue
            title = f"*{package} {found['version']}*"
            rows.append([title, *(_cell(found["seconds"], s, nodes) for s in STEPS)])
    head = [f"{nodes:,} nodes", *STEPS]
    return table(head, rows)


NOTES = """\
boost-compile and onnx-ir load and save binary files, xDSL its text; torch.fx has no file format: the number in
brackets is building the graph by calls. onnx-ir has no verifier of its own. Elimination of common subexpressions
is `fx_graph_cse` in torch.fx. boost-compile's load includes types, effects, marks and links of MindIR, which the
others are not given."""


def run(python: Path | None = None, sizes: Sequence[int] = SIZES) -> str:
    python = python or _python(ENVIRONMENT)
    lines = [
        "The same graph (`layers N`) in other IRs, **µs of processor time a node**, median (± half the range):",
        "",
    ]
    for size in sizes:
        print(f"  peers, {size:,}", file=sys.stderr, flush=True)
        lines += [*kept(f"peers {size}", compare, python, size), ""]
    return "\n".join([*lines, NOTES])


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--install", action="store_true", help="make the environment of the peers first")
    parser.add_argument("--python", type=Path, help="the Python of an environment that has them")
    parser.add_argument("--sizes", type=int, nargs="+", default=SIZES, metavar="N", help="how many nodes")
    arguments = parser.parse_args()
    if arguments.install:
        install()
    print(run(arguments.python, arguments.sizes))
