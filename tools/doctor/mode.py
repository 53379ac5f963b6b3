"""A training graph that was exported without ``.set_train()``."""

from __future__ import annotations

from collections.abc import Iterator

from ...ir.analysis.training.trains import what_is_missing
from ...ir.core.predicates import rests
from ...ir.core.primitives import facts
from ...ir.core.program import Program
from ...ir.core.wording import counted
from .finding import Finding


def forgotten_training_mode(program: Program) -> Iterator[Finding]:
    """Of a program that trains, whose BatchNorms all rest. Where some do, their layers were frozen on purpose."""
    for name, graph in program.graphs.items():
        found = [n for part in graph.all_graphs() for n in part if facts(n.op).training is not None]
        if not found or not all(map(rests, found)) or what_is_missing(program) is not None:
            continue
        every = "its BatchNorm is" if len(found) == 1 else f"all its {counted(len(found), 'BatchNorm')} are"
        first = found[0].scope or found[0].name
        yield Finding(
            "training mode",
            f"graph '{name}' trains, but {every} in inference mode ({first}): statistics are never learnt, and a "
            f"dropout is left out",
            "Export the training cell after .set_train(), as in nn.TrainOneStepCell(network, optimizer).set_train()",
        )
