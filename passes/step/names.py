"""The names by which passes agree without knowing each other, and who writes and reads each of them.

As ir/core/names.py, which has the names that the IR and the runtime know too.
"""

from __future__ import annotations

from ...ir.core.names import Name

WEIGHT = "accumulation.weight"
SKIPPED, DROPPED = "overflow.skipped_cycles", "overflow.dropped_micro_batches"
EACH, OWN = "each_micro_batch", "own_check"
SCALE, CLEAN = "loss_scale.value", "loss_scale.clean_cycles"
TAG = "centralize"
FUSION = "fusion"
TALLY = "tally"
COUNTED = "counts_micro_batches"
TABLE = "schedule.rates"


def value_of(group: int | str) -> str:
    """The state that holds the loss scale of a group of layers."""
    return f"loss_scale.group{group}.value"


def steps_of(group: int | str) -> str:
    """The state that counts a group's steps on the way to the next power of two."""
    return f"loss_scale.group{group}.steps"


# fmt: off
NAMES: tuple[Name, ...] = (
    Name(WEIGHT, "state", "the sum of a window's weights (reduction=weighted); its notes: offset and least beside it",
         ("passes.gradient_accumulation.graphs",), ("passes.dim_reduce.dim_reduce",
         "passes.gradient_accumulation.graphs", "passes.monitor.monitor")),
    Name(SKIPPED, "state", "how many updates in a row were skipped",
         ("passes.overflow_check",), ("passes.adasum", "passes.dim_reduce.dim_reduce",
         "passes.gradient_accumulation.gradient_accumulation", "passes.group_loss_scale", "passes.loss_scale",
         "passes.overflow_check", "passes.replace_optimizer.replace_optimizer", "passes.step.dynamic_loss_scale",
         "passes.step.updates")),
    Name(DROPPED, "state", "how many micro-batches of the cycle have overflowed, where each is judged by itself",
         ("passes.overflow_check",), ("passes.monitor.monitor", "passes.overflow_check")),
    Name(EACH, "note", "of overflow.skipped_cycles: each micro-batch is to be checked, and a whole step was still one",
         ("passes.overflow_check",), ("passes.gradient_accumulation.gradient_accumulation",)),
    Name(OWN, "note", "of overflow.skipped_cycles: it counts the updates that the file's own check skips",
         ("passes.overflow_check",), ("passes.adasum", "passes.step.dynamic_loss_scale")),
    Name(SCALE, "state", "the loss scale; its notes are the rule: factor, window, min, max",
         ("passes.loss_scale",), ("passes.loss_scale", "passes.step.dynamic_loss_scale",
         "tools.verification.gradient_error", "tools.verification.scaled")),
    Name(CLEAN, "state", "windows without overflow since the loss scale last changed",
         ("passes.loss_scale",), ("passes.step.dynamic_loss_scale",)),
    Name(value_of("<k>"), "state", "a group's loss scale, a power of two; notes: its weights, the order, the rule",
         ("passes.group_loss_scale",), ("passes.group_loss_scale", "passes.step.dynamic_loss_scale",
         "passes.step.group_scale_rule")),
    Name(steps_of("<k>"), "state", "a group's steps on the way to the next power of two",
         ("passes.group_loss_scale",), ("passes.step.group_scale_rule",)),
    Name(TAG, "note", "of a weight: the axes over which its gradient loses its mean",
         ("passes.parameter_groups", "passes.tag_gradient_centralization"), ("passes.lower_gradient_centralization",
         "passes.parameter_groups", "tools.verification.context", "tools.views.anatomy", "tools.views.summary")),
    Name(FUSION, "note", "of a weight: the number of the bucket in which ranks exchange its gradient",
         ("passes.parameter_groups",), ("passes.data_parallel.exchange",)),
    Name(TALLY, "mark", "what the node counts on this rank; data-parallel puts the sum over ranks in its place",
         ("passes.step.tally",), ("passes.data_parallel.exchange", "passes.step.clip_each_rank",
         "passes.step.exported_reductions", "passes.step.tally")),
    Name(COUNTED, "mark", "a divisor that holds the number of micro-batches as a factor",
         ("passes.step.normalisation",), ("passes.data_parallel.exchange", "passes.dim_reduce.dim_reduce",
         "passes.step.normalisation")),
    Name(TABLE, "state", "the learning rates of a schedule, by the number of updates",
         ("passes.step.rates",), ("passes.dim_reduce.dim_reduce", "passes.replace_optimizer.replace_optimizer",
         "passes.schedule", "passes.step.rates", "tools.training.loading")),
)
# fmt: on
