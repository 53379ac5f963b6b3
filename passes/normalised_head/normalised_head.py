"""Normalised head: the last dense layer on inputs and weights of length one, with a learned multiplier."""

from __future__ import annotations

from collections.abc import Sequence

from ...ir.analysis.training.anatomy import anatomy
from ...ir.core.errors import PassError
from ...ir.core.names import ADAPTER
from ...ir.core.program import Program
from ...ir.core.report import PassResult
from ...ir.core.wording import counted
from ..framework.base import Pass
from ..framework.options import option
from ..step.step import the_step
from .head import check_matrix, find_head, last_of_each_cell
from .rewrite import drop_bias, normalise, split


class NormalisedHead(Pass):
    """Makes the last dense layer a normalised one: inputs and weight rows of length one, times a learned multiplier.

    A layer x W^T + b becomes s (x/|x| (W/|W|)^T + b), with the lengths taken row by row. s is one number, which starts
    at one and is trained as W is. State: ``<layer>.multiplier`` and its optimizer state.

    The last dense layer is the last product in forward of a value with a trained matrix. ``layers=every-cell``
    normalises the last one of every cell. A layer that cannot be rewritten stays, and the report says so. ``bias=drop``
    removes the bias.

    Changes training: it is another network.

    Source: Wang et al., NormFace, 2017; ``mindspore.boost.LessBN`` with ``fn_flag`` (its cell CommonHeadLastFN).
    """

    name = "normalised-head"
    preserves = False
    early = True
    layers: str = option("last", help="the last layer of the network, or of every cell", choices=("last", "every-cell"))
    bias: str = option("keep", help="keep the layer's bias, or remove it", choices=("keep", "drop"))

    def run(self, program: Program) -> PassResult:
        result = self.result()
        graph = the_step(program, self.name)
        if any(ADAPTER in node.marks for node in graph.all_nodes()):
            raise PassError(
                "the last dense layer stands still beside adapters: ask for normalised-head in front of lora"
            )
        nodes = graph.total_nodes()
        weights: Sequence[str | None] = [None]
        if self.layers != "last":
            weights = last_of_each_cell(anatomy(graph), program, result)
        done: list[str] = []
        added: list[str] = []
        dropped: list[str] = []
        for weight in weights:
            try:
                found = split(anatomy(graph), weight)
                head = find_head(found, weight)
                if head is None:
                    break
                if weight is not None:
                    check_matrix(found, head)
                added.extend(normalise(program, found, head))
                done.append(head.info.name)
                if self.bias == "drop" and head.bias_add is not None:
                    dropped.append(drop_bias(program, graph, head.bias_add, head.product))
            except PassError as refusal:
                if weight is None:
                    raise
                result.miss(weight, str(refusal))
        if not done and not result.misses:
            result.miss(graph.name, "no dense layer: no product of a value with a matrix that is trained")
        if done:
            result.matched = result.changed = len(done)
            result.statistics = {"weight": ", ".join(done), "state added": added, "nodes before": nodes}
            result.statistics["nodes after"] = graph.total_nodes()
            result.summary = f"{counted(len(done), 'layer')} normalised: {', '.join(done[:3])}{', …' * (len(done) > 3)}"
        if dropped:
            result.statistics["bias dropped"] = ", ".join(dropped)
        if done and self.layers == "last":
            multiplier = next(n for n in added if n.endswith("multiplier") and program.state[n].role == "weight")
            result.summary = f"'{done[0]}' normalised, with multiplier '{multiplier}'"
        return result
