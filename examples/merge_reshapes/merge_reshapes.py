"""Merging of reshapes: of two in a row only the last one counts."""

from __future__ import annotations

from boost_compile.ir.core.graph import Graph, Node
from boost_compile.ir.core.program import Program
from boost_compile.ir.core.report import PassResult
from boost_compile.passes.framework.base import Pass
from boost_compile.passes.framework.options import option
from boost_compile.passes.framework.pattern import Match, Rewrite, any_value, op


class MergeReshapes(Pass):
    """Replaces a Reshape of a Reshape by one.

    Preserves training bit for bit: a Reshape moves no element.
    """

    name = "merge-reshapes"
    single_use: bool = option(False, help="leave pairs alone whose first Reshape has other uses")

    def run(self, program: Program) -> PassResult:
        inner = op("Reshape", any_value("x"), ..., single_use=self.single_use)
        rewrite = Rewrite(op("Reshape", inner, any_value("shape")), merged)
        result = rewrite.run(program, self.result())
        result.summary = f"{result.changed} reshapes merged"
        return result


def merged(graph: Graph, match: Match) -> Node:
    return graph.create("Reshape", [match["x"], match["shape"]], match.root.type)
