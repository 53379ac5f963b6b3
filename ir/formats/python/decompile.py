"""A forward graph as a Python module and the file of its weights."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from ...analysis.effects.state_access import summarize
from ...analysis.training.network import BACKWARD, network_parts
from ...core.data import Data
from ...core.errors import PassError
from ...core.graph import Graph
from ...core.program import Program
from ...core.types import DType, TensorType
from ...core.wording import counted
from ...files.atomic import replacing_file
from ...files.tensor_file import write_data
from .source import write_source

_OF_TRAINING = {
    "python": "Of a training program give the network: bc.evaluation_network makes it.",
    "command": "Of a training program boost-inspect --forward --format python writes the network.",
}


@dataclass
class Decompiled:
    """``source``: the module. ``tensors``: what its file of weights holds, ``parameter:NAME`` and ``constant:N``."""

    source: str
    tensors: dict[str, tuple[TensorType, Data]]
    notes: dict[str, str]

    def write(self, folder: Path, name: str = "network") -> Path:
        """Writes ``NAME.py`` and ``NAME.safetensors`` into a folder that exists; the path of the module."""
        write_data(folder / f"{name}.safetensors", self.tensors, self.notes)
        with replacing_file(folder / f"{name}.py") as file:
            file.write(self.source.encode("ascii"))
        return folder / f"{name}.py"


def decompile(program: Program, trained: frozenset[str] | set[str] = frozenset()) -> Decompiled:
    """The only graph of a program as Python. ``trained``: names of the state whose Parameters require gradients."""
    graph = only_graph(program)
    try:
        source, constants = write_source(graph)
    except PassError as error:
        if BACKWARD in network_parts(graph, summarize(graph)).values():
            raise PassError(f"{error.message}.", **_OF_TRAINING) from None
        raise
    tensors = {f"parameter:{v.name}": (v.type, v.data) for v in program.state.values()}
    tensors |= {f"constant:{i}": (c.type, c.data) for i, c in enumerate(constants)}
    half = [key for key, (type_, _) in tensors.items() if type_.dtype is DType.BFLOAT16]
    notes = json.dumps({"trained": sorted(trained), "bfloat16": half})
    return Decompiled(source, tensors, {"format": "boost-compile", "notes": notes})


def only_graph(program: Program) -> Graph:
    if len(program.graphs) != 1:
        raise PassError(
            f"program '{program.name}' holds {counted(len(program.graphs), 'graph')}; one forward graph can be "
            "written as Python.",
            **_OF_TRAINING,
        )
    return next(iter(program.graphs.values()))
