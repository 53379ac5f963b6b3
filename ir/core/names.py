"""The names by which parts of the compiler agree without knowing each other, and who writes and reads each of them.

A graph carries them, so they are part of the formats. Names that only passes use stand in passes/step/names.py. A name
that one module both writes and reads stands in that module. tests/test_names.py holds both tables against the code.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Name:
    """``kind``: a "mark" of a node, an exporter's "primal" attribute of a node, a "note" of a state variable
    (``StateVariable.info``), the name of a "state", or that of a "result" (``Graph.outputs``). ``writers`` and
    ``readers`` are modules, as in ``passes.adasum``."""

    text: str
    kind: str
    about: str
    writers: tuple[str, ...]
    readers: tuple[str, ...]


FORWARD_ID, BACKWARD_ID = "unique_id", "forward_unique_id"
DUPLICATED = "duplicated"
GRADIENT, PART, STAGE = "gradient", "gradient_part", "stage"
SQUARES = "squares"
LOCAL = "local"
ROWS = "rows_over_ranks"
OWNED = "owned_by_rank"
LOSS, OVERFLOW, LOSS_SCALE, SKIPPED_CYCLES = "loss", "overflow", "loss_scale", "skipped_cycles"
ADAPTER, ALPHA, INPUTS_FIRST = "adapter", "adapter_alpha", "adapter_inputs_first"
GRADIENT_NORM, TRIALS_MADE, ACCEPTED = "gradient_norm", "trials", "accepted"


def loss_scale_of(group: int | str) -> str:
    """The result that is the loss scale of a group of layers."""
    return f"{LOSS_SCALE}_{group}"


def average_of(weight: str) -> str:
    """The state that holds the average of a weight."""
    return f"average.{weight}"


def lora_a_of(weight: str) -> str:
    """The state that holds matrix A of a weight's adapter, as PEFT calls it."""
    return f"{weight.removesuffix('.weight')}.lora_A.weight"


def lora_b_of(weight: str) -> str:
    """The state that holds its matrix B."""
    return f"{weight.removesuffix('.weight')}.lora_B.weight"


def monitor_of(what: str) -> str:
    """The state that holds what ``monitor`` measures: of each weight in turn, or once."""
    return f"monitor.{what}"


MONITORED_CYCLES = monitor_of("cycles")
EVERY, WATCHED = "measured_every", "measured_weights"

