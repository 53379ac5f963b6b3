"""BatchNorm as it trains, in a graph that was exported for inference."""

from __future__ import annotations

from ...ir.core.graph import Graph
from ...ir.core.predicates import rests
from ...ir.core.primitives import Family, facts
from ...ir.core.report import PassResult


def set_training_mode(graph: Graph, switch: bool, report: PassResult) -> None:
    """Switches every BatchNorm that uses its statistics as they are, or reports it as one that keeps them.

    An export in inference mode leaves nothing of a dropout, so there is none to switch; the report says how many there
    are.
    """
    resting = [n for n in graph.all_nodes() if rests(n)]
    for node in resting:
        if switch:
            at = facts(node.op).training
            assert at is not None
            node.set_operand(at, node.home.constant(True))
        else:
            report.miss(
                node.scope or node.name,
                "BatchNorm in inference mode keeps its statistics (boost-compile --training-mode)",
            )
    report.statistics["batch_norms_switched"] = len(resting) if switch else 0
    report.statistics["dropouts"] = sum(facts(n.op).family is Family.DROPOUT for n in graph.all_nodes())
