"""The names by which parts of the compiler agree without knowing each other, and who writes and reads each of them.

A graph carries them, so they are part of the formats. Names that only passes use stand in passes/step/names.py. A name
that one module both writes and reads stands in that module. tests/test_names.py holds both tables against the code.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Name:
    """``kind``: a "mark" of a node, an exporter's "primal" attribute of a node, a "note" of a state variable
    (``StateVariable.info``), the name of a "state" or of a "tally". ``writers`` and ``readers`` are modules, as in
    ``passes.adasum``."""

    text: str
    kind: str
    about: str
    writers: tuple[str, ...]
    readers: tuple[str, ...]


FORWARD_ID, BACKWARD_ID = "unique_id", "forward_unique_id"
GRADIENT, PART, STAGE = "gradient", "gradient_part", "stage"
LOCAL = "local"
ROWS = "rows_over_ranks"

# fmt: off
NAMES: tuple[Name, ...] = (
    Name(FORWARD_ID, "primal", "a node of the forward part, by MindSpore's autodiff",
         ("passes.normalised_head",), ("ir.analysis.batch.scalars", "ir.analysis.derivative.derivative",
         "ir.analysis.training.network")),
    Name(BACKWARD_ID, "primal", "a node of the backward part, with the number of its forward node",
         ("passes.normalised_head",), ("ir.analysis.batch.scalars", "ir.analysis.derivative.derivative",
         "ir.analysis.training.network")),
    Name(GRADIENT, "mark", "the weight whose gradient starts at this node, or several with the same gradient",
         ("ir.rewrite.stages",), ("ir.analysis.training.gradient_path", "passes.step.accumulated")),
    Name(PART, "mark", "which summand of the gradient the node is",
         ("ir.rewrite.stages",), ("ir.analysis.training.gradient_path",)),
    Name(STAGE, "mark", "what the node does to a gradient: one of STAGES, or the divisor of all",
         ("ir.rewrite.ranks.buckets", "ir.rewrite.stages", "passes.gradient_accumulation",
         "passes.step.clip_each_rank", "passes.step.normalisation"), ("ir.analysis.training.divisor",
         "ir.analysis.training.gradient_path", "ir.rewrite.ranks.adasum", "ir.rewrite.ranks.shares", "passes.adasum",
         "passes.data_parallel", "passes.step.accumulated", "passes.step.clip_each_rank",
         "passes.step.exported_reductions", "passes.step.normalisation", "runtime.lowering.alone")),
    Name(LOCAL, "note", "each rank keeps this state for itself, so it need not be the same on all",
         ("passes.data_parallel",), ("passes.adasum", "passes.data_parallel", "runtime.training.session")),
    Name(ROWS, "note", "ranks may share the rows of this state out",
         ("passes.dim_reduce.subspace",), ("ir.rewrite.ranks.shares",)),
)
# fmt: on