# fmt: off
NAMES: tuple[Name, ...] = (
    Name(FORWARD_ID, "primal", "a node of the forward part, by MindSpore's autodiff",
         ("ir.proof.formulas.lora", "ir.proof.formulas.normalised", "passes.gradient_accumulation.carry",
         "passes.gradient_accumulation.window", "passes.lora.adapters", "passes.normalised_head.rewrite"),
         ("ir.analysis.batch.joins",
         "ir.analysis.derivative.derivative", "ir.analysis.training.loss_multipliers",
         "ir.analysis.training.network", "ir.rewrite.batch_size.resize", "passes.mixed_precision.labels",
         "passes.normalised_head.head")),
    Name(BACKWARD_ID, "primal", "a node of the backward part, with the number of its forward node",
         ("ir.proof.formulas.lora", "ir.proof.formulas.normalised",
         "ir.rewrite.settle_gradients", "passes.gradient_accumulation.factors", "passes.gradient_accumulation.summands",
         "passes.lora.adapters",
         "passes.normalised_head.rewrite"),
         ("ir.analysis.batch.joins",
         "ir.analysis.derivative.derivative", "ir.analysis.derivative.linearity",
         "ir.analysis.training.loss_multipliers", "ir.analysis.training.network", "ir.rewrite.batch_size.resize",
         "passes.mixed_precision.labels", "passes.normalised_head.head")),
    Name(DUPLICATED, "mark", "a copy of a forward node that runs again in the backward part (``Cell.recompute``)",
         ("passes.step.again",), ("ir.analysis.training.network", "passes.lora.sites",
         "passes.mixed_precision.labels", "passes.recompute.candidates")),
    Name(GRADIENT, "mark", "the weight whose gradient starts at this node, or several with the same gradient",
         ("ir.rewrite.stages",), ("ir.analysis.training.anatomy", "ir.analysis.training.gradient_path",
         "passes.step.accumulated")),
    Name(PART, "mark", "which summand of the gradient the node is",
         ("ir.rewrite.stages",), ("ir.analysis.training.gradient_path",)),
    Name(STAGE, "mark", "what the node does to a gradient: one of STAGES, or the divisor of all",
         ("ir.rewrite.ranks.buckets", "ir.rewrite.stages", "passes.gradient_accumulation.graphs",
         "passes.step.clip_each_rank", "passes.step.normalisation"), ("ir.analysis.training.divisor",
         "ir.analysis.training.gradient_path", "ir.analysis.training.optimizers", "ir.rewrite.ranks.adasum",
         "ir.rewrite.ranks.pieces",
         "ir.rewrite.ranks.shares", "passes.adasum",
         "passes.data_parallel.exchange", "passes.data_parallel.undo", "passes.replace_optimizer.replace_optimizer",
         "passes.step.accumulated",
         "passes.step.clip_each_rank", "passes.step.each_micro_batch", "passes.step.exported_reductions",
         "passes.step.normalisation", "runtime.lowering.alone")),
    Name(SQUARES, "mark", "the sum over gradients of the sums of their squares, which may be added in any order",
         ("passes.step.clipping",), ("runtime.lowering.measures",)),
    Name(LOCAL, "note", "each rank keeps this state for itself, so it need not be the same on all",
         ("passes.data_parallel.data_parallel",), ("ir.proof.window", "passes.adasum",
         "passes.data_parallel.data_parallel", "passes.data_parallel.exchange", "passes.data_parallel.terms",
         "passes.shard_optimizer", "runtime.training.session")),
    Name(average_of("<k>"), "state", "the average of a weight over its updates",
         ("passes.weight_average",), ("ir.proof.formulas.average", "ir.proof.formulas.optimizers",
         "ir.proof.formulas.replaced", "ir.rewrite.evaluation.averages",
         "passes.adasum", "passes.dim_reduce.dim_reduce", "passes.replace_optimizer.schedule_free",
         "passes.shard_optimizer", "passes.weight_average")),
    Name(ADAPTER, "mark", "adds an adapter to the layer of this weight",
         ("passes.lora.adapters",), ("ir.rewrite.evaluation.adapters", "passes.lora.lora",
         "passes.normalised_head.normalised_head")),
    Name(ALPHA, "mark", "an adapter is multiplied by this, divided by its rank",
         ("passes.lora.adapters",), ("ir.rewrite.evaluation.adapters",)),
    Name(INPUTS_FIRST, "mark", "the weight beside the adapter is inputs by outputs",
         ("passes.lora.adapters",), ("ir.rewrite.evaluation.adapters",)),
    Name(lora_a_of("<k>"), "state", "matrix A of the adapter of a weight",
         ("passes.lora.lora",), ("ir.proof.formulas.lora", "ir.rewrite.evaluation.adapters", "passes.lora.lora",
         "runtime.training.log")),
    Name(lora_b_of("<k>"), "state", "matrix B of the adapter of a weight",
         ("passes.lora.lora",), ("ir.proof.formulas.lora", "ir.rewrite.evaluation.adapters", "passes.lora.lora")),
    Name(monitor_of("<k>"), "state", "what is measured in a cycle, a number for each weight",
         ("passes.monitor.monitor",), ("passes.monitor.measures", "runtime.training.monitors")),
    Name(MONITORED_CYCLES, "state", "how many cycles there were, measured or not",
         ("passes.monitor.monitor",), ("passes.monitor.measures", "runtime.lowering.idle",
         "runtime.training.log", "runtime.training.monitors", "runtime.training.session")),
    Name(EVERY, "note", "of monitor.cycles: every so-many-th cycle is measured",
         ("passes.monitor.monitor",), ("runtime.lowering.idle",)),
    Name(WATCHED, "note", "of a measured state: the weights, in the order of the numbers",
         ("passes.monitor.monitor",), ("runtime.training.monitors",)),
    Name(ROWS, "note", "ranks may share the rows of this state out",
         ("passes.dim_reduce.subspace",), ("ir.rewrite.ranks.shares",)),
    Name(OWNED, "note", "in a job one rank holds this state alone, or each has a piece of it: one of PARTITIONS",
         ("passes.shard_optimizer",), ("ir.rewrite.ranks.dealing", "passes.adasum", "passes.shard_optimizer")),
    Name(LOSS, "result", "the loss of the micro-batch, not scaled",
         ("ir.analysis.training.results", "ir.core.naming", "ir.rewrite.evaluation.outputs",
         "passes.dim_reduce.trial"), ("ir.rewrite.evaluation.network", "ir.rewrite.evaluation.outputs",
         "passes.dim_reduce.trial", "passes.loss_scale", "passes.mixed_precision.labels", "passes.overflow_check",
         "runtime.training.cell_result", "runtime.training.result", "runtime.training.session")),
    Name(OVERFLOW, "result", "whether a gradient is not finite: of the cycle, or of a micro-batch that is dropped",
         ("ir.analysis.training.results", "passes.dim_reduce.subspace", "passes.overflow_check"), ("ir.proof.cases",
         "passes.adasum", "passes.step.dynamic_loss_scale", "passes.step.group_scale_rule",
         "runtime.state.finite_state", "runtime.training.cell_result", "runtime.training.result")),
    Name(LOSS_SCALE, "result", "the scale of the step's gradients",
         ("ir.analysis.training.results", "passes.loss_scale"), ("ir.proof.cases",
         "passes.step.dynamic_loss_scale", "runtime.training.cell_result", "runtime.training.result",
         "tools.doctor.loss_scale")),
    Name(loss_scale_of("<k>"), "result", "the scale of the gradients of a group of layers",
         ("passes.group_loss_scale",), ("runtime.training.cell_result", "runtime.training.result")),
    Name(SKIPPED_CYCLES, "result", "how many updates in a row were skipped, up to this one",
         ("passes.dim_reduce.subspace", "passes.overflow_check"), ("ir.proof.cases",
         "passes.step.updates", "runtime.training.result")),
    Name(GRADIENT_NORM, "result", "the norm of all gradients of the cycle before clipping",
         ("passes.clip_gradients",), ("runtime.training.result",)),
    Name(TRIALS_MADE, "result", "how many trials the line search of the cycle made",
         ("passes.dim_reduce.subspace",), ("runtime.training.result",)),
    Name(ACCEPTED, "result", "whether the line search accepted its last trial",
         ("passes.dim_reduce.subspace",), ("runtime.training.result",)),
)
# fmt: on
